"""Tables of a report, as Markdown and CSV."""

from collections.abc import Callable, Sequence
import csv
from dataclasses import dataclass
import io
import math

from lpgftw_ros.experiments.checks import checks
from lpgftw_ros.experiments.groups import ALONE, display_name, SuiteRuns
from lpgftw_ros.experiments.ledger import ledger, PHASES
from lpgftw_ros.experiments.metrics import (
    average_performance,
    backward_transfer,
    forgetting,
    retention,
)
from lpgftw_ros.experiments.published import named, published, PUBLISHED_STAGE
from lpgftw_ros.experiments.run_data import RunData

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
    *('method', 'stage', 'published', 'ours', 'ours / published'),
    *('published / STL tune', 'ours / STL tune', 'success'),
)


def stage_table(group: SuiteRuns) -> Table:
    """Return the four bars of each method beside the published ones."""
    rows: list[tuple[Value, ...]] = []
    base = group.stage(ALONE, 'tune') if ALONE in group.methods else None
    base_mean = base.value if base else None
    base_published = published(group.suite, ALONE, 'tune')
    base_theirs = base_published.mean if base_published else None
    for label in group.methods:
        for stage, ours_stage in PUBLISHED_STAGE.items():
            ours, theirs = group.stage(label, ours_stage), published(group.suite, label, stage)
            if ours is None and theirs is None:
                continue
            our_mean, their_mean = ours.value if ours else None, theirs.mean if theirs else None
            row: tuple[Value, ...] = (
                *(display_name(label), named(stage), str(theirs or '-'), str(ours or '-')),
                *(_ratio(our_mean, their_mean), _ratio(their_mean, base_theirs)),
                *(_ratio(our_mean, base_mean), group.stage_success(label, ours_stage)),
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
        versus = label != ALONE and bool(group.transfers(label))
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
            )
        )
    header = (
        *('method', 'seeds', 'average performance', 'forgetting', 'backward transfer'),
        *('retention', 'forward transfer, all', f'forward transfer, after {k}'),
        *(f'P(area > STL), after {k}', f'tasks above STL, after {k}', f'speed-up, after {k}'),
    )
    return Table(f'{group.suite}-measures', 'Lifelong learning', header, tuple(rows))


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


def check_table(group: SuiteRuns) -> Table:
    """Return the paper's claims and what these runs say about them."""
    rows = tuple((check.claim, check.measured, check.verdict) for check in checks(group))
    header = ('claim', 'measured here', 'verdict')
    return Table(f'{group.suite}-claims', 'Claims of the paper', header, rows)
