"""Single-task learning: every task alone, all from the same initial policy."""

from dataclasses import dataclass

import numpy as np

from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.lifetime import LifelongLearner, TaskRun
from lpgftw_ros.learning.policies import initial_head, initial_theta, TaskFactors
from lpgftw_ros.learning.randomness import generator, Purpose


@dataclass(frozen=True, kw_only=True, slots=True)
class StlConfig(TrainingConfig):
    """Settings of single-task learning."""


class Stl(LifelongLearner):
    """Learn each task on its own: no columns, residual = theta."""

    name = 'stl'

    def _basis(self) -> Array:
        return np.zeros((self._spec.n_parameters, 0))

    def _first_factors(self, task: str, seed: int) -> TaskFactors:
        # from the learner's seed, not the task's: all tasks of a trial start alike, as published
        rng = generator(self._seed, Purpose.POLICY_INIT)
        theta, head = initial_theta(self._spec, rng), initial_head(self._spec, rng)
        return TaskFactors(np.zeros(0), theta, head, self._initial_log_std())

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        return run.factors
