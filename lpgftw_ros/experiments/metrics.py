"""Measures of lifelong learning, from run folders alone. Definitions: docs/metrics.md.

A measure that does not apply (yet) is `None` or NaN, never a guess.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
import math

import numpy as np

from lpgftw_ros.experiments.run_data import RunData, Score, TaskResult
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.stages import STAGES

SPEED_LEVEL = 0.9
"""Share of STL's improvement that `speed_up` waits for."""
TAIL_SHARE = 0.1
"""Share of a curve, at its end, whose mean counts as the level reached."""


def stage_score(run: RunData, stage: str) -> Score | None:
    """Return the mean over the tasks that have this stage: one bar of the paper's figures."""
    scores = [result.scores[stage] for result in run.tasks if stage in result.scores]
    if not scores:
        return None
    successes = [score.success for score in scores if score.success is not None]
    return Score(
        mean_return=float(np.mean([score.mean_return for score in scores])),
        success=float(np.mean(successes)) if successes else None,
    )


def bars(run: RunData) -> Mapping[str, Score]:
    """Return every stage some task has reached, averaged over tasks."""
    found = {stage: stage_score(run, stage) for stage in STAGES}
    return {stage: score for stage, score in found.items() if score is not None}


def average_performance(run: RunData) -> float | None:
    """Return the mean return over all tasks after the last one was learned."""
    score = stage_score(run, 'final')
    return None if score is None else score.mean_return


def just_learned(result: TaskResult) -> Score | None:
    """Return the score right after a visit: after the knowledge update if there is one."""
    return result.scores.get('update', result.scores.get('tune'))


def backward_transfer(run: RunData) -> float | None:
    """Return mean(final - just learned) over all tasks but the last; negative is forgetting."""
    changes = [
        result.scores['final'].mean_return - learned.mean_return
        for result in run.tasks[:-1]
        if 'final' in result.scores and (learned := just_learned(result)) is not None
    ]
    return float(np.mean(changes)) if changes else None


def forgetting(run: RunData) -> float | None:
    """Return the mean drop from the best return so far to the last; positive is loss.

    With the matrix R (return of task j after visit i) the best is over all visits from j on
    but the last; without it, the only earlier value known is the one right after learning.
    """
    if run.matrix is None:
        change = backward_transfer(run)
        return None if change is None else -change
    last, drops = len(run.matrix) - 1, []
    for j in range(min(last, run.matrix.shape[1])):
        seen = run.matrix[:last, j]
        if np.isfinite(seen).any() and np.isfinite(run.matrix[last, j]):
            drops.append(float(np.nanmax(seen) - run.matrix[last, j]))
    return float(np.mean(drops)) if drops else None


def retention(run: RunData) -> float | None:
    """Return mean final / mean tune over tasks that have both; None unless tune is positive."""
    pairs = [
        (result.scores['final'].mean_return, result.scores['tune'].mean_return)
        for result in run.tasks
        if 'final' in result.scores and 'tune' in result.scores
    ]
    final, tune = np.sum(pairs, axis=0) if pairs else (math.nan, math.nan)
    return float(final / tune) if tune > 0.0 else None


def area(curve: Array) -> float:
    """Return the normalised area under a learning curve: its mean over iterations."""
    return float(np.mean(curve)) if len(curve) else math.nan


@dataclass(frozen=True, slots=True)
class TaskTransfer:
    """One task of a method beside the same task learned alone (STL)."""

    task: str
    position: int
    """Place of the task in the method's sequence, from 0."""
    area: float
    area_alone: float
    forward: float
    """(area - area alone) / |area alone|."""
    forward_success: float
    """(a - a0) / (1 - a0) of the success curves' areas; NaN where STL always succeeds."""
    speed_up: float
    """Steps STL needs to SPEED_LEVEL of its improvement / steps needed here; 0: not reached."""


def transfers(run: RunData, alone: RunData) -> tuple[TaskTransfer, ...]:
    """Compare each first visit with the same task in an STL run, over their common iterations."""
    visits_alone = first_visits(alone.tasks)
    found = []
    for position, (task, visit) in enumerate(first_visits(run.tasks).items()):
        if task not in visits_alone:
            continue
        rows, rows_alone = run.rows(visit), alone.rows(visits_alone[task])
        n = min(len(rows), len(rows_alone))
        if n == 0:
            continue
        returns, base = np.array([[r.return_mean for r in x[:n]] for x in (rows, rows_alone)])
        wins, base_wins = np.array([[r.success for r in x[:n]] for x in (rows, rows_alone)])
        steps, base_steps = np.array([[r.steps for r in x[:n]] for x in (rows, rows_alone)])
        found.append(
            TaskTransfer(
                task=task,
                position=position,
                area=area(returns),
                area_alone=area(base),
                forward=ratio(area(returns) - area(base), abs(area(base))),
                forward_success=ratio(area(wins) - area(base_wins), 1.0 - area(base_wins)),
                speed_up=speed_up(returns, steps, base, base_steps),
            )
        )
    return tuple(found)


def first_visits(tasks: Iterable[TaskResult]) -> dict[str, int]:
    """Return each task's first visit, in order."""
    visits: dict[str, int] = {}
    for result in tasks:
        visits.setdefault(result.task, result.visit)
    return visits


def speed_up(curve: Array, steps: Array, alone: Array, steps_alone: Array) -> float:
    """Return how many times fewer steps a curve needs to STL's level than STL itself.

    The level is STL's first point plus SPEED_LEVEL of the way to the mean of its tail. NaN if
    STL did not improve, 0 if the curve never gets there.
    """
    tail = max(1, round(TAIL_SHARE * len(alone)))
    gain = float(np.mean(alone[-tail:]) - alone[0])
    if len(alone) < 2 or not gain > 0.0:
        return math.nan
    level = alone[0] + SPEED_LEVEL * gain
    needed, needed_alone = steps_to(curve, steps, level), steps_to(alone, steps_alone, level)
    return 0.0 if math.isinf(needed) else ratio(needed_alone, needed)


def steps_to(curve: Array, steps: Array, level: float) -> float:
    """Return the steps spent up to the first iteration at or above the level, it included."""
    reached = np.flatnonzero(curve >= level)
    return float(np.sum(steps[: reached[0] + 1])) if len(reached) else math.inf


def ratio(numerator: float, denominator: float) -> float:
    """Return the ratio, NaN where the denominator is zero."""
    return numerator / denominator if denominator != 0.0 else math.nan
