"""Tables with one row per task."""

from collections.abc import Sequence
import math

import numpy as np

from lpgftw_ros.experiments.groups import ALONE, display_name, SuiteRuns
from lpgftw_ros.experiments.run_data import RunData
from lpgftw_ros.experiments.tables import Table, Value

TASK_HEADER = (
    *('task', 'start', 'tune', 'update', 'final', 'STL tune', 'tune / STL', 'area / STL'),
    *('speed-up', 'success tune', 'success final', 'STL success'),
)


def task_table(group: SuiteRuns, label: str) -> Table:
    """Return each task of a method beside STL, averaged over seeds."""
    runs = group.methods[label]
    alone = [pair[1] for pair in group.pairs(label)] if label != ALONE else []
    transfers = group.transfers(label) if alone else {}
    rows: list[tuple[Value, ...]] = []
    for task in tasks_in_order(runs):
        tune, tune_alone = _mean(runs, task, 'tune'), _mean(alone, task, 'tune')
        found = transfers.get(task, [])
        area, area_alone = (
            float(np.mean([getattr(t, name) for t in found])) if found else math.nan
            for name in ('area', 'area_alone')
        )
        rows.append(
            (
                task,
                _mean(runs, task, 'start'),
                tune,
                _mean(runs, task, 'update'),
                _mean(runs, task, 'final'),
                tune_alone,
                tune / tune_alone if tune_alone > 0.0 else None,
                area / area_alone if area_alone > 0.0 else None,
                _median([t.speed_up for t in found]),
                _mean(runs, task, 'tune', success=True),
                _mean(runs, task, 'final', success=True),
                _mean(alone, task, 'tune', success=True),
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
