"""The common part of methods with one shared policy: a committed theta that all tasks use.

As a basis, theta is a single column. A finished task has s = [1] and no residual; the task in
training works on its own copy (s = [0], residual = theta) that is committed when it finishes.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.learner import StatePart
from lpgftw_ros.learning.lifetime import LifelongLearner, TaskRun
from lpgftw_ros.learning.policies import (
    initial_head,
    initial_theta,
    PolicySnapshot,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.serialise import AnyArray, StateReader


class SharedPolicyLearner(LifelongLearner):
    """A learner whose tasks share theta as it is."""

    def __init__(
        self, spec: PolicySpec, config: TrainingConfig, seed: int, *, shared_std: bool = False
    ) -> None:
        super().__init__(spec, config, seed)
        self._shared_std = shared_std
        self._theta = initial_theta(spec, generator(seed, Purpose.POLICY_INIT))
        self._log_std = self._initial_log_std()

    def _basis(self) -> Array:
        return self._theta[:, None]

    def _first_factors(self, task: str, seed: int) -> TaskFactors:
        head = initial_head(self._spec, generator(seed, Purpose.POLICY_INIT))
        # a sigma per task restarts as the first did; a shared sigma is always the committed one
        return TaskFactors(np.zeros(1), self._theta.copy(), head, self._log_std.copy())

    def _revisit_factors(self, task: str) -> TaskFactors:
        own = self._task_factors(task)
        return TaskFactors(np.zeros(1), self._theta.copy(), own.head, own.log_std)

    def _extra_sizes(self) -> dict[str, int]:
        sizes = {'theta': self._spec.n_parameters, 'log_std': self._spec.act_dim}
        return {f'committed_{name}': size for name, size in sizes.items()}

    def _first_extras(self) -> dict[str, Array]:
        return {'committed_theta': self._theta, 'committed_log_std': self._log_std}

    def _resume(self, run: TaskRun) -> TaskRun:
        """Apply to the parked copy what was committed meanwhile."""
        committed = run.extras['committed_log_std']
        log_std = _carried(run.factors.log_std, committed, self._log_std)
        factors = replace(
            run.factors,
            residual=_carried(run.factors.residual, run.extras['committed_theta'], self._theta),
            log_std=np.maximum(log_std, self._spec.min_log_std),
        )
        return replace(run, factors=factors, extras=self._first_extras())

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        """Commit the working copy."""
        self._theta = run.factors.residual
        if self._shared_std:
            self._log_std = run.factors.log_std
            self._finished = {
                task: replace(done, factors=replace(done.factors, log_std=self._log_std))
                for task, done in self._finished.items()
            }
        return replace(
            run.factors, coefficients=np.ones(1), residual=np.zeros(self._spec.n_parameters)
        )

    def _policy_at(self, theta: Array, task: str) -> PolicySnapshot:
        """Return a finished task's policy for another shared theta."""
        own = self._task_factors(task)
        return PolicySnapshot(self._spec, theta, own.head, own.log_std)

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        if 'base' not in parts:
            return {}
        return {'base/log_std': self._log_std.copy()}

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        self._theta = reader.floats('base/basis', self._spec.n_parameters, 1)[:, 0].copy()
        self._log_std = reader.floats('base/log_std', self._spec.act_dim)


def _carried(working: Array, committed_then: Array, committed_now: Array) -> Array:
    """Move a parked copy by the change of its original; bit for bit the same if there is none."""
    if np.array_equal(committed_then, committed_now):
        return working
    return working + (committed_now - committed_then)
