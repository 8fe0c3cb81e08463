"""What all learners do alike beyond their book of tasks: one iteration, finishing, the state.

A method fills in which coordinates a step moves (`_coordinates`), what it climbs (`_gradient`)
and what finishing a task does (`_fold`).
"""

from abc import abstractmethod
from collections.abc import Collection
import copy
from dataclasses import replace
import time

import numpy as np

from lpgftw_ros.errors import LearnerMisuse, StateMismatch
from lpgftw_ros.learning.arrays import Array, require_shape
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.gradients import Activations, forward, surrogate_gradient
from lpgftw_ros.learning.learner import (
    FinishReport,
    STATE_PARTS,
    StatePart,
    StepReport,
    ValueReport,
)
from lpgftw_ros.learning.policies import compose, PolicySnapshot, TaskFactors
from lpgftw_ros.learning.state import (
    AnyArray,
    FORMAT,
    pack_names,
    pack_number,
    pack_text,
    prefixed,
    StateReader,
)
from lpgftw_ros.learning.steps import Coordinates, Move, policy_step
from lpgftw_ros.learning.task_book import FinishedTask, TaskBook
from lpgftw_ros.learning.task_run import (
    factor_arrays,
    read_factors,
    read_run,
    read_values,
    TaskRun,
)
from lpgftw_ros.learning.values import value_arrays


class BaseLearner(TaskBook):
    """A learner of one task after another."""

    def _coordinates(self, run: TaskRun) -> Coordinates:
        """Return what a step moves: by default theta, as the residual, head and log sigma."""
        return Coordinates(self._spec, np.zeros((self._spec.n_parameters, 0)), free=True)

    def _gradient(
        self, policy: PolicySnapshot, at: Activations, batch: Batch, advantages: Array
    ) -> Move:
        """Return what a step climbs: by default the gradient of the surrogate return."""
        gradient = surrogate_gradient(policy, at, batch.actions, advantages)
        return self._coordinates(self._need_run()).pull_back(gradient)

    @abstractmethod
    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        """Take the running task into the shared knowledge; return the factors that stay."""

    def _after_step(
        self, run: TaskRun, policy: PolicySnapshot, batch: Batch, advantages: Array
    ) -> bool:
        """Do what follows a step, `policy` being the one before; return if the basis changed."""
        return False

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        """Return the method's own arrays, by full key."""
        return {}

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        """Read the method's own arrays; new objects only, nothing changed in place."""

    def improve(self, batch: Batch) -> StepReport:
        """Take one policy step from trajectories of the current policy."""
        began = time.perf_counter()
        run = self._need_run()
        self._check(batch)
        advantages, due = run.begin_iteration(batch, self._config)
        policy = self._running_policy()
        at = forward(policy, batch.observations)
        coordinates = self._coordinates(run)
        gradient = self._gradient(policy, at, batch, advantages)
        step = policy_step(policy, coordinates, gradient, at, self._config)
        factors = coordinates.move_factors(run.factors, step.move)
        moved = replace(run, factors=factors, due=due, iteration=run.iteration + 1)
        stepped = time.perf_counter()
        updated = self._after_step(moved, policy, batch, advantages)
        self._run = moved
        return StepReport(
            step.kl,
            step.length,
            step.refused,
            float(np.linalg.norm(gradient.flat())),
            updated,
            stepped - began,
            time.perf_counter() - stepped,
        )

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
        return FinishReport(
            _relative_change(basis, new_basis[:, : basis.shape[1]]),
            _relative_change(theta, compose(new_basis, self._task_factors(run.task))),
            new_basis.shape[1],
            time.perf_counter() - began,
        )

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
        spec = self._spec
        state = {
            'base/format': pack_number(FORMAT),
            'base/learner': pack_text(self.name),
            'base/shape': np.array((spec.obs_dim, spec.act_dim, *spec.hidden), np.uint64),
            'base/version': pack_number(self._version),
            'base/order': pack_names(self._order),
            'base/finished': pack_names(self._finished),
            'base/parked': pack_names(self._parked),
        }
        for task, done in self._finished.items():
            state |= prefixed(f'base/task/{task}', factor_arrays(done.factors))
        for task, run in self._parked.items():
            state |= prefixed(f'base/parked/{task}', run.arrays())
        return state

    def load_state(self, state: dict[str, AnyArray]) -> None:
        """Replace the whole state; raise `StateMismatch` and change nothing if it does not fit."""
        fresh, reader = copy.copy(self), StateReader(state)
        fresh._read(reader)
        reader.finish()
        vars(self).update(vars(fresh))

    def adopt(self, shared: dict[str, AnyArray]) -> None:
        """Replace all that was learned by another learner's; the version counts on."""
        if self.running is not None:
            raise LearnerMisuse(f'{self.running} is in training; stop it first')
        version = self._version
        self.load_state(self.state(['run']) | shared)
        for task in tuple(self._parked):
            self.forget_task(task)
        self._version = max(self._version, version) + 1

    def _read(self, reader: StateReader) -> None:
        """Read everything; replaces attributes, never changes what they hold.

        `run` may be newer than `base`: a task that was parked then may be running now.
        """
        spec = self._spec
        self._read_header(reader)
        self._version = max(reader.number('base/version'), reader.number('run/version'))
        order, finished = reader.names('base/order'), reader.names('base/finished')
        parked, running = reader.names('base/parked'), reader.text('run/task')
        self._read_shared(reader, finished)
        k = self._basis().shape[1]
        self._finished = {
            task: FinishedTask(
                read_factors(reader, f'base/task/{task}', spec, k),
                read_values(reader, f'models/{task}', spec.obs_dim),
            )
            for task in finished
        }
        self._parked = {
            task: read_run(reader, f'base/parked/{task}', task, spec, k, self._extra_sizes())
            for task in parked
        }
        self._run = None
        if running:
            self._parked.pop(running, None)
            self._run = read_run(reader, 'run', running, spec, k, self._extra_sizes())
        held = dict.fromkeys((*finished, *parked, *([running] if running else [])))
        if not {*finished, *parked} <= set(order):
            raise StateMismatch('base/order does not name every finished and parked task')
        self._order = [t for t in order if t in held] + [t for t in held if t not in order]

    def _read_header(self, reader: StateReader) -> None:
        """Reject a state of another format, method or policy shape."""
        spec = self._spec
        if (found := reader.number('base/format')) != FORMAT:
            raise StateMismatch(f'the state has format {found}, this version reads {FORMAT}')
        if (learner := reader.text('base/learner')) != self.name:
            raise StateMismatch(f"the state is of learner '{learner}', not '{self.name}'")
        shape = (spec.obs_dim, spec.act_dim, *spec.hidden)
        if (had := tuple(reader.array('base/shape', (None,), np.uint64).tolist())) != shape:
            raise StateMismatch(f'the state is of policies {had}, this learner has {shape}')


def _relative_change(old: Array, new: Array) -> float:
    size = float(np.linalg.norm(old))
    return float(np.linalg.norm(new - old)) / size if size > 0.0 else 0.0
