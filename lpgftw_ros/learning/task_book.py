"""The book of tasks every learner keeps: which run, wait, or are finished, and with what.

A method fills in how a task starts (`_first_factors`), how a parked one resumes (`_resume`) and
what forgetting one takes out (`_drop`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from lpgftw_ros.errors import LearnerMisuse, UnknownName
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.learner import TaskPhase
from lpgftw_ros.learning.policies import (
    compose,
    Knowledge,
    PolicySnapshot,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.state import check_task_name
from lpgftw_ros.learning.task_run import TaskRun
from lpgftw_ros.learning.values import ValueFunction


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """What stays of a task once it is learned."""

    factors: TaskFactors
    values: ValueFunction


class TaskBook(ABC):
    """Book-keeping of one task after another."""

    name: ClassVar[str]

    def __init__(self, spec: PolicySpec, config: TrainingConfig, seed: int) -> None:
        self._spec, self._config, self._seed = spec, config, seed
        self._order: list[str] = []
        self._finished: dict[str, FinishedTask] = {}
        self._parked: dict[str, TaskRun] = {}
        self._run: TaskRun | None = None
        self._version = 0

    @abstractmethod
    def _basis(self) -> Array:
        """Return the shared basis. Shape (d, k)."""

    @abstractmethod
    def _first_factors(self, task: str, seed: int) -> TaskFactors:
        """Return where a new task starts."""

    def _extra_sizes(self) -> dict[str, int]:
        """Return the vectors a method keeps beside each running or parked task."""
        return {}

    def _first_extras(self) -> dict[str, Array]:
        """Return the extras of a task that starts or is revisited."""
        return {}

    def _revisit_factors(self, task: str) -> TaskFactors:
        """Return where the revisit of a finished task starts."""
        return self._finished[task].factors

    def _resume(self, run: TaskRun) -> TaskRun:
        """Return a parked task made fit for what has happened since."""
        return run

    def _drop(self, task: str) -> None:
        """Remove what a task contributed to the shared knowledge; by default that is nothing."""
        return

    @property
    def spec(self) -> PolicySpec:
        """Shape of all its policies."""
        return self._spec

    @property
    def config(self) -> TrainingConfig:
        """Its settings."""
        return self._config

    @property
    def running(self) -> str | None:
        """The task being learned, if any."""
        return None if self._run is None else self._run.task

    @property
    def iteration(self) -> int:
        """Iterations the running task has behind it."""
        return 0 if self._run is None else self._run.iteration

    def phase(self, task: str) -> TaskPhase:
        """Return where the task stands."""
        if task == self.running:
            return 'running'
        if task in self._parked:
            return 'parked'
        return 'finished' if task in self._finished else 'new'

    def start_task(self, task: str, *, seed: int) -> None:
        """Begin a new task, continue a parked one, or revisit a finished one."""
        if self._run is not None:
            raise LearnerMisuse(f"'{self._run.task}' is running: finish, park or cancel it first")
        check_task_name(task)
        if task in self._parked:
            self._run = self._resume(self._parked[task])
            del self._parked[task]
            self._version += 1
        elif task in self._finished:
            self._run = self._revisit(task, seed)
        else:
            self._run = self._first_run(task, seed)
            self._order.append(task)

    def _first_run(self, task: str, seed: int) -> TaskRun:
        """Return a new task as it starts."""
        values = ValueFunction.create(self._spec.obs_dim, generator(seed, Purpose.VALUE_INIT))
        factors = self._first_factors(task, seed)
        return TaskRun(task, seed, factors, values, extras=self._first_extras())

    def _revisit(self, task: str, seed: int) -> TaskRun:
        """Return a finished task as its revisit starts: with the values it had."""
        factors, values = self._revisit_factors(task), self._finished[task].values.copy()
        return TaskRun(task, seed, factors, values, extras=self._first_extras())

    def park_task(self) -> None:
        """Set the running task aside; `start_task` continues it at the same iteration."""
        run = self._need_run()
        self._need_fitted(run)
        self._parked[run.task] = run
        self._run = None
        self._version += 1

    def cancel_task(self) -> None:
        """Drop the running task; a finished task that was revisited is as before the revisit."""
        run = self._need_run()
        self._run = None
        if run.task not in self._finished:
            self._order.remove(run.task)

    def forget_task(self, task: str) -> None:
        """Remove a finished or parked task and all it contributed."""
        if task == self.running:
            raise LearnerMisuse(f"'{task}' is running: cancel it instead")
        if task not in self._finished and task not in self._parked:
            raise UnknownName('task to forget', task, self.knowledge().tasks)
        if task in self._finished:
            self._drop(task)
        self._finished.pop(task, None)
        self._parked.pop(task, None)
        self._order.remove(task)
        self._version += 1

    def factors(self) -> TaskFactors:
        """Return the running task's factors, to be composed with `knowledge().basis`."""
        return self._need_run().factors

    def knowledge(self) -> Knowledge:
        """Return the basis and the factors of all finished and parked tasks."""
        kept = [task for task in self._order if task in self._finished or task in self._parked]
        tasks = {task: self._task_factors(task) for task in kept}
        return Knowledge(self._version, self._spec, self._basis(), tasks)

    def _task_factors(self, task: str) -> TaskFactors:
        """Return the present factors of a parked or finished task."""
        if task in self._parked:
            return self._parked[task].factors
        return self._finished[task].factors

    def _running_policy(self) -> PolicySnapshot:
        factors = self._need_run().factors
        theta = compose(self._basis(), factors)
        return PolicySnapshot(self._spec, theta, factors.head, factors.log_std)

    def _need_run(self) -> TaskRun:
        if self._run is None:
            raise LearnerMisuse('no task is running: call start_task first')
        return self._run

    def _need_fitted(self, run: TaskRun) -> None:
        if run.due is not None:
            raise LearnerMisuse(f"the value function of '{run.task}' is not fitted yet")
