"""Read run folders, finished or not, into frozen data.

Only `summary.json`, `metrics.jsonl` (or `.gz`) and `config.yaml` are read, no checkpoints.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros.experiments.run_files import (
    BadRunFolder,
    find_runs,
    metric_lines,
    read_config,
    read_summary,
)
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.stages import STAGES


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluation of one policy."""

    mean_return: float
    success: float | None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Evaluations of one visit to a task."""

    task: str
    visit: int
    iterations: int
    steps: int
    scores: Mapping[str, Score]
    """Stage to score; stages that do not apply (yet) are absent."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One line of `metrics.jsonl` of kind "iteration"."""

    visit: int
    task: str
    iteration: int
    return_mean: float
    success: float
    steps: int
    timing: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunData:
    """Everything a report needs to know about one run."""

    path: Path
    suite: str
    learner: str
    label: str
    """Name of the method in tables: the learner, or its variant (`ewc-1-3`)."""
    seed: int
    finished: bool
    tasks: tuple[TaskResult, ...]
    iterations: tuple[Iteration, ...]
    matrix: Array | None
    """Return of task j after visit i, NaN where not measured. Shape (visits, tasks)."""
    steps: int
    seconds: Mapping[str, float]
    parameters: int
    columns: int
    versions: Mapping[str, Any]
    config: Mapping[str, Any]

    def rows(self, visit: int) -> tuple[Iteration, ...]:
        """Return the training iterations of one visit."""
        return tuple(row for row in self.iterations if row.visit == visit)

    def curve(self, visit: int) -> Array:
        """Return the mean training return per iteration of one visit."""
        return np.array([row.return_mean for row in self.rows(visit)], dtype=float)


def read_run(path: Path) -> RunData:
    """Read one run folder."""
    summary = read_summary(path)
    try:
        return RunData(
            path=path,
            suite=Path(str(summary['suite'])).stem,
            learner=str(summary['learner']),
            label=_label(path, str(summary['learner'])),
            seed=int(summary['seed']),
            finished=summary['state'] == 'finished',
            tasks=tuple(_task_result(entry) for entry in summary['tasks']),
            iterations=_read_metrics(path),
            matrix=_matrix(summary.get('matrix')),
            steps=int(summary.get('steps') or 0),
            seconds={k: float(v or 0.0) for k, v in (summary.get('seconds') or {}).items()},
            parameters=int(summary.get('parameters') or 0),
            columns=int(summary.get('columns') or 0),
            versions=dict(summary.get('versions') or {}),
            config=read_config(path),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRunFolder(f"'{path}/summary.json' does not follow format 1: {error!r}") from error


def read_runs(paths: Iterable[Path]) -> tuple[RunData, ...]:
    """Read all runs at or below the paths; two of the same method, suite and seed are refused."""
    seen: dict[tuple[str, str, int], Path] = {}
    runs = tuple(read_run(path) for path in find_runs(paths))
    for run in runs:
        key = (run.suite, run.label, run.seed)
        if key in seen:
            raise BadRunFolder(
                f"'{seen[key]}' and '{run.path}' are both {run.label} on {run.suite} with seed "
                f'{run.seed}; give only one of them'
            )
        seen[key] = run.path
    return runs


def _label(path: Path, learner: str) -> str:
    """Return the variant a folder `.../<learner-variant>/seed-N` names, else the learner."""
    folder = path.resolve()
    variant = folder.name.startswith('seed-') and folder.parent.name.startswith(f'{learner}-')
    return folder.parent.name if variant else learner


def _task_result(entry: Mapping[str, Any]) -> TaskResult:
    scores = {
        stage: Score(float(entry[stage]['return']), _optional(entry[stage].get('success')))
        for stage in STAGES
        if entry.get(stage) is not None and entry[stage].get('return') is not None
    }
    return TaskResult(
        task=str(entry['task']),
        visit=int(entry['visit']),
        iterations=int(entry.get('iterations') or 0),
        steps=int(entry.get('steps') or 0),
        scores=scores,
    )


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def _matrix(rows: Sequence[Sequence[float | None]] | None) -> Array | None:
    if not rows:
        return None
    width = max(len(row) for row in rows)
    matrix = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        matrix[i, : len(row)] = [np.nan if value is None else value for value in row]
    return matrix


def _read_metrics(path: Path) -> tuple[Iteration, ...]:
    lines = metric_lines(path)
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if entry['kind'] == 'iteration':
                rows.append(_iteration(entry))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break  # the writer of a live run may be in the middle of its last line
            raise BadRunFolder(f"'{path}' metrics line {number} is damaged: {error!r}") from error
    return tuple(rows)


def _iteration(entry: Mapping[str, Any]) -> Iteration:
    return Iteration(
        visit=int(entry['visit']),
        task=str(entry['task']),
        iteration=int(entry['iteration']),
        return_mean=float(entry['return_mean']),
        success=float(entry.get('success') or 0.0),
        steps=int(entry['steps']),
        timing=dict(entry.get('timing') or {}),
    )
