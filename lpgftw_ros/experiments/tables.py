"""Tables of a report, as Markdown and CSV: the paper's claims, stages, measures, cost, tasks."""

from collections.abc import Callable, Mapping, Sequence
import csv
from dataclasses import dataclass
import io
from itertools import product
import math
from math import nan

import numpy as np

from lpgftw_ros.experiments.groups import ALONE, display_name, Estimate, SuiteRuns
from lpgftw_ros.experiments.metrics import (
    average_performance,
    backward_transfer,
    forgetting,
    ledger,
    lost_success,
    PHASES,
    retention,
)
from lpgftw_ros.experiments.run_data import RunData
from lpgftw_ros.runs.stages import EVALUATIONS, FINAL, SHOWN, TUNE

# Numbers published with LPG-FTW (Mendez, Wang, Eaton, NeurIPS 2020).
#
# Meta-World: mean return and standard error over five seeds, from the authors' README. Gym
# bodies: the paper's table of EWC variants, the only numeric Gym results; no standard error. NaN:
# the published run diverged.


PUBLISHED_STAGE = {one.published: one.name for one in EVALUATIONS if one.published}
"""Published stage -> stage of a run folder that is measured in the same way."""
_EWC_STAGES = ('start', 'tune', 'final')


def named(stage: str) -> str:
    """Return how reports call a published stage; its start is not ours, docs/metrics.md says."""
    return stage if PUBLISHED_STAGE[stage] == stage else f'{stage}, as published'


@dataclass(frozen=True, slots=True)
class Published:
    """One published mean return."""

    suite: str
    label: str
    stage: str
    mean: float
    standard_error: float | None

    def __str__(self) -> str:
        error = '' if self.standard_error is None else f' ± {self.standard_error:,.0f}'
        return 'diverged' if self.mean != self.mean else f'{self.mean:,.0f}{error}'


_MT = {
    ('mt10', 'lpg-ftw'): ((4523, 508), (160553, 2847), (161142, 3415), (154873, 5415)),
    ('mt10', 'stl'): ((5217, 100), (135328, 8534), None, None),
    ('mt10', 'ewc'): ((5009, 407), (145060, 12859), None, (22202, 5065)),
    ('mt10', 'er'): ((3679, 650), (48495, 7141), None, (5083, 1710)),
    ('mt10', 'pg-ella'): (None, None, (44796, 4606), (12546, 5448)),
    ('mt50', 'lpg-ftw'): ((2505, 166), (161047, 3497), (161060, 3892), (160739, 3933)),
    ('mt50', 'stl'): ((4308, 128), (136837, 2888), None, None),
    ('mt50', 'ewc'): ((1001, 150), (71168, 16915), None, (567, 120)),
    ('mt50', 'er'): ((3373, 310), (33323, 2229), None, (25389, 1910)),
    ('mt50', 'pg-ella'): (None, None, (10292, 1113), (125, 130)),
}

BODY_SUITES = (
    'halfcheetah-gravity',
    'halfcheetah-bodyparts',
    'hopper-gravity',
    'hopper-bodyparts',
    'walker2d-gravity',
    'walker2d-bodyparts',
)
_EWC = {  # start, tune, final per suite, in the order of BODY_SUITES
    'ewc-1-1': (
        (-1245, -2917, -3.97e4),
        (1029, 1748, 1522),
        (1301, 2252, 1522),
        (613, 1508, 793),
        (1293, 2052, 303),
        (1237, 3055, 1382),
    ),
    'ewc-1-2': (
        (1796, 2409, 2603),
        (1132, 1769, 1588),
        (1339, 2322, 1836),
        (385, 920, 43),
        (-2132, -2181, nan),
        (1148, 2800, 1306),
    ),
    'ewc-1-3': (
        (1666, 2225, 2254),
        (1077, 1716, 1571),
        (1434, 2488, 1732),
        (424, 936, 31),
        (2192, 3901, 2325),
        (744, 2000, -128),
    ),
    'ewc-2-1': (
        (-778, 1384, 1797),
        (-892, 1308, 1521),
        (872, 2616, 2089),
        (615, 2142, 1011),
        (-2269, -1915, -2490),
        (nan, nan, nan),
    ),
    'ewc-2-2': (
        (-762, 1565, 2238),
        (-1.79e5, -2.16e5, -1.53e6),
        (930, 2582, 1900),
        (620, 2119, 1120),
        (-3.12e4, -3.23e4, -1.15e5),
        (1027, 3687, 1416),
    ),
    'ewc-2-3': (
        (-6.58e5, -7e5, -1.05e7),
        (-1.1e6, -1.01e6, -5.23e6),
        (939, 2520, 2029),
        (613, 2138, 928),
        (-8.98e4, -9.65e4, -1.59e5),
        (nan, nan, nan),
    ),
}
MAIN_EWC = 'ewc-1-3'
"""The variant behind the name EWC in the paper's Gym figures."""


def _build() -> dict[tuple[str, str, str], Published]:
    table = {}
    for (suite, label), values in _MT.items():
        for stage, pair in zip(PUBLISHED_STAGE, values, strict=True):
            if pair is not None:
                table[suite, label, stage] = Published(suite, label, stage, *map(float, pair))
    for label, (index, suite) in product(_EWC, enumerate(BODY_SUITES)):
        for stage, mean in zip(_EWC_STAGES, _EWC[label][index], strict=True):
            table[suite, label, stage] = Published(suite, label, stage, float(mean), None)
            if label == MAIN_EWC:
                table[suite, 'ewc', stage] = Published(suite, 'ewc', stage, float(mean), None)
    return table


PUBLISHED = _build()


def published(suite: str, label: str, stage: str) -> Published | None:
    """Return the published mean return of a method at a stage, if there is one."""
    return PUBLISHED.get((suite, label, stage))


OURS = ('lpg-ftw', 'lpg-ftw-adaptive')
"""Methods whose claims are checked."""
MANIPULATION_SUITES = ('mt', 'cw', 'demo')
RETENTION_BAR = 0.97
RETENTION_BAR_MANIPULATION = 0.90
"""Lower where the paper itself reports a loss (MT10: 0.965)."""
SUCCESS_MARGIN = 0.1
FEWEST_SEEDS = 3
"""With fewer an interval says little about seeds, and a claim stays open."""
TOO_FEW = 2
"""Runs for which Student's t has one degree of freedom: no interval is shown."""


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, what was measured, and the value it needs."""

    claim: str
    measured: Estimate
    bar: float
    seeds: tuple[int, ...]
    strict: bool = False
    """Whether the bar itself is too little."""

    @property
    def verdict(self) -> str:
        """Return what the whole interval says; the mean alone decides nothing."""
        if math.isnan(self.measured.value):
            return 'not measured'
        low, high = self.measured.low, self.measured.high
        enough = self.measured.runs >= FEWEST_SEEDS
        if enough and (low > self.bar if self.strict else low >= self.bar):
            return 'holds'
        if enough and (high <= self.bar if self.strict else high < self.bar):
            return 'does not hold'
        return 'not enough seeds'


def checks(group: SuiteRuns) -> tuple[Check, ...]:
    """Return every claim of the paper that these runs can test, for each method that makes it."""
    return tuple(check for label in OURS if label in group.methods for check in _of(group, label))


def _of(group: SuiteRuns, label: str) -> tuple[Check, ...]:
    k, name, group = group.columns, display_name(label), group.confirming(label)
    paired, own = group.paired_seeds(label), tuple(run.seed for run in group.methods[label])
    manipulation = group.suite.startswith(MANIPULATION_SUITES)
    bar = RETENTION_BAR_MANIPULATION if manipulation else RETENTION_BAR
    faster = f'{name} learns faster than STL after the first {k} tasks (area gained > 0)'
    better = f'{name} tunes at least as well as STL (tune / STL ≥ 1)'
    keeps = f'{name} does not forget (final / tune ≥ {bar:.2f})'
    found = [
        Check(faster, group.forward_transfer(label, after=k), 0.0, paired, strict=True),
        Check(better, group.tune_ratio(label), 1.0, paired),
        Check(keeps, group.retention(label), bar, own),
    ]
    if manipulation:
        most = f'{name} is faster on most tasks after the first {k} (P(area > STL) > 0.5)'
        solves = f'{name} succeeds as often as STL at tune (difference ≥ -{SUCCESS_MARGIN})'
        found += [
            Check(most, group.improvement(label, after=k), 0.5, paired, strict=True),
            Check(solves, group.success_difference(label), -SUCCESS_MARGIN, paired),
        ]
    return tuple(found)


def interval(estimate: Estimate) -> str:
    """Return a number with its interval as it stands in a table; nothing if it is not known."""
    if math.isnan(estimate.value):
        return ''
    if estimate.runs == TOO_FEW:
        return f'{estimate.value:.3f} (two seeds)'
    if math.isnan(estimate.low):
        return f'{estimate.value:.3f}'
    return f'{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})'


def percent(estimate: Estimate) -> str:
    """Return the same of a relative gain."""
    if math.isnan(estimate.value):
        return ''
    if estimate.runs == TOO_FEW:
        return f'{estimate.value:+.0%} (two seeds)'
    if math.isnan(estimate.low):
        return f'{estimate.value:+.0%}'
    return f'{estimate.value:+.0%} ({estimate.low:+.0%} to {estimate.high:+.0%})'


Value = str | float | int | None


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table; numbers stay numbers until they are written."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def markdown(self) -> str:
        """Return the table in Markdown, numbers right-aligned."""
        numeric = [
            all(not isinstance(row[i], str) for row in self.rows) for i in range(len(self.header))
        ]
        lines = [
            _line(self.header),
            _line(['---:' if right else '---' for right in numeric]),
            *(_line([text(value) for value in row]) for row in self.rows),
        ]
        return '\n'.join(lines)

    def csv(self) -> str:
        """Return the table as CSV with full precision."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator='\n')
        writer.writerow(self.header)
        writer.writerows(['' if value is None else value for value in row] for row in self.rows)
        return stream.getvalue()


def _line(words: Sequence[str]) -> str:
    return '| ' + ' | '.join(words) + ' |'


def text(value: Value) -> str:
    """Return a value as it reads in a table; an unknown one is a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return '-'
    if isinstance(value, int):
        return f'{value:,}'
    if isinstance(value, float):
        return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'
    return value


STAGE_HEADER = (
    *('method', 'stage', 'seeds', 'published', 'ours', 'ours / published'),
    *('published / STL tune', 'ours / STL tune', 'success'),
)


def stage_table(group: SuiteRuns) -> Table:
    """Return the four bars of each method next to the published ones."""
    rows: list[tuple[Value, ...]] = []
    base_published = published(group.suite, ALONE, TUNE)
    base_theirs = base_published.mean if base_published else None
    for label in group.methods:
        seeds = group.paired_seeds(label)
        base = group.stage(ALONE, TUNE, seeds) if seeds else None
        for stage, ours_stage in PUBLISHED_STAGE.items():
            ours, theirs = group.stage(label, ours_stage), published(group.suite, label, stage)
            if ours is None and theirs is None:
                continue
            our_mean, their_mean = ours.value if ours else None, theirs.mean if theirs else None
            paired = group.stage(label, ours_stage, seeds)
            row: tuple[Value, ...] = (
                *(display_name(label), named(stage)),
                _seeds([run.seed for run in group.methods[label]]),
                *(str(theirs or '-'), str(ours or '-')),
                *(_ratio(our_mean, their_mean), _ratio(their_mean, base_theirs)),
                _ratio(paired.value, base.value) if paired and base else None,
                group.stage_success(label, ours_stage),
            )
            rows.append(row)
    title = 'Start, tune, update, final'
    return Table(f'{group.suite}-stages', title, STAGE_HEADER, tuple(rows))


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or not b > 0.0 else a / b


def measure_table(group: SuiteRuns) -> Table:
    """Return the measures of lifelong learning, one row per method."""
    k = group.columns
    rows: list[tuple[Value, ...]] = []
    for label, runs in group.methods.items():
        versus = label != ALONE and any(group.transfers(label))
        wins = '{} of {}'.format(*group.tasks_above(label, k)) if versus else None
        rows.append(
            (
                display_name(label),
                len(runs),
                _over(runs, average_performance),
                _over(runs, forgetting),
                _over(runs, backward_transfer),
                _over(runs, retention),
                str(group.forward_transfer(label)) if versus else None,
                str(group.forward_transfer(label, k)) if versus else None,
                str(group.improvement(label, k)) if versus else None,
                wins,
                group.speed_up(label, k) if versus else None,
                _steps(group.ahead_for_good(label)) if versus else None,
            )
        )
    header = (
        *('method', 'seeds', 'average performance', 'forgetting', 'backward transfer'),
        *('retention', 'forward transfer, all', f'forward transfer, after {k}'),
        *(f'P(area > STL), after {k}', f'tasks above STL, after {k}', f'speed-up, after {k}'),
        'ahead of STL from step',
    )
    return Table(f'{group.suite}-measures', 'Lifelong learning', header, tuple(rows))


def _steps(value: float) -> str | None:
    """Return a number of steps; a lead that never came is a word."""
    if math.isnan(value):
        return None
    return 'never' if math.isinf(value) else f'{value:,.0f}'


def _over(runs: Sequence[RunData], measure: Callable[[RunData], float | None]) -> float | None:
    values = [value for run in runs if (value := measure(run)) is not None]
    return float(sum(values) / len(values)) if values else None


def cost_table(group: SuiteRuns) -> Table:
    """Return what each run cost, and its speed split by phase."""
    rows: list[tuple[Value, ...]] = []
    for run in group.all_runs:
        cost = ledger(run)
        rows.append(
            (
                display_name(run.label),
                str(run.seed),
                'finished' if run.finished else 'running',
                cost.tasks,
                cost.parameters,
                cost.bytes_per_task,
                cost.steps,
                round(cost.minutes, 2),
                *(round(cost.seconds[phase], 1) for phase in PHASES),
                cost.steps_per_second,
                cost.sampling_steps_per_second,
                cost.end_to_end_share,
            )
        )
    header = (
        *('method', 'seed', 'state', 'tasks', 'parameters', 'bytes / task', 'steps', 'minutes'),
        *(f'{phase} s' for phase in PHASES),
        *('steps/s end to end', 'steps/s sampling', 'end to end / sampling'),
    )
    return Table(f'{group.suite}-cost', 'Cost', header, tuple(rows))


def step_table(group: SuiteRuns) -> Table:
    """Return the mean over all iterations of every measure a run wrote down, one row per run."""
    runs = [run for run in group.all_runs if run.iterations]
    names = dict.fromkeys(name for run in runs for row in run.iterations for name in row.measures)
    rows: list[tuple[Value, ...]] = []
    for run in runs:
        found = [[row.measures[n] for row in run.iterations if n in row.measures] for n in names]
        means = (float(np.mean(values)) if values else None for values in found)
        rows.append((display_name(run.label), str(run.seed), *means))
    header = ('method', 'seed', *names)
    return Table(
        f'{group.suite}-steps', 'What a step did, mean per iteration', header, tuple(rows)
    )


def check_table(group: SuiteRuns) -> Table:
    """Return the paper's claims and what these runs say about them."""
    rows = tuple(
        (check.claim, interval(check.measured), _seeds(check.seeds), check.verdict)
        for check in checks(group)
    )
    header = ('claim', 'measured here (95 % interval)', 'seeds', 'verdict')
    return Table(f'{group.suite}-claims', 'Claims of the paper', header, rows)


def _seeds(seeds: Sequence[int]) -> str:
    return ', '.join(map(str, seeds))


EARLY = 50
"""Iterations of STL that count for the area at the start of a task."""
OVERVIEW_HEADER = (
    *('domain', 'method', 'seeds', 'area gained over STL', 'areas summed / STL'),
    *(f'gained, first {EARLY} iterations', f'summed, first {EARLY} iterations'),
    *('area of the lifetime / STL', 'tune / STL', 'final / tune', 'success (STL)', 'steps / STL'),
)


def overview_table(groups: Sequence[SuiteRuns], links: Mapping[str, str]) -> Table:
    """Return one row per domain and method: what it gains over learning alone, and keeps.

    `links` gives for a suite the place of the commands behind its numbers.
    """
    rows = [
        _overview_row(group, label, links.get(group.suite, ''))
        for group in groups
        for label in group.methods
        if label != ALONE and group.pairs(label)
    ]
    return Table('overview', 'Overview', OVERVIEW_HEADER, tuple(rows))


def _overview_row(group: SuiteRuns, label: str, link: str) -> tuple[Value, ...]:
    k, seeds, steps = group.columns, group.paired_seeds(label), group.step_ratio(label)
    ours, alone = (group.stage_success(name, TUNE, seeds) for name in (label, ALONE))
    both = None if ours is None or alone is None else f'{ours:.2f} ({alone:.2f})'
    longer = any(row.iteration >= EARLY for _, stl in group.pairs(label) for row in stl.iterations)
    return (
        f'[{group.suite}]({link})' if link else group.suite,
        display_name(label),
        _seeds(seeds),
        percent(group.forward_transfer(label, k)),
        interval(group.area_ratio(label, k)),
        percent(group.forward_transfer(label, k, EARLY)) if longer else None,
        interval(group.area_ratio(label, k, EARLY)) if longer else None,
        group.lifetime_ratio(label),
        interval(group.tune_ratio(label)),
        interval(group.retention(label)),
        both,
        None if math.isnan(steps) else f'{steps:.3f}',
    )


CONTINUAL_WORLD = {
    'PackNet': (0.80, 0.00, 0.18),
    'ClonEx-SAC': (0.87, None, 0.54),
}
"""Published on CW20 with SAC, one million steps a task: performance, forgetting, transfer."""


def continual_world_table(group: SuiteRuns) -> Table:
    """Return Continual World's own measures of success, beside figures published for CW20."""
    rows: list[tuple[Value, ...]] = []
    for label, runs in group.methods.items():
        gains = [t.forward_success for life in group.transfers(label) for t in life]
        known = [gain for gain in gains if not math.isnan(gain)]
        transfer = float(np.mean(known)) if known and label != ALONE else None
        kept = group.stage_success(label, FINAL), _over(runs, lost_success)
        rows.append((display_name(label), len(runs), *kept, transfer))
    rows += [(f'{name}, published', None, *values) for name, values in CONTINUAL_WORLD.items()]
    header = ('method', 'seeds', 'average performance', 'forgetting', 'forward transfer')
    name = f'{group.suite}-continual-world'
    return Table(name, "Continual World's measures", header, tuple(rows))


TASK_HEADER = (
    *('task', *SHOWN, 'STL tune', 'tune / STL', 'area / STL'),
    *('speed-up', 'success tune', 'success final', 'STL success'),
)


def task_table(group: SuiteRuns, label: str) -> Table:
    """Compare each task of a method with STL, averaged over seeds."""
    runs = group.methods[label]
    alone = [pair[1] for pair in group.pairs(label)] if label != ALONE else []
    transfers = [t for life in group.transfers(label) for t in life] if alone else []
    rows: list[tuple[Value, ...]] = []
    for task in tasks_in_order(runs):
        tune, tune_alone = _mean(runs, task, TUNE), _mean(alone, task, TUNE)
        found = [t for t in transfers if t.task == task]
        area, area_alone = (
            float(np.mean([getattr(t, name) for t in found])) if found else math.nan
            for name in ('area', 'area_alone')
        )
        rows.append(
            (
                task,
                *(_mean(runs, task, stage) for stage in SHOWN),
                tune_alone,
                tune / tune_alone if tune_alone > 0.0 else None,
                area / area_alone if area_alone > 0.0 else None,
                _median([t.speed_up for t in found]),
                _mean(runs, task, TUNE, success=True),
                _mean(runs, task, FINAL, success=True),
                _mean(alone, task, TUNE, success=True),
            )
        )
    title = f'{display_name(label)}, task by task'
    return Table(f'{group.suite}-tasks-{label}', title, TASK_HEADER, tuple(rows))


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else None


def tasks_in_order(runs: Sequence[RunData]) -> tuple[str, ...]:
    """Return all tasks in the order of the first run, then those only others have."""
    return tuple(dict.fromkeys(result.task for run in runs for result in run.tasks))


def _mean(runs: Sequence[RunData], task: str, stage: str, *, success: bool = False) -> float:
    values = []
    for run in runs:
        for result in run.tasks:
            if result.task == task and stage in result.scores:
                score = result.scores[stage]
                values.append(score.success if success else score.mean_return)
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else math.nan


def matrix_table(run: RunData) -> Table | None:
    """Return the K x K matrix: return of each task after each visit; None if not measured."""
    if run.matrix is None:
        return None
    tasks = tasks_in_order([run])[: run.matrix.shape[1]]
    rows: list[tuple[Value, ...]] = []
    for i, values in enumerate(run.matrix):
        rows.append((f'{i + 1}: {run.tasks[i].task}', *(float(value) for value in values)))
    name = f'{run.suite}-matrix-{run.label}-seed-{run.seed}'
    title = f'{display_name(run.label)}, seed {run.seed}: return of each task after each visit'
    return Table(name, title, ('after', *tasks), tuple(rows))
