"""The lifetime of a learner (Algorithm 1): tasks arrive, improve step by step, and are folded in.

A method defines how a task starts (`_first_factors`), which coordinates a step moves
(`_coordinates`), the gradient it follows (`_gradient`), and how a finished task is folded in
(`_fold`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
import copy
from dataclasses import dataclass, field, replace
import time
from typing import ClassVar, TYPE_CHECKING

import numpy as np

from lpgftw_ros.errors import LearnerMisuse, StateMismatch, UnknownName
from lpgftw_ros.learning.arrays import Array, Batch, require_shape
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.learner import (
    BASIS_CHANGE,
    COLUMNS,
    FinishReport,
    GRADIENT_NORM,
    KL,
    PARAMETER_CHANGE,
    Probe,
    REFUSED_STEPS,
    STATE_PARTS,
    StatePart,
    STEP_LENGTH,
    StepReport,
    TaskPhase,
    VALUE_ERROR,
    ValueReport,
)
from lpgftw_ros.learning.policies import (
    Activations,
    compose,
    forward,
    Knowledge,
    PolicySnapshot,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.serialise import (
    AnyArray,
    check_task_name,
    factor_arrays,
    FORMAT,
    pack_names,
    pack_number,
    pack_text,
    prefixed,
    read_factors,
    read_run,
    read_values,
    run_arrays,
    RunParts,
    StateReader,
    value_arrays,
)
from lpgftw_ros.learning.steps import Coordinates, make_base_learner, Move, StepStart
from lpgftw_ros.learning.values import (
    advantages_from,
    discounted_returns,
    Floats,
    relative_error,
    value_features,
    ValueFunction,
    whitened_advantages,
)

if TYPE_CHECKING:
    from lpgftw_ros.learning.adaptive.recognise import Recognition


@dataclass(frozen=True, slots=True)
class ValueTask:
    """A value fit that is due: `improve` prepares it, `fit_values` does it."""

    features: Floats
    targets: Array
    iteration: int


@dataclass(slots=True)
class TaskRun:
    """A task in training, running or parked: everything that changes with each iteration."""

    task: str
    seed: int
    """Root of the task's own random numbers."""
    factors: TaskFactors
    values: ValueFunction
    iteration: int = 0
    extras: dict[str, Array] = field(default_factory=dict)
    """Extra float64 vectors of the method, by name."""
    due: ValueTask | None = None

    def advantages(self, batch: Batch, config: TrainingConfig, gae_lambda: float) -> Array:
        """Return whitened advantages under the current value function."""
        return whitened_advantages(self.values, batch, config, gae_lambda)

    def begin_iteration(self, batch: Batch, config: TrainingConfig) -> tuple[Array, ValueTask]:
        """Return whitened advantages and the value fit that will follow the policy step."""
        if self.due is not None:
            raise LearnerMisuse('fit_values has to run before the next improve')
        features = value_features(batch.observations, batch.step_in_trajectory)
        predicted = self.values.predict(features)
        due = ValueTask(features, discounted_returns(batch, config.gamma), self.iteration)
        return advantages_from(predicted, self.values, batch, config, config.gae_lambda), due

    def fit_values(self, config: TrainingConfig) -> ValueReport:
        """Fit the value function to the batch of the last policy step."""
        if self.due is None:
            raise LearnerMisuse('fit_values needs an improve before it')
        due = self.due
        self.values.fit(
            due.features,
            due.targets,
            generator(self.seed, Purpose.VALUE_FIT, due.iteration),
            epochs=config.value_epochs,
            learning_rate=config.value_learning_rate,
            scaled=config.value_scaling,
        )
        after = relative_error(self.values.predict(due.features), due.targets)
        self.due = None
        return ValueReport({VALUE_ERROR: after})

    def arrays(self) -> dict[str, AnyArray]:
        """Return everything the task needs to continue later."""
        parts = RunParts(self.seed, self.factors, self.values, self.iteration, self.extras)
        return run_arrays(parts)


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """What remains of a task once it is learned."""

    factors: TaskFactors
    values: ValueFunction


class LifelongLearner(ABC):
    """A learner of one task after another."""

    name: ClassVar[str]

    def __init__(self, spec: PolicySpec, config: TrainingConfig, seed: int) -> None:
        self._spec, self._config, self._seed = spec, config, seed
        self._order: list[str] = []
        self._finished: dict[str, FinishedTask] = {}
        self._parked: dict[str, TaskRun] = {}
        self._run: TaskRun | None = None
        self._version = 0
        self._base_learner = make_base_learner(config)
        self._recorded: dict[str, float] = {}

    # Algorithm 1: start a task, improve it from batch to batch, finish it.

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

    def improve(self, batch: Batch) -> StepReport:
        """Take one policy step from trajectories of the current policy."""
        began = time.perf_counter()
        self._recorded = {}  # drop what a failed step recorded
        run = self._need_run()
        self._check(batch)
        advantages, due = run.begin_iteration(batch, self._config)
        policy = self._running_policy()
        at = forward(policy, batch.observations)
        coordinates = self._coordinates(run)
        gradient = self._gradient(policy, at, batch, advantages)
        start = self._step_start(policy, coordinates, at, batch, advantages)
        step = self._base_learner.step(start, gradient)
        factors = coordinates.move_factors(run.factors, step.move)
        moved = replace(run, factors=factors, due=due, iteration=run.iteration + 1)
        stepped = time.perf_counter()
        updated = self._after_step(moved, policy, batch, advantages)
        self._run = moved
        measures = {
            KL: step.kl,
            STEP_LENGTH: step.length,
            REFUSED_STEPS: step.refused,
            GRADIENT_NORM: float(np.linalg.norm(gradient.flat())),
            **step.measures,
            **self._take_recorded(),
        }
        return StepReport(measures, updated, stepped - began, time.perf_counter() - stepped)

    def fit_values(self) -> ValueReport:
        """Fit the running task's value function to the batch last given to `improve`."""
        began = time.perf_counter()
        report = self._need_run().fit_values(self._config)
        return replace(report, seconds=time.perf_counter() - began)

    def finish_task(self, batch: Batch) -> FinishReport:
        """Fold the running task into the shared knowledge, from extra trajectories."""
        began = time.perf_counter()
        run = self._need_run()
        self._check(batch)
        self._need_fitted(run)
        basis, theta = self._basis(), self._running_policy().theta
        factors = self._fold(run, batch)
        self._finished[run.task] = FinishedTask(factors, run.values)
        self._run = None
        self._version += 1
        new_basis = self._basis()
        columns = int(new_basis.shape[1])
        changed = compose(new_basis, self._task_factors(run.task))
        measures = {
            BASIS_CHANGE: _relative_change(basis, new_basis[:, : basis.shape[1]]),
            PARAMETER_CHANGE: _relative_change(theta, changed),
            COLUMNS: columns,
            **self._take_recorded(),
        }
        return FinishReport(measures, columns, time.perf_counter() - began)

    def _record(self, name: str, value: float) -> None:
        """Record a measure of the current step or fold; `learner.measure` declares its name."""
        self._recorded[name] = value

    def _take_recorded(self) -> dict[str, float]:
        recorded, self._recorded = self._recorded, {}
        return recorded

    def plan(self, iterations: int) -> int:
        """Return how many iterations the running task takes: as many as requested."""
        return iterations

    def wants(self) -> Probe | None:
        """Return the trajectories needed before anything else: none."""
        return None

    def probed(self, batch: Batch) -> Mapping[str, float]:
        """Refuse trajectories that were not requested."""
        raise LearnerMisuse(f"trajectories of '{batch.task}' that were not requested")

    def recognise(self, task: str) -> 'Recognition':
        """Refuse: it takes a method that remembers how tasks answer."""
        raise LearnerMisuse(f'{self.name} needs to know which task it learns')

    # What a method defines.

    @abstractmethod
    def _basis(self) -> Array:
        """Return the shared basis. Shape (d, k)."""

    @abstractmethod
    def _first_factors(self, task: str, seed: int) -> TaskFactors:
        """Return the initial factors of a new task."""

    def _initial_log_std(self) -> Array:
        return np.full(self._spec.act_dim, self._config.initial_log_std)

    def _coordinates(self, run: TaskRun) -> Coordinates:
        """Return what a step moves: by default theta, as the residual, head and log sigma."""
        return Coordinates(self._spec, np.zeros((self._spec.n_parameters, 0)), free=True)

    def _gradient(
        self, policy: PolicySnapshot, at: Activations, batch: Batch, advantages: Array
    ) -> Move:
        """Return the gradient a step follows: by default the base learner's."""
        coordinates = self._coordinates(self._need_run())
        start = self._step_start(policy, coordinates, at, batch, advantages)
        return self._base_learner.gradient(start)

    def _step_start(
        self,
        policy: PolicySnapshot,
        coordinates: Coordinates,
        at: Activations,
        batch: Batch,
        advantages: Array,
    ) -> StepStart:
        share = self._share_of_batch
        return StepStart(policy, coordinates, at, batch.actions, advantages, batch.starts, share)

    @property
    def _share_of_batch(self) -> float:
        """Weight of the batch's own gradient in the one a step follows."""
        return 1.0

    def _after_step(
        self, run: TaskRun, policy: PolicySnapshot, batch: Batch, advantages: Array
    ) -> bool:
        """Do what follows a step from `policy`; return whether the basis changed."""
        return False

    @abstractmethod
    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        """Fold the running task into the shared knowledge; return the factors it keeps."""

    def _revisit_factors(self, task: str) -> TaskFactors:
        """Return the initial factors of a revisit."""
        return self._finished[task].factors

    def _resume(self, run: TaskRun) -> TaskRun:
        """Return a parked task, adapted to what has changed since."""
        return run

    def _drop(self, task: str) -> None:
        """Remove what a task contributed to the shared knowledge; nothing by default."""
        return

    def _extra_sizes(self) -> dict[str, int]:
        """Return the sizes of the extra vectors of each running or parked task."""
        return {}

    def _first_extras(self) -> dict[str, Array]:
        """Return the extras of a task that starts or is revisited."""
        return {}

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        """Return the method's own arrays, by full key."""
        return {}

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        """Read the method's own arrays; new objects only, nothing changed in place."""
        return

    # Running, parked and finished tasks.

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
        """Finished iterations of the running task."""
        return 0 if self._run is None else self._run.iteration

    def phase(self, task: str) -> TaskPhase:
        """Return where the task stands."""
        if task == self.running:
            return 'running'
        if task in self._parked:
            return 'parked'
        return 'finished' if task in self._finished else 'new'

    def park_task(self) -> None:
        """Set the running task aside; `start_task` continues it at the same iteration."""
        run = self._need_run()
        self._need_fitted(run)
        self._parked[run.task] = run
        self._run = None
        self._version += 1

    def cancel_task(self) -> None:
        """Drop the running task; a revisited task returns to its state before the revisit."""
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

    def _first_run(self, task: str, seed: int) -> TaskRun:
        """Return the first state of a new task."""
        values = ValueFunction.create(self._spec.obs_dim, generator(seed, Purpose.VALUE_INIT))
        factors = self._first_factors(task, seed)
        return TaskRun(task, seed, factors, values, extras=self._first_extras())

    def _revisit(self, task: str, seed: int) -> TaskRun:
        """Return the first state of a revisit, which keeps the task's value function."""
        factors, values = self._revisit_factors(task), self._finished[task].values.copy()
        return TaskRun(task, seed, factors, values, extras=self._first_extras())

    def _task_factors(self, task: str) -> TaskFactors:
        """Return the current factors of a parked or finished task."""
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

    def _check(self, batch: Batch) -> None:
        """Reject trajectories of another task or of another shape."""
        if batch.task != self.running:
            raise LearnerMisuse(f"trajectories of '{batch.task}' while '{self.running}' runs")
        require_shape('observations', batch.observations, (batch.n_steps, self._spec.obs_dim))
        require_shape('actions', batch.actions, (batch.n_steps, self._spec.act_dim))

    # The state.

    def state(self, parts: Collection[StatePart] = STATE_PARTS) -> dict[str, AnyArray]:
        """Return the state as arrays named `part/...`; copies, safe to keep."""
        state = self._shared_state(parts)
        if 'run' in parts:
            state['run/task'] = pack_text(self.running or '')
            state['run/version'] = pack_number(self._version)
            state |= prefixed('run', self._run.arrays()) if self._run else {}
        if 'base' in parts:
            state |= self._base_state()
        if 'models' in parts:
            for task, done in self._finished.items():
                state |= prefixed(f'models/{task}', value_arrays(done.values))
        return state

    def _base_state(self) -> dict[str, AnyArray]:
        state = {
            'base/format': pack_number(FORMAT),
            'base/learner': pack_text(self.name),
            'base/shape': np.array(self._shape(), np.uint64),
            'base/version': pack_number(self._version),
            'base/basis': self._basis().copy(),
            'base/order': pack_names(self._order),
            'base/finished': pack_names(self._finished),
            'base/parked': pack_names(self._parked),
        }
        for task, done in self._finished.items():
            state |= prefixed(f'base/task/{task}', factor_arrays(done.factors))
        for task, run in self._parked.items():
            state |= prefixed(f'base/parked/{task}', run.arrays())
        return state

    def _shape(self) -> tuple[int, ...]:
        return (self._spec.obs_dim, self._spec.act_dim, *self._spec.hidden)

    def load_state(self, state: dict[str, AnyArray]) -> None:
        """Replace the whole state; raise `StateMismatch` and change nothing if it does not fit."""
        fresh, reader = copy.copy(self), StateReader(state)
        fresh._read(reader)
        reader.finish()
        vars(self).update(vars(fresh))

    def adopt(self, shared: dict[str, AnyArray]) -> None:
        """Replace everything learned by another learner's state; the version keeps growing.

        Tasks parked there are left out; one parked in a revisit is as it was before.
        """
        if self.running is not None:
            raise LearnerMisuse(f'{self.running} is in training; stop it first')
        version = self._version
        self.load_state(self.state(['run']) | shared)
        for task in tuple(self._parked):
            if task in self._finished:
                self.start_task(task, seed=0)
                self.cancel_task()
            else:
                self.forget_task(task)
        self._version = max(self._version, version) + 1

    def _read(self, reader: StateReader) -> None:
        """Read everything; replaces attributes, never changes what they hold.

        `run` may be newer than `base`: a task that was parked then may be running now.
        """
        self._read_header(reader)
        self._version = max(reader.number('base/version'), reader.number('run/version'))
        order, finished = reader.names('base/order'), reader.names('base/finished')
        parked, running = reader.names('base/parked'), reader.text('run/task')
        self._read_shared(reader, finished)
        spec, k = self._spec, self._basis().shape[1]
        self._finished = {
            task: FinishedTask(
                read_factors(reader, f'base/task/{task}', spec, k),
                read_values(reader, f'models/{task}', spec.obs_dim),
            )
            for task in finished
        }
        self._parked = {
            task: self._read_run(reader, f'base/parked/{task}', task) for task in parked
        }
        self._run = None
        if running:
            self._parked.pop(running, None)
            self._run = self._read_run(reader, 'run', running)
        held = dict.fromkeys((*finished, *parked, *([running] if running else [])))
        if not {*finished, *parked} <= set(order):
            raise StateMismatch('base/order does not name every finished and parked task')
        self._order = [t for t in order if t in held] + [t for t in held if t not in order]

    def _read_run(self, reader: StateReader, prefix: str, task: str) -> TaskRun:
        k, extras = self._basis().shape[1], self._extra_sizes()
        return TaskRun(task, *read_run(reader, prefix, self._spec, k, extras))

    def _read_header(self, reader: StateReader) -> None:
        """Reject a state of another format, method or policy shape."""
        if (found := reader.number('base/format')) != FORMAT:
            raise StateMismatch(f'the state has format {found}, this version reads {FORMAT}')
        if (learner := reader.text('base/learner')) != self.name:
            raise StateMismatch(f"the state is of learner '{learner}', not '{self.name}'")
        if reader.has('base/moments'):
            raise StateMismatch('the state was learned with normalise=true, this learner is not')
        shape = self._shape()
        if (had := tuple(reader.array('base/shape', (None,), np.uint64).tolist())) != shape:
            raise StateMismatch(f'the state is of policies {had}, this learner has {shape}')
        reader.floats('base/basis', self._spec.n_parameters, None)


def _relative_change(old: Array, new: Array) -> float:
    size = float(np.linalg.norm(old))
    return float(np.linalg.norm(new - old)) / size if size > 0.0 else 0.0
