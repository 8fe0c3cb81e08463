"""Run folders, finished or not, as frozen data for reports, and small copies of them to commit.

A report reads `summary.json`, `metrics.jsonl` (or `.gz`) and `config.yaml`. The coefficients S
come from the checkpoints, or from a file of their own in a copy. The returns of policies on each
other's tasks are measured on request and kept in the run folder.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
import json
from pathlib import Path
import shutil
from typing import Any

import numpy as np

from lpgftw_ros.domains.suites import endless_tasks
from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.experiments.explain import contributions
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.checkpoints import load_knowledge
from lpgftw_ros.runs.folder import (
    BadRunFolder,
    CONFIG,
    copy_metrics,
    find_runs,
    read_config,
    read_rows,
    read_settings,
    read_summary,
)
from lpgftw_ros.runs.stages import STAGES
from lpgftw_ros.runs.visits import evaluation_seed

COEFFICIENTS = 'coefficients.json'
FINGERPRINT = 'fingerprint.json'
CROSS_RETURNS = 'cross_returns.json'


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
    measures: Mapping[str, float]
    """Every other number of the row, by name: what the step did."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """One batch of a run, whatever it was for."""

    visit: int
    purpose: str
    """'iteration', 'update', or what a probe was made for: 'start', 'guard' and others."""
    return_mean: float
    success: float
    steps: int


LEARNING = ('start', 'iteration')
"""Batches that belong to the learning curve of a visit: measured starts and iterations."""


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
    samplings: tuple[Sampling, ...]
    """Every batch in the order it was taken."""
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

    def course(self, visit: int) -> tuple[Sampling, ...]:
        """Return the batches of the learning curve of one visit, measured starts included."""
        return tuple(s for s in self.samplings if s.visit == visit and s.purpose in LEARNING)

    def only(self, tasks: Collection[str]) -> 'RunData':
        """Return this run as if it had met no other tasks."""
        kept = tuple(result for result in self.tasks if result.task in tasks)
        if len(kept) == len(self.tasks):
            return self
        visits = {result.visit for result in kept}
        samplings = tuple(s for s in self.samplings if s.visit in visits)
        return replace(
            self,
            tasks=kept,
            iterations=tuple(row for row in self.iterations if row.visit in visits),
            samplings=samplings,
            steps=sum(s.steps for s in samplings),
        )

    def curve(self, visit: int) -> Array:
        """Return the mean training return per iteration of one visit."""
        return np.array([row.return_mean for row in self.rows(visit)], dtype=float)


def read_run(path: Path) -> RunData:
    """Read one run folder."""
    summary = read_summary(path)
    try:
        rows = tuple(read_rows(path))
        return RunData(
            path=path,
            suite=Path(str(summary['suite'])).stem,
            learner=str(summary['learner']),
            label=_label(path, str(summary['learner'])),
            seed=int(summary['seed']),
            finished=summary['state'] == 'finished',
            tasks=_task_results(summary),
            iterations=tuple(_iteration(row) for row in rows if row['kind'] == 'iteration'),
            samplings=tuple(_sampling(row) for row in rows if 'return_mean' in row),
            matrix=_matrix(summary.get('matrix')),
            steps=int(summary.get('steps') or 0),
            seconds={k: float(v or 0.0) for k, v in (summary.get('seconds') or {}).items()},
            parameters=int(summary.get('parameters') or 0),
            columns=int(summary.get('columns') or 0),
            versions=dict(summary.get('versions') or {}),
            config=read_settings(path) if (path / CONFIG).is_file() else {},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRunFolder(f"'{path}/summary.json' is not complete: {error!r}") from error


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


def _task_results(summary: Mapping[str, Any]) -> tuple[TaskResult, ...]:
    """Return all visits; success is None where a task of the suite knows none."""
    endless = endless_tasks(str(summary['suite']))
    return tuple(_task_result(entry, entry['task'] not in endless) for entry in summary['tasks'])


def _task_result(entry: Mapping[str, Any], solvable: bool) -> TaskResult:
    scores = {
        stage: Score(
            float(entry[stage]['return']),
            _optional(entry[stage].get('success')) if solvable else None,
        )
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


def _iteration(entry: Mapping[str, Any]) -> Iteration:
    return Iteration(
        visit=int(entry['visit']),
        task=str(entry['task']),
        iteration=int(entry['iteration']),
        return_mean=float(entry['return_mean']),
        success=float(entry.get('success') or 0.0),
        steps=int(entry['steps']),
        timing=dict(entry.get('timing') or {}),
        measures={
            name: float(value)
            for name, value in entry.items()
            if name not in _OF_BATCH and isinstance(value, int | float)
        },
    )


def _sampling(entry: Mapping[str, Any]) -> Sampling:
    return Sampling(
        visit=int(entry['visit']),
        purpose=str(entry.get('purpose') or entry['kind']),
        return_mean=float(entry['return_mean']),
        success=float(entry.get('success') or 0.0),
        steps=int(entry['steps']),
    )


_OF_BATCH = {
    *('kind', 'visit', 'task', 'iteration', 'timing'),
    *('return_mean', 'return_std', 'return_min', 'return_max'),
    *('success', 'failed', 'steps', 'total_steps'),
}
"""Fields of a row about its place and its batch; the learner measures all others."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What each task takes of each column, scaled by the column's norm."""

    tasks: tuple[str, ...]
    values: Array
    """Shape (tasks, k)."""


def read_coefficients(run: Path) -> Coefficients | None:
    """Return S from the checkpoints, else from the file of an archived run, else None."""
    if (run / 'checkpoints').is_dir():
        try:
            knowledge = load_knowledge(run)
        except StateMismatch:
            return None
        return Coefficients(tuple(knowledge.tasks), contributions(knowledge))
    if not (run / COEFFICIENTS).is_file():
        return None
    try:
        content = json.loads((run / COEFFICIENTS).read_text(encoding='utf-8'))
        values = np.array(content['values'], dtype=float)
        return Coefficients(tuple(content['tasks']), values.reshape(len(content['tasks']), -1))
    except (ValueError, KeyError, TypeError) as error:
        raise BadRunFolder(f"cannot read '{run / COEFFICIENTS}': {error!r}") from error


def write_coefficients(folder: Path, coefficients: Coefficients) -> None:
    """Write S next to a summary."""
    content = {'tasks': coefficients.tasks, 'values': np.round(coefficients.values, 6).tolist()}
    (folder / COEFFICIENTS).write_text(json.dumps(content) + '\n', encoding='utf-8')


@dataclass(frozen=True, slots=True)
class CrossReturns:
    """Returns of every policy of a run on every task."""

    tasks: tuple[str, ...]
    returns: Array
    """Row i: policy of task i; column j: on task j. Shape (tasks, tasks)."""

    def gaps(self) -> Array:
        """Return the gap of each task; NaN where its own return is not positive."""
        n = len(self.tasks)
        own = np.diag(self.returns)
        others = (self.returns.sum(axis=0) - own) / max(1, n - 1)
        safe = np.where(own > 0.0, own, np.nan)
        return np.asarray(1.0 - others / safe) if n > 1 else np.zeros(n)


def read_cross_returns(run: Path) -> CrossReturns | None:
    """Return the cross returns kept in a run folder, None if there are none."""
    if not (run / CROSS_RETURNS).is_file():
        return None
    try:
        content = json.loads((run / CROSS_RETURNS).read_text(encoding='utf-8'))
        return CrossReturns(tuple(content['tasks']), np.array(content['returns'], dtype=float))
    except (ValueError, KeyError, TypeError) as error:
        raise BadRunFolder(f"cannot read '{run / CROSS_RETURNS}': {error!r}") from error


def write_cross_returns(run: Path, found: CrossReturns) -> None:
    """Keep cross returns in a run folder."""
    content = {'tasks': found.tasks, 'returns': np.round(found.returns, 3).tolist()}
    (run / CROSS_RETURNS).write_text(json.dumps(content) + '\n', encoding='utf-8')


def is_pinned(run: Path) -> bool:
    """Return whether a run is known to repeat on other computers, byte by byte."""
    path = run / FINGERPRINT
    return path.is_file() and json.loads(path.read_text()).get('arithmetic') == 'pinned'


def archive_run(run: RunData, root: Path) -> Path:
    """Copy what reports read to `root/<suite>/<method>/seed-N`; the same run, the same bytes."""
    folder = root / run.suite / run.label / f'seed-{run.seed}'
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() == run.path.resolve():
        return folder
    for name in ('summary.json', 'config.yaml', FINGERPRINT, CROSS_RETURNS):
        if (run.path / name).is_file():
            shutil.copyfile(run.path / name, folder / name)
    copy_metrics(run.path, folder)
    coefficients = read_coefficients(run.path)
    if coefficients is not None and coefficients.values.size:
        write_coefficients(folder, coefficients)
    return folder


def measure_cross_returns(run: Path, *, episodes: int = 3, workers: int = 0) -> CrossReturns:
    """Run every policy of a run on every task and keep the result in the run folder."""
    from lpgftw_ros.domains.sampler import Sampler  # slow to import, not always needed

    config, knowledge = read_config(run), load_knowledge(run)
    tasks = tuple(knowledge.tasks)
    returns = np.empty((len(tasks), len(tasks)))
    with Sampler(config.suite_source, workers) as sampler:
        for j, task in enumerate(tasks):
            n = 1 if sampler.suite.task(task).deterministic_resets else episodes
            seed = evaluation_seed(config.loop.seed, task)
            for i, owner in enumerate(tasks):
                policy = knowledge.policy(owner)
                batch = sampler.collect(task, policy, n, seed, explore=False)
                returns[i, j] = float(np.mean(batch.returns))
    found = CrossReturns(tasks, returns)
    write_cross_returns(run, found)
    return found
