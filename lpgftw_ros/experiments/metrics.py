"""Measures of one run: learning, forgetting, transfer and cost.

docs/metrics.md defines them. A measure that does not apply (yet) is `None` or NaN, never a guess.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
import math

import numpy as np

from lpgftw_ros.experiments.run_data import Iteration, RunData, Sampling, Score, TaskResult
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.stages import FINAL, STAGES, TUNE, TUNE_STOCHASTIC, UPDATE

SPEED_LEVEL = 0.9
"""Share of STL's improvement that `speed_up` waits for."""
TAIL_SHARE = 0.1
"""Share of a curve, at its end, whose mean is the final level."""


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
    score = stage_score(run, FINAL)
    return None if score is None else score.mean_return


def just_learned(result: TaskResult) -> Score | None:
    """Return the score right after a visit: after the knowledge update if there is one."""
    return result.scores.get(UPDATE, result.scores.get(TUNE))


def backward_transfer(run: RunData) -> float | None:
    """Return mean(final - just learned) over all tasks but the last; negative is forgetting."""
    changes = [
        result.scores[FINAL].mean_return - learned.mean_return
        for result in run.tasks[:-1]
        if FINAL in result.scores and (learned := just_learned(result)) is not None
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


def lost_success(run: RunData) -> float | None:
    """Return the mean over tasks of the success right after learning minus that at the end."""
    drops = []
    for result in run.tasks:
        learned, last = just_learned(result), result.scores.get(FINAL)
        if learned is None or last is None or learned.success is None or last.success is None:
            continue
        drops.append(learned.success - last.success)
    return float(np.mean(drops)) if drops else None


def retention(run: RunData) -> float | None:
    """Return mean final / mean tune over tasks that have both; None unless tune is positive."""
    pairs = [
        (result.scores[FINAL].mean_return, result.scores[TUNE].mean_return)
        for result in run.tasks
        if FINAL in result.scores and TUNE in result.scores
    ]
    final, tune = np.sum(pairs, axis=0) if pairs else (math.nan, math.nan)
    return float(final / tune) if tune > 0.0 else None


def area(values: Array, steps: Array, budget: float = math.inf, level: float = math.nan) -> float:
    """Return the mean of a learning curve over `budget` steps.

    What the curve has beyond the budget does not count. A curve that ends before it holds
    `level`, the return of the tuned policy; without a level the mean is over its own steps.
    """
    before = np.cumsum(steps) - steps
    counted = np.clip(budget - before, 0.0, steps)
    spent = float(np.sum(counted))
    rest = 0.0 if math.isnan(level) or math.isinf(budget) else budget - spent
    earned = float(np.sum(values * counted)) + (rest * level if rest > 0.0 else 0.0)
    return ratio(earned, spent + rest)


def lifetime_area(run: RunData, budget: float) -> float:
    """Return the mean return over `budget` steps of a whole run, NaN before its first tune.

    Every batch counts with its steps and its return: dropped draws, probes and updates too. What
    is left of the budget counts with the level the tasks are held at; what a run costs beyond it
    does not count.
    """
    levels = [level.mean_return for result in run.tasks if (level := held(run, result))]
    if not levels:
        return math.nan
    values, _, steps = _columns(run.samplings)
    return area(values, steps, budget, float(np.mean(levels)))


def held(run: RunData, result: TaskResult) -> Score | None:
    """Return what a visit that ended early counts with from then on; None while it runs.

    The tuned policy with exploration, as everywhere on the curve.
    """
    if TUNE not in result.scores:
        return None
    if TUNE_STOCHASTIC in result.scores:
        return result.scores[TUNE_STOCHASTIC]
    returns, wins, _ = _columns(run.rows(result.visit))
    if not len(returns):
        return result.scores[TUNE]
    tail = max(1, round(TAIL_SHARE * len(returns)))
    return Score(float(np.mean(returns[-tail:])), float(np.mean(wins[-tail:])))


def ahead_for_good(run: RunData, alone: RunData) -> float:
    """Return the steps after which a run has earned more per step than STL ever since.

    Infinite if it has not at the end of the shorter one.
    """
    ours, theirs = (_columns(one.samplings) for one in (run, alone))
    ends, ends_alone = np.cumsum(ours[2]), np.cumsum(theirs[2])
    if not len(ends) or not len(ends_alone):
        return math.nan
    grid = np.union1d(ends, ends_alone)
    grid = grid[grid <= min(ends[-1], ends_alone[-1])]
    lead = _earned(ours, grid) - _earned(theirs, grid)
    behind = np.flatnonzero(lead <= 0.0)
    if not len(behind):
        return float(grid[0])
    return float(grid[behind[-1] + 1]) if behind[-1] + 1 < len(grid) else math.inf


def _earned(columns: tuple[Array, Array, Array], at: Array) -> Array:
    """Return what a run had earned in sum, return times steps, after these steps."""
    values, _, steps = columns
    ends = np.concatenate(([0.0], np.cumsum(steps)))
    return np.asarray(np.interp(at, ends, np.concatenate(([0.0], np.cumsum(values * steps)))))


@dataclass(frozen=True, slots=True)
class TaskTransfer:
    """One task of a method compared with the same task learned alone (STL)."""

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
    half: float
    """First iteration, from 1, in which half of the episodes succeed; infinite if none does."""
    half_alone: float


def transfers(run: RunData, alone: RunData, first: int | None = None) -> tuple[TaskTransfer, ...]:
    """Compare each first visit with the same task in an STL run, over the steps STL took.

    `first` restricts this to STL's first iterations. A visit that ended early is `held`; one that
    still runs is compared over the iterations both have.
    """
    visits_alone = first_visits(alone.tasks)
    ends = {result.visit: held(run, result) for result in run.tasks}
    found = []
    for position, (task, visit) in enumerate(first_visits(run.tasks).items()):
        if task not in visits_alone:
            continue
        rows, rows_alone = run.rows(visit), alone.rows(visits_alone[task])[:first]
        end = ends[visit]
        if end is None:
            rows_alone = rows_alone[: len(rows)]
        if not rows or not rows_alone:
            continue
        returns, wins, steps = _columns(run.course(visit))
        before = float(np.sum(steps)) - sum(row.steps for row in rows)
        base, base_wins, base_steps = _columns(rows_alone)
        budget = float(np.sum(base_steps))
        level = math.nan if end is None else end.mean_return
        solved = math.nan if end is None else end.success or 0.0
        mean, mean_alone = area(returns, steps, budget, level), area(base, base_steps)
        won, won_alone = area(wins, steps, budget, solved), area(base_wins, base_steps)
        found.append(
            TaskTransfer(
                task=task,
                position=position,
                area=mean,
                area_alone=mean_alone,
                forward=ratio(mean - mean_alone, abs(mean_alone)),
                forward_success=ratio(won - won_alone, 1.0 - won_alone),
                speed_up=speed_up(*_columns(rows)[::2], base, base_steps, before),
                half=_first_half(_columns(rows)[1]),
                half_alone=_first_half(base_wins),
            )
        )
    return tuple(found)


def _columns(rows: Sequence[Iteration] | Sequence[Sampling]) -> tuple[Array, Array, Array]:
    """Return returns, success and steps of the rows."""
    table = np.array([(row.return_mean, row.success, row.steps) for row in rows], dtype=float)
    returns, wins, steps = table.reshape(len(rows), 3).T
    return returns, wins, steps


def _first_half(success: Array) -> float:
    reached = np.flatnonzero(success >= 0.5)
    return float(reached[0] + 1) if len(reached) else math.inf


def first_visits(tasks: Iterable[TaskResult]) -> dict[str, int]:
    """Return each task's first visit, in order."""
    visits: dict[str, int] = {}
    for result in tasks:
        visits.setdefault(result.task, result.visit)
    return visits


def speed_up(
    curve: Array, steps: Array, alone: Array, steps_alone: Array, before: float = 0.0
) -> float:
    """Return how many times fewer steps a curve needs to STL's level than STL itself.

    Steps taken `before` its first iteration, to measure a start, count as needed. The level is
    STL's first point plus SPEED_LEVEL of the way to the mean of its tail. NaN if STL did not
    improve, 0 if the curve never gets there.
    """
    tail = max(1, round(TAIL_SHARE * len(alone)))
    gain = float(np.mean(alone[-tail:]) - alone[0])
    if len(alone) < 2 or not gain > 0.0:
        return math.nan
    level = alone[0] + SPEED_LEVEL * gain
    needed = before + steps_to(curve, steps, level)
    needed_alone = steps_to(alone, steps_alone, level)
    return 0.0 if math.isinf(needed) else ratio(needed_alone, needed)


def steps_to(curve: Array, steps: Array, level: float) -> float:
    """Return the steps up to and including the first iteration at or above the level."""
    reached = np.flatnonzero(curve >= level)
    return float(np.sum(steps[: reached[0] + 1])) if len(reached) else math.inf


def ratio(numerator: float, denominator: float) -> float:
    """Return the ratio, NaN where the denominator is zero."""
    return numerator / denominator if denominator != 0.0 else math.nan


BYTES_PER_PARAMETER = 8
PHASES = ('sampling', 'policy', 'value', 'knowledge', 'evaluation')


@dataclass(frozen=True, slots=True)
class Ledger:
    """Cost of one run so far."""

    tasks: int
    parameters: int
    bytes_per_task: float
    """Parameters of all policies in float64, shared basis included, over the tasks seen."""
    steps: int
    seconds: Mapping[str, float]
    """Per phase; the value fit overlaps with sampling, so phases may add up to more than wall."""
    wall: float
    steps_per_second: float
    """End to end: steps over wall-clock seconds, evaluation included."""
    sampling_steps_per_second: float

    @property
    def end_to_end_share(self) -> float:
        """End-to-end speed over sampling speed: 1 if learning cost nothing."""
        return ratio(self.steps_per_second, self.sampling_steps_per_second)

    @property
    def minutes(self) -> float:
        """Wall-clock minutes."""
        return self.wall / 60.0


def ledger(run: RunData) -> Ledger:
    """Add up what a run cost."""
    n_tasks = len({result.task for result in run.tasks if result.iterations or result.scores})
    wall = run.seconds.get('wall', 0.0)
    return Ledger(
        tasks=n_tasks,
        parameters=run.parameters,
        bytes_per_task=BYTES_PER_PARAMETER * run.parameters / n_tasks if n_tasks else math.nan,
        steps=run.steps,
        seconds={phase: run.seconds.get(phase, 0.0) for phase in PHASES},
        wall=wall,
        steps_per_second=ratio(run.steps, wall),
        sampling_steps_per_second=ratio(run.steps, run.seconds.get('sampling', 0.0)),
    )
