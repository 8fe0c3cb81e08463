"""Figures of a report: learning curves, bars and maps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
import math
from pathlib import Path
import re
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np

from lpgftw_ros.experiments.explain import column_use
from lpgftw_ros.experiments.groups import display_name, NAMES, SuiteRuns
from lpgftw_ros.experiments.metrics import first_visits, held
from lpgftw_ros.experiments.run_data import Coefficients, CrossReturns, RunData
from lpgftw_ros.experiments.tables import named, published, PUBLISHED_STAGE
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.stages import TUNE, UPDATE

# One look for all figures: colour-blind safe, readable in grey, PNG and PDF.


COLOURS = {
    'lpg-ftw': '#0072B2',
    'stl': '#E69F00',
    'ewc': '#009E73',
    'ewc-h': '#56B4E9',
    'er': '#CC79A7',
    'pg-ella': '#D55E00',
}
"""Okabe-Ito colours; a method keeps its colour in every figure."""
SPARE = ('#000000', '#882255', '#999933', '#332288', '#7F7F7F', '#661100', '#AA4499', '#44AA99')
DASHES: tuple[Any, ...] = (
    '-',
    '--',
    '-.',
    (0, (3, 1, 1, 1)),
    ':',
    (0, (7, 2)),
    (0, (1, 3)),
    (0, (7, 1, 1, 1, 1, 1)),
)
"""Line styles, for readers who cannot tell the colours apart; those of the six methods first."""
COLUMN, PAGE = 3.45, 7.0
"""Inches: one column of a two-column paper, and both."""

RC: Any = {
    'figure.dpi': 100,
    'savefig.dpi': 220,
    'font.size': 8,
    'axes.titlesize': 8.5,
    'axes.labelsize': 8,
    'xtick.labelsize': 7.5,
    'ytick.labelsize': 7.5,
    'legend.fontsize': 7.5,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'axes.axisbelow': True,
    'grid.color': '#E4E4E4',
    'grid.linewidth': 0.6,
    'lines.linewidth': 1.3,
    'legend.frameon': False,
    'pdf.fonttype': 42,
    'svg.hashsalt': 'lpgftw',
}


def lines(labels: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return colour and dashes of the methods of one panel: no two share either.

    A method looks the same in every panel; variants get what is left.
    """
    known = list(COLOURS)
    found = {
        label: (COLOURS[label], DASHES[known.index(label)]) for label in labels if label in COLOURS
    }
    colours = [c for c in SPARE if c not in {colour for colour, _ in found.values()}]
    dashes = [d for d in DASHES if d not in [dash for _, dash in found.values()]]
    for i, label in enumerate(label for label in labels if label not in found):
        found[label] = colours[i % len(colours)], dashes[i % len(dashes)]
    return found


@contextmanager
def look() -> Iterator[None]:
    """Draw with the common look inside this block."""
    with matplotlib.rc_context(RC):
        yield


def new_figure(
    rows: int,
    columns: int,
    width: float,
    height: float,
    height_ratios: Sequence[float] | None = None,
    width_ratios: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes as a flat list."""
    figure = Figure(figsize=(width, height), layout='constrained')
    axes = figure.subplots(
        rows, columns, squeeze=False, height_ratios=height_ratios, width_ratios=width_ratios
    )
    return figure, list(axes.ravel())


def legend_below(figure: Figure, axis: Axes, note: str = '') -> None:
    """Put the legend of one axis below the figure, the published markers last, a note above."""
    handles, names = axis.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda i: names[i] == 'published')
    longest = max((len(name) for name in names), default=1)
    fitting = max(1, int(figure.get_figwidth() / (0.45 + 0.065 * longest)))
    rows = max(1, math.ceil(len(names) / fitting))
    legend = figure.legend(
        [handles[i] for i in order],
        [names[i] for i in order],
        loc='outside lower center',
        ncols=max(1, math.ceil(len(names) / rows)),
        title=note or None,
    )
    legend.get_title().set(fontsize=7, color='#555555')


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure as PNG and PDF; without dates, so the same data give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f'{name}.png', metadata={'Software': None})
    figure.set_layout_engine('none')  # the layout is done; doing it again is slow
    figure.savefig(folder / f'{name}.pdf', metadata={'CreationDate': None})
    return folder / f'{name}.png'


def thousands(axis: Axes) -> None:
    """Write large values of the vertical axis as 10k."""
    low, high = axis.get_ylim()
    if max(abs(low), abs(high)) >= 10_000:
        axis.yaxis.set_major_formatter(
            lambda value, _: f'{value / 1000:g}k' if abs(value) >= 1e-9 else '0'
        )


def short_number(value: float, _position: object = None) -> str:
    """Return 20000 as 20k and 1500000 as 1.5M, for ticks."""
    for size, letter in ((1e6, 'M'), (1e3, 'k')):
        if abs(value) >= size:
            return f'{value / size:g}{letter}'
    return f'{value:g}'


MOST_NAMED = 3
"""Most seeds that a title names one by one."""
MOST_METHODS = 6
"""Most curves in one panel; more cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Band:
    """A mean curve with its standard error."""

    mean: Array
    error: Array
    steps: Array
    """Environment steps of one task up to and including each iteration, averaged alike."""
    n_tasks: int
    n_seeds: int

    @property
    def label(self) -> str:
        """What the band shows."""
        over = f'{self.n_seeds} seeds' if self.n_seeds > 1 else 'tasks (one seed)'
        return f'band: standard error over {over}'


TasksOf = Callable[[RunData], tuple[str, ...]]


def scored_tasks(run: RunData) -> tuple[str, ...]:
    """Return the tasks that were measured when they were learned; PG-ELLA learns all at once."""
    names = {result.task for result in run.tasks if result.scores.keys() & {TUNE, UPDATE}}
    return tuple(task for task in first_visits(run.tasks) if task in names)


def complete_tasks(run: RunData) -> tuple[str, ...]:
    """Return the tasks whose training has ended; if none has, all that have begun."""
    ended = {result.task for result in run.tasks if TUNE in result.scores}
    begun = {row.task for row in run.iterations}
    return tuple(task for task in first_visits(run.tasks) if task in ((ended & begun) or begun))


@dataclass(frozen=True, slots=True)
class Panel:
    """Methods that can be averaged over the same cells."""

    name: str
    """Suffix of the figure's name; empty for the main one."""
    methods: Mapping[str, tuple[RunData, ...]]
    tasks: Mapping[int, tuple[str, ...]]
    """Seed to the tasks every method has learned with it."""

    def runs_of(self, suite: str) -> SuiteRuns:
        """Return the runs of this panel with nothing but the tasks they share."""
        methods = {
            label: tuple(run.only(self.tasks[run.seed]) for run in runs)
            for label, runs in self.methods.items()
        }
        return SuiteRuns(suite, methods)

    def after(self, position: int) -> dict[int, tuple[str, ...]]:
        """Return the tasks met from a position of the sequence on."""
        found = {}
        for seed, tasks in self.tasks.items():
            runs = [run for runs in self.methods.values() for run in runs if run.seed == seed]
            order = list(first_visits(runs[0].tasks))
            found[seed] = tuple(task for task in tasks if order.index(task) >= position)
        return found


def panels(group: SuiteRuns, tasks_of: TasksOf = complete_tasks) -> Iterator[Panel]:
    """Yield what can be drawn together: per family of methods and set of seeds, six at a time.

    `tasks_of` says which tasks of a run can be drawn; a run that has none is left out.
    """
    for family, labels in families(group.methods).items():
        runs = {m: tuple(r for r in group.methods[m] if tasks_of(r)) for m in labels}
        seeds = {m: frozenset(r.seed for r in found) for m, found in runs.items() if found}
        for wanted in sorted(set(seeds.values()), key=lambda s: (-len(s), sorted(s))):
            members = [m for m in seeds if wanted <= seeds[m]]
            if len(members) == 1 and len(seeds) > 1 and len(set(seeds.values())) > 1:
                continue  # nothing to compare with
            largest = wanted == max(seeds.values(), key=len)
            which = '' if largest else '-seed-' + '-'.join(map(str, sorted(wanted)))
            for part in range(0, len(members), MOST_METHODS):
                chosen = {
                    m: tuple(r for r in runs[m] if r.seed in wanted)
                    for m in members[part : part + MOST_METHODS]
                }
                number = f'-{part // MOST_METHODS + 1}' if part else ''
                tasks = _common_tasks(chosen, tasks_of)
                if any(tasks.values()):
                    yield Panel(f'{family}{which}{number}', chosen, tasks)


def families(labels: Sequence[str] | Mapping[str, object]) -> dict[str, list[str]]:
    """Arrange methods: the six of the paper, then each with its variants of one kind."""
    found: dict[str, list[str]] = {'': [label for label in labels if label in NAMES]}
    for label in labels:
        if label in NAMES:
            continue
        base = max((name for name in NAMES if label.startswith(f'{name}-')), key=len, default='')
        variant = label[len(base) + 1 :] if base else label
        kind = 'weights' if re.fullmatch('w[0-9].*', variant) else 'variants'
        members = found.setdefault(f'-{base or "other"}-{kind}', [base] if base in labels else [])
        members.append(label)
    return {family: members for family, members in found.items() if members}


def _common_tasks(
    methods: Mapping[str, Sequence[RunData]], tasks_of: TasksOf
) -> dict[int, tuple[str, ...]]:
    """Return per seed the tasks that all methods have."""
    found: dict[int, tuple[str, ...]] = {}
    for runs in methods.values():
        for run in runs:
            tasks = tasks_of(run)
            known = found.get(run.seed, tasks)
            found[run.seed] = tuple(task for task in known if task in tasks)
    return found


def band(
    runs: Sequence[RunData], tasks: Mapping[int, tuple[str, ...]], field: str, length: int
) -> Band | None:
    """Average a field of the first iterations over tasks, then over seeds."""
    per_seed = [
        (curves, _curves(run, tasks.get(run.seed, ()), 'steps', length))
        for run in runs
        if len(curves := _curves(run, tasks.get(run.seed, ()), field, length))
    ]
    if not per_seed:
        return None
    length = min(curves.shape[1] for curves, _ in per_seed)
    means = np.stack([curves[:, :length].mean(axis=0) for curves, _ in per_seed])
    taken = np.stack([steps[:, :length].mean(axis=0) for _, steps in per_seed])
    spread = means if len(means) > 1 else per_seed[0][0][:, :length]
    return Band(
        mean=means.mean(axis=0),
        error=spread.std(axis=0) / np.sqrt(len(spread)),
        steps=np.cumsum(taken.mean(axis=0)),
        n_tasks=max(len(curves) for curves, _ in per_seed),
        n_seeds=len(per_seed),
    )


def longest(runs: Sequence[RunData], tasks: Mapping[int, tuple[str, ...]]) -> int:
    """Return the iterations of the longest visit."""
    found = [
        len(run.rows(visit))
        for run in runs
        for task, visit in first_visits(run.tasks).items()
        if task in tasks.get(run.seed, ())
    ]
    return max(found, default=0)


def _curves(run: RunData, tasks: Sequence[str], field: str, length: int) -> Array:
    """Return the curves of tasks, as long as the shortest; ended ones hold what they reached."""
    results = {result.visit: result for result in run.tasks}
    visits = first_visits(run.tasks)
    curves = []
    for task in tasks:
        if task not in visits or not (rows := run.rows(visits[task])):
            continue
        curve = [getattr(row, field) for row in rows[:length]]
        if (end := held(run, results[visits[task]])) is not None:
            level = {'return_mean': end.mean_return, 'success': end.success or 0.0}
            curve += [level.get(field, curve[-1])] * (length - len(curve))
        curves.append(curve)
    shortest = min(map(len, curves), default=0)
    return np.array([curve[:shortest] for curve in curves]).reshape(len(curves), shortest)


def plot_curves(group: SuiteRuns, folder: Path) -> tuple[Path, ...]:
    """Draw return (and success, if any) over iterations: all tasks, and those after k."""
    return tuple(_plot_panel(group, panel, folder) for panel in panels(group))


def _plot_panel(group: SuiteRuns, panel: Panel, folder: Path) -> Path:
    fields = ['return_mean']
    runs = [run for found in panel.methods.values() for run in found]
    if any(row.success > 0.0 for run in runs for row in run.iterations):
        fields.append('success')
    k = group.columns
    parts = [(panel.after(0), 'all tasks')]
    if k and any(panel.after(k).values()):
        parts.append((panel.after(k), f'tasks after the first {k}'))
    width = COLUMN if len(parts) == 1 else PAGE
    figure, axes = new_figure(len(fields), len(parts), width, 2.2 * len(fields) + 0.9, None, None)
    lengths = [n for found in panel.methods.values() if (n := longest(found, panel.tasks))]
    length, bands = min(lengths, default=0), []
    for index, axis in enumerate(axes):
        field, (tasks, title) = fields[index // len(parts)], parts[index % len(parts)]
        bands += _draw(axis, panel.methods, tasks, field, length, top=index < len(parts))
        if index < len(parts):
            axis.set_title(f'{title} ({_count(tasks)})')
        if index % len(parts) == 0:
            axis.set_ylabel('return' if field == 'return_mean' else 'success rate')
        if index >= len(axes) - len(parts):
            axis.set_xlabel('iteration')
    legend_below(figure, axes[0], '; '.join(dict.fromkeys(b.label for b in bands)))
    figure.suptitle(f'{group.suite}: learning curves', fontweight='bold')
    return save(figure, folder, f'{group.suite}-curves{panel.name}')


def _draw(
    axis: Axes,
    methods: Mapping[str, tuple[RunData, ...]],
    tasks: Mapping[int, tuple[str, ...]],
    field: str,
    length: int,
    top: bool,
) -> list[Band]:
    """Draw one panel; return the bands in it."""
    looks, drawn = lines(list(methods)), []
    for label, runs in methods.items():
        found = band(runs, tasks, field, length)
        if found is None:
            continue
        drawn.append(found)
        x, (colour, dash) = np.arange(len(found.mean)), looks[label]
        axis.plot(x, found.mean, color=colour, linestyle=dash, label=_name(label, runs))
        low, high = found.mean - found.error, found.mean + found.error
        axis.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
    if field == 'success':
        axis.set_ylim(-0.03, 1.03)
    else:
        thousands(axis)
    if top and drawn:
        _add_steps(axis, drawn)
    return drawn


def _add_steps(axis: Axes, drawn: Sequence[Band]) -> None:
    """Add environment steps per task as a second axis, for the mean of the methods drawn."""
    length = min(len(found.steps) for found in drawn)
    steps = np.mean([found.steps[:length] for found in drawn], axis=0)
    rates = [found.steps[length - 1] / length for found in drawn]
    per_iteration = float(steps[-1]) / length
    if not per_iteration > 0.0:
        return

    def to_steps(x: Any) -> Any:
        return x * per_iteration

    def to_iterations(x: Any) -> Any:
        return x / per_iteration

    second = axis.secondary_xaxis('top', functions=(to_steps, to_iterations))
    about = '' if max(rates) < 1.01 * min(rates) else ', mean of the methods'
    second.set_xlabel(f'environment steps per task{about}')
    second.xaxis.set_major_formatter(short_number)


def _count(tasks: Mapping[int, tuple[str, ...]]) -> str:
    """Return how many tasks a panel averages, and which seeds, in words."""
    sizes = sorted({len(names) for names in tasks.values()})
    span = str(sizes[0]) if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'
    if len(tasks) > MOST_NAMED:
        return f'{span} tasks, {len(tasks)} seeds'
    seeds = ', '.join(map(str, sorted(tasks)))
    return f'{span} tasks, seed{"s" if len(tasks) > 1 else ""} {seeds}'


def _name(label: str, runs: Sequence[RunData]) -> str:
    running = '' if all(run.finished for run in runs) else ' (running)'
    return display_name(label) + running


def plot_bars(group: SuiteRuns, folder: Path) -> tuple[Path, ...]:
    """Draw the four bars of each method, as the curves: the same seeds and tasks in a figure."""
    return tuple(_plot_bars(group.suite, panel, folder) for panel in panels(group, scored_tasks))


def _plot_bars(suite: str, panel: Panel, folder: Path) -> Path:
    """Draw one figure; success below where any task knows it."""
    group, labels = panel.runs_of(suite), list(panel.methods)
    successes = any(
        group.stage_success(label, stage) is not None
        for label in labels
        for stage in PUBLISHED_STAGE.values()
    )
    rows = 2 if successes else 1
    width = COLUMN if len(labels) <= 3 else PAGE
    figure, axes = new_figure(rows, 1, width, 2.0 * rows + 0.9)
    _draw_returns(axes[0], group, labels)
    axes[0].set_title(_count(panel.tasks))
    if successes:
        _draw_success(axes[1], group, labels)
    seeds = len(panel.tasks)
    legend_below(figure, axes[0], f'error bars: standard error over {seeds} seeds' * (seeds > 1))
    figure.suptitle(f'{suite}: average over tasks', fontweight='bold')
    return save(figure, folder, f'{suite}-bars{panel.name}')


def _positions(labels: list[str], index: int) -> tuple[list[float], float]:
    width = 0.8 / len(labels)
    offset = (index - (len(labels) - 1) / 2) * width
    return [stage + offset for stage in range(len(PUBLISHED_STAGE))], width


def _draw_returns(axis: Axes, group: SuiteRuns, labels: list[str]) -> None:
    theirs_drawn = False
    for index, label in enumerate(labels):
        positions, width = _positions(labels, index)
        colour, named = lines(labels)[label][0], False
        for x, (stage, ours_stage) in zip(positions, PUBLISHED_STAGE.items(), strict=True):
            mean = group.stage(label, ours_stage)
            if mean is not None:
                name = None if named else display_name(label)
                axis.bar(x, mean.value, 0.92 * width, color=colour, label=name)
                named = True
                if mean.n > 1:
                    axis.errorbar(x, mean.value, mean.error, color='#222222', capsize=2, lw=1)
            theirs = published(group.suite, label, stage)
            if theirs is not None and theirs.mean == theirs.mean and _near(group, theirs.mean):
                name = None if theirs_drawn else 'published'
                axis.errorbar(
                    *(x, theirs.mean, theirs.standard_error or 0.0),
                    marker='D',
                    markersize=5,
                    markerfacecolor='white',
                    markeredgecolor='#222222',
                    ecolor='#222222',
                    linestyle='none',
                    label=name,
                )
                theirs_drawn = True
    axis.axhline(0.0, color='#888888', lw=0.8)
    _finish(axis, 'return')
    thousands(axis)


def _near(group: SuiteRuns, value: float) -> bool:
    """Return False for published values of diverged runs, which would hide all others."""
    ours = [group.stage(m, s) for m in group.methods for s in PUBLISHED_STAGE.values()]
    largest = max((abs(mean.value) for mean in ours if mean is not None), default=0.0)
    return abs(value) <= 10.0 * max(largest, 1000.0)


def _draw_success(axis: Axes, group: SuiteRuns, labels: list[str]) -> None:
    for index, label in enumerate(labels):
        positions, width = _positions(labels, index)
        for x, stage in zip(positions, PUBLISHED_STAGE.values(), strict=True):
            success = group.stage_success(label, stage)
            if success is not None:
                axis.bar(x, success, 0.92 * width, color=lines(labels)[label][0])
    axis.set_ylim(0.0, 1.05)
    _finish(axis, 'success rate')


def _finish(axis: Axes, name: str) -> None:
    axis.set_ylabel(name)
    names = [named(stage).replace(', ', ',\n') for stage in PUBLISHED_STAGE]
    axis.set_xticks(range(len(PUBLISHED_STAGE)), names)
    axis.set_xlim(-0.55, len(PUBLISHED_STAGE) - 0.45)
    axis.grid(visible=False, axis='x')


MOST_LABELS = 24
"""Up to this many rows, cells show their number and rows their task's name in full size."""
MOST_COLUMNS = 5
"""Cells that fit next to each other into one column of a paper."""


def plot_coefficients(found: Coefficients, folder: Path, name: str, title: str) -> Path | None:
    """Draw S as a heat map with the use of each column above it."""
    n, k = found.values.shape
    if n == 0 or k == 0:
        return None
    height = max(1.2, 0.27 * n)
    width = COLUMN if k <= MOST_COLUMNS else PAGE
    figure, (use, heat) = new_figure(2, 1, width, 2.1 + height, (1.0, height))
    shares = column_use(found.values)
    use.bar(range(k), shares, color=COLOURS['lpg-ftw'], width=0.8)
    for column, share in enumerate(shares):
        use.text(column, share, f'{share:.0%}', ha='center', va='bottom', fontsize=8)
    use.set(xlim=(-0.5, k - 0.5), xticks=[], ylabel='use', ylim=(0, max(shares) * 1.3 + 1e-9))
    use.grid(visible=False)
    limit = float(np.abs(found.values).max()) or 1.0
    image = heat.imshow(found.values, cmap='RdBu_r', vmin=-limit, vmax=limit, aspect='auto')
    _label_cells(heat, found.values, limit)
    heat.set_xticks(range(k), [str(column + 1) for column in range(k)])
    heat.set_yticks(range(n), found.tasks, fontsize=8 if n <= MOST_LABELS else 5)
    heat.set_xlabel('column of L')
    heat.grid(visible=False)
    figure.colorbar(image, ax=heat, label='s times column norm', shrink=0.9)
    figure.suptitle(title, fontweight='bold')
    return save(figure, folder, name)


def _label_cells(axis: Axes, values: Array, limit: float) -> None:
    if len(values) > MOST_LABELS:
        return
    for (i, j), value in np.ndenumerate(values):
        dark = abs(value) > 0.6 * limit
        axis.text(
            *(j, i, f'{value:.2g}'),
            ha='center',
            va='center',
            fontsize=7,
            color='white' if dark else '#333333',
        )


def plot_matrix(run: RunData, folder: Path) -> Path | None:
    """Draw the return of every task after every visit, each task on its own scale."""
    assert run.matrix is not None
    n, k = run.matrix.shape
    tasks = list(dict.fromkeys(result.task for result in run.tasks))[:k]
    with np.errstate(invalid='ignore'):
        low, high = np.nanmin(run.matrix, axis=0), np.nanmax(run.matrix, axis=0)
    shades = 1.0 - (high - run.matrix) / np.where(high > low, high - low, 1.0)
    width = COLUMN if k <= MOST_COLUMNS else PAGE
    figure, (axis,) = new_figure(1, 1, width, 1.5 + max(1.2, 0.2 * n))
    image = axis.imshow(shades, cmap='viridis', vmin=0, vmax=1, aspect='auto')
    size = 7 if n <= MOST_LABELS else 5
    axis.set_xticks(range(k), tasks, rotation=90, fontsize=size)
    axis.set_yticks(
        range(n), [f'{i + 1}: {r.task}' for i, r in enumerate(run.tasks)], fontsize=size
    )
    axis.set(xlabel='return of', ylabel='after learning')
    axis.grid(visible=False)
    for (i, j), value in np.ndenumerate(run.matrix):
        if n <= MOST_LABELS and np.isfinite(value):
            axis.text(
                *(j, i, short_number(float(f'{value:.3g}'))),
                ha='center',
                va='center',
                fontsize=5.5,
                color='white' if shades[i, j] < 0.6 else '#222222',
            )
    bar = figure.colorbar(image, ax=axis, shrink=0.8, ticks=[0, 1])
    bar.ax.set_yticklabels(["task's\nlowest", 'highest'], fontsize=6.5)
    figure.suptitle(f'{run.suite}: {display_name(run.label)}, seed {run.seed}', fontweight='bold')
    return save(figure, folder, f'{run.suite}-matrix-{run.label}-seed-{run.seed}')


def plot_diversity(found: CrossReturns, folder: Path, name: str, title: str) -> Path | None:
    """Draw the relative return of each policy on each task, and the gap per task."""
    n = len(found.tasks)
    if n < 2:
        return None
    order = sorted(range(n), key=lambda i: found.tasks[i])
    names = [found.tasks[i] for i in order]
    own = np.diag(found.returns)
    relative = (found.returns / np.where(own > 0.0, own, np.nan))[np.ix_(order, order)].T
    height = 1.4 + min(4.2, max(1.6, 0.2 * n))
    figure, axes = new_figure(1, 2, PAGE, height, width_ratios=(2.6, 1.0))
    _draw_cross(axes[0], relative, names)
    _draw_gaps(axes[1], found.gaps()[order])
    figure.suptitle(title, fontweight='bold')
    return save(figure, folder, name)


def _draw_cross(axis: Axes, relative: Array, names: list[str]) -> None:
    """Rows are tasks, columns the policies run on them."""
    image = axis.imshow(relative, cmap='viridis', vmin=0.0, vmax=1.0, aspect='auto')
    size = 8 if len(names) <= MOST_LABELS else 5
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axis.set_yticks(range(len(names)), names, fontsize=size)
    axis.set(xlabel='policy learned alone on', ylabel='task')
    axis.grid(visible=False)
    bar = axis.figure.colorbar(image, ax=axis, location='left', extend='both', shrink=0.8)
    bar.set_label("return / own policy's")


def _draw_gaps(axis: Axes, gaps: Array) -> None:
    n, known = len(gaps), gaps[np.isfinite(gaps)]
    axis.barh(range(n), 100.0 * gaps, color=COLOURS['lpg-ftw'], height=0.75)
    axis.set_yticks([])
    axis.set_ylim(n - 0.5, -0.5)  # rows line up with those of the map
    axis.set_xlabel("loss with others' policies, %")
    if len(known):
        mean = 100.0 * float(known.mean())
        axis.set_title(f'mean {mean:.0f} %')
        axis.axvline(mean, color='#222222', lw=1, ls='--')
    axis.grid(visible=False, axis='y')
