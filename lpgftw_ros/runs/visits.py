"""A visit: one stay at one task, from its first evaluation to its last."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
import zlib

from lpgftw_ros.errors import LearnerMisuse
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.runs.config import RunConfig

VisitState = Literal['running', 'parked', 'finished', 'cancelled']


@dataclass(frozen=True, slots=True)
class Stage:
    """One rollout of a visit and what it is for."""

    name: str
    kind: Literal['evaluate', 'iterate', 'update']
    iteration: int = 0
    task: str = ''
    """The task measured, where it is not the visit's own."""
    explore: bool = False
    running: bool = True


@dataclass(slots=True)
class Visit:
    """How far a visit has come and what was measured on the way."""

    number: int
    task: str
    iterations: int
    trajectories: int
    known: tuple[str, ...]
    """Tasks finished before this visit, and its own."""
    state: VisitState = 'running'
    position: int = 0
    """Index into the visit's program."""
    steps: int = 0
    columns: int = 0
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    matrix: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), 'known': list(self.known)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> 'Visit':
        """Read what `to_dict` returned."""
        return cls(**{**values, 'known': tuple(values['known'])})

    @property
    def finished_iterations(self) -> int:
        """How many policy steps this visit has behind it."""
        return min(max(self.position - 2, int(self.position == 2)), self.iterations)

    def aim_at(self, iterations: int, trajectories: int) -> None:
        """Go on to this many iterations, with so many trajectories each; 0 keeps a number."""
        done = self.finished_iterations
        if iterations and iterations < done:
            raise LearnerMisuse(f'{self.task} has {done} iterations behind it, not {iterations}')
        if iterations > self.iterations and self.position > self.iterations + 2:
            raise LearnerMisuse(f'{self.task} has all its iterations and is being folded in')
        self.iterations = iterations or self.iterations
        self.trajectories = trajectories or self.trajectories

    def forget(self, scores: Iterable[str]) -> None:
        """Drop measurements that no longer hold."""
        for name in scores:
            self.scores.pop(name, None)


def stage_at(config: RunConfig, visit: Visit) -> Stage:
    """Return the stage a visit stands at.

    Evaluation, first iteration, evaluation, the other iterations, then what ends a visit.
    """
    position, n = visit.position, visit.iterations
    if n and position < n + 2:
        if position in (0, 2):
            return Stage('start' if position == 0 else 'start_after_update', 'evaluate')
        return Stage('iterate', 'iterate', iteration=max(0, position - 2))
    return _ending(config, visit)[position - (n + 2 if n else 0)]


def program_length(config: RunConfig, visit: Visit) -> int:
    """Return how many stages a visit has."""
    n = visit.iterations
    return (n + 2 if n else 0) + len(_ending(config, visit))


def _ending(config: RunConfig, visit: Visit) -> tuple[Stage, ...]:
    """Return the stages after the last iteration.

    A method that takes over finished policies (no iterations) has only the update.
    """
    stages: list[Stage] = []
    if visit.iterations:
        stages.append(Stage('tune', 'evaluate'))
        if config.loop.stochastic_episodes:
            stages.append(Stage('tune_stochastic', 'evaluate', explore=True))
    stages.append(Stage('update_knowledge', 'update'))
    stages.append(Stage('update', 'evaluate', running=False))
    if config.loop.matrix:
        stages += [Stage('matrix', 'evaluate', task=t, running=False) for t in visit.known]
    return tuple(stages)


def evaluation_seed(seed: int, task: str) -> int:
    """Return the rollout seed all evaluations of a task share.

    Differences between them are then those of the policies.
    """
    return derive_seed(seed, Purpose.EVALUATE, zlib.crc32(task.encode()))


def remaining_iterations(visits: Sequence[Visit], queue: Sequence[str], config: RunConfig) -> int:
    """Return how many policy steps are still ahead, for the time left."""
    running = [visit for visit in visits if visit.state == 'running']
    ahead = sum(visit.iterations - visit.finished_iterations for visit in running)
    return ahead + len(queue) * config.loop.iterations
