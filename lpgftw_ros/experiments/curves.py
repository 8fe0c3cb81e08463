"""Learning curves: mean over tasks, band over seeds (or over tasks with one seed)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
import numpy as np

from lpgftw_ros.experiments import style
from lpgftw_ros.experiments.groups import display_name, SuiteRuns
from lpgftw_ros.experiments.metrics import first_visits
from lpgftw_ros.experiments.run_data import Iteration, RunData
from lpgftw_ros.learning.arrays import Array


@dataclass(frozen=True, slots=True)
class Band:
    """A mean curve with its standard error."""

    mean: Array
    error: Array
    n_tasks: int
    n_seeds: int


def complete_tasks(run: RunData) -> tuple[str, ...]:
    """Return the tasks whose training has ended; all begun ones if none has."""
    ended = {result.task for result in run.tasks if 'tune' in result.scores}
    begun = {row.task for row in run.iterations}
    return tuple(task for task in first_visits(run.tasks) if task in ((ended & begun) or begun))


def common_tasks(group: SuiteRuns, after: int = 0) -> dict[int, tuple[str, ...]]:
    """Return per seed the tasks all methods with curves have learned, from a position on."""
    found: dict[int, tuple[str, ...]] = {}
    for run in group.all_runs:
        if not run.iterations:
            continue
        tasks = complete_tasks(run)
        order = list(first_visits(run.tasks))
        if run.seed not in found:
            found[run.seed] = tuple(t for t in tasks if order.index(t) >= after)
        found[run.seed] = tuple(task for task in found[run.seed] if task in tasks)
    return found


def band(runs: Sequence[RunData], tasks: dict[int, tuple[str, ...]], field: str) -> Band | None:
    """Average a field of the iterations over tasks, then over seeds."""
    per_seed = [
        curves for run in runs if len(curves := _curves(run, tasks.get(run.seed, ()), field))
    ]
    if not per_seed:
        return None
    length = min(curves.shape[1] for curves in per_seed)
    means = np.stack([curves[:, :length].mean(axis=0) for curves in per_seed])
    spread = means if len(means) > 1 else per_seed[0][:, :length]
    return Band(
        mean=means.mean(axis=0),
        error=spread.std(axis=0) / np.sqrt(len(spread)),
        n_tasks=max(len(curves) for curves in per_seed),
        n_seeds=len(per_seed),
    )


def _curves(run: RunData, tasks: Sequence[str], field: str) -> Array:
    visits = first_visits(run.tasks)
    rows: list[tuple[Iteration, ...]] = [run.rows(visits[t]) for t in tasks if t in visits]
    rows = [curve for curve in rows if curve]
    if not rows:
        return np.empty((0, 0))
    length = min(len(curve) for curve in rows)
    return np.array([[getattr(row, field) for row in curve[:length]] for curve in rows])


def plot_curves(group: SuiteRuns, folder: Path) -> Path | None:
    """Draw return (and success, if any) over iterations: all tasks, and those after k."""
    fields = ['return_mean']
    if any(row.success > 0.0 for run in group.all_runs for row in run.iterations):
        fields.append('success')
    k = group.columns
    parts = [(0, 'all tasks')]
    if k and any(common_tasks(group, k).values()):
        parts.append((k, f'tasks after the first {k}'))
    if not any(common_tasks(group).values()):
        return None
    figure, axes = style.new_figure(
        len(fields), len(parts), 4.6 * len(parts) + 0.4, 3.1 * len(fields) + 0.4
    )
    for index, axis in enumerate(axes):
        field, (after, title) = fields[index // len(parts)], parts[index % len(parts)]
        _draw(axis, group, after, field)
        if index < len(parts):
            axis.set_title(f'{title} ({_count(common_tasks(group, after))})')
        if index % len(parts) == 0:
            axis.set_ylabel('return' if field == 'return_mean' else 'success rate')
        if index >= len(axes) - len(parts):
            axis.set_xlabel('iteration')
    style.legend_below(figure, axes[0])
    figure.suptitle(f'{group.suite}: learning curves', fontweight='bold')
    return style.save(figure, folder, f'{group.suite}-curves')


def _draw(axis: Axes, group: SuiteRuns, after: int, field: str) -> None:
    tasks = common_tasks(group, after)
    for index, (label, runs) in enumerate(group.methods.items()):
        found = band(runs, tasks, field)
        if found is None:
            continue
        x, colour = np.arange(len(found.mean)), style.colour(label, index)
        axis.plot(
            x, found.mean, color=colour, linestyle=style.line(label), label=_name(label, runs)
        )
        axis.fill_between(
            x, found.mean - found.error, found.mean + found.error, color=colour, alpha=0.18, lw=0
        )
    if field == 'success':
        axis.set_ylim(-0.03, 1.03)
    else:
        style.thousands(axis)


def _count(tasks: dict[int, tuple[str, ...]]) -> str:
    """Say how many tasks and seeds a panel averages."""
    sizes = sorted({len(names) for names in tasks.values()})
    span = str(sizes[0]) if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'
    seeds = f', {len(tasks)} seeds' if len(tasks) > 1 else ''
    return f'{span}{seeds}'


def _name(label: str, runs: Sequence[RunData]) -> str:
    running = '' if all(run.finished for run in runs) else ' (running)'
    return display_name(label) + running
