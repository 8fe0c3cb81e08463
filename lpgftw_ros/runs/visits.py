"""A visit to a task, from its first evaluation to its last, and the rollouts it asks for.

The stages of a visit become requests; a driver answers them with trajectories.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
import zlib

from lpgftw_ros.errors import LearnerMisuse
from lpgftw_ros.learning.policies import TaskFactors
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.stages import Evaluation, evaluations, Moment, N_BEGIN, N_FIRST_STEP

VisitState = Literal['running', 'parked', 'finished', 'cancelled']


@dataclass(frozen=True, slots=True)
class Stage:
    """One rollout of a visit and what it is for."""

    name: str
    kind: Literal['evaluate', 'iterate', 'update', 'probe']
    iteration: int = 0
    task: str = ''
    """The task measured, where it is not the visit's own."""
    explore: bool = False
    running: bool = True


@dataclass(slots=True)
class Visit:
    """The progress of a visit and its measurements."""

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
    asked: int = 0
    """Iterations requested, if the learner plans another number; else 0."""
    probes: int = 0
    """Probes answered in this visit."""
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
        """Finished policy steps of this visit."""
        done = max(self.position - N_BEGIN - N_FIRST_STEP, int(self.position > N_BEGIN))
        return min(done, self.iterations)

    @property
    def plannable(self) -> bool:
        """Whether it has begun to learn and what ends it has not begun."""
        return N_BEGIN < self.position <= _steps_end(self)

    def aim_at(self, iterations: int, trajectories: int) -> None:
        """Change the numbers of iterations and of trajectories per iteration; 0 keeps one."""
        done = self.finished_iterations
        if iterations and iterations < done and not self.asked:
            raise LearnerMisuse(f'{self.task} has {done} finished iterations, not {iterations}')
        if iterations > self.iterations and self.position > _steps_end(self):
            raise LearnerMisuse(f'{self.task} has all its iterations and is being folded in')
        if iterations:
            self.iterations, self.asked = iterations, 0
        self.trajectories = trajectories or self.trajectories

    def follow(self, plan: Callable[[int], int]) -> None:
        """Take as many iterations as the learner plans, given the number requested."""
        asked = self.asked or self.iterations
        self.iterations = plan(asked)
        self.asked = asked if self.iterations != asked else 0

    def forget(self, scores: Iterable[str]) -> None:
        """Drop measurements that no longer hold."""
        for name in scores:
            self.scores.pop(name, None)


def stage_at(config: RunConfig, visit: Visit) -> Stage:
    """Return the current stage of a visit.

    Evaluations, the first iteration, evaluations, the other iterations, then what ends a visit.
    """
    position = visit.position
    if position >= _steps_end(visit):
        return _ending(config, visit)[position - _steps_end(visit)]
    if position < N_BEGIN:
        return evaluation_stage(evaluations('begin')[position])
    if N_BEGIN < position <= N_BEGIN + N_FIRST_STEP:
        return evaluation_stage(evaluations('first_step')[position - N_BEGIN - 1])
    return Stage('iterate', 'iterate', iteration=visit.finished_iterations)


def program_length(config: RunConfig, visit: Visit) -> int:
    """Return how many stages a visit has."""
    return _steps_end(visit) + len(_ending(config, visit))


def evaluation_stage(evaluation: Evaluation, task: str = '') -> Stage:
    """Return the stage of a visit that makes an evaluation."""
    return Stage(
        evaluation.name,
        'evaluate',
        task=task,
        explore=evaluation.explore,
        running=evaluation.running,
    )


def chosen_evaluations(config: RunConfig, moment: Moment) -> tuple[Evaluation, ...]:
    """Return the evaluations at one moment that the settings ask for."""
    return tuple(
        one
        for one in evaluations(moment)
        if not (one.explore and not config.loop.stochastic_episodes)
        and not (one.every_task and not config.loop.matrix)
    )


def _steps_end(visit: Visit) -> int:
    """Return the position after the last iteration; a visit without iterations has no steps."""
    return N_BEGIN + N_FIRST_STEP + visit.iterations if visit.iterations else 0


def _ending(config: RunConfig, visit: Visit) -> tuple[Stage, ...]:
    """Return the stages after the last iteration.

    A method without iterations, which starts from finished policies, has only the update.
    """
    tuned = chosen_evaluations(config, 'tuned') if visit.iterations else ()
    stages = [evaluation_stage(one) for one in tuned]
    stages.append(Stage('update_knowledge', 'update'))
    for one in chosen_evaluations(config, 'folded'):
        tasks = visit.known if one.every_task else ('',)
        stages += [evaluation_stage(one, task) for task in tasks]
    return tuple(stages)


def evaluation_seed(seed: int, task: str) -> int:
    """Return the rollout seed of all evaluations of a task.

    They share it, so that only the policies differ.
    """
    return derive_seed(seed, Purpose.EVALUATE, zlib.crc32(task.encode()))


def remaining_iterations(visits: Sequence[Visit], queue: Sequence[str], config: RunConfig) -> int:
    """Return how many policy steps are left, to estimate the time."""
    running = [visit for visit in visits if visit.state == 'running']
    ahead = sum(visit.iterations - visit.finished_iterations for visit in running)
    return ahead + len(queue) * config.loop.iterations


@dataclass(frozen=True, slots=True)
class Collect:
    """Trajectories with exploration, to learn from."""

    task: str
    n_trajectories: int
    seed: int
    visit: int
    stage: Stage
    explore: bool = True
    running: bool = True
    """Act with the policy in training, else with the task's finished one."""
    factors: TaskFactors | None = None
    """Act with these instead: a probe of the learner."""


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Trajectories that only measure."""

    task: str
    n_trajectories: int
    seed: int
    visit: int
    stage: Stage
    explore: bool
    running: bool


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until the next command; `held` if there is work waiting."""

    held: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Every task is learned and its final policy measured."""


Request = Collect | Evaluate
