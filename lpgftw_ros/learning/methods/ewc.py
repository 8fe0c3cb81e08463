r"""Elastic weight consolidation: one policy for all tasks, anchored where earlier tasks need it.

While task t is learned the gradient is (:math:`H_j` half a Hessian, negative definite)

.. math:: \nabla J(\theta) + 2 \lambda \sum_{j \ne t} H_j (\theta - \alpha_j)

for the original penalty; the scaled one divides by the number of earlier tasks; Huszár's is
:math:`2 \lambda (\sum_j H_j)(\theta - \alpha_{last})`. The penalty is only in the gradient: metric
and step length are those of the task alone. log sigma and heads are not penalised.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.config import setting, TrainingConfig
from lpgftw_ros.learning.learner import StatePart
from lpgftw_ros.learning.lifetime import TaskRun
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.methods.shared_policy import SharedPolicyLearner
from lpgftw_ros.learning.policies import Activations, PolicySnapshot, PolicySpec, TaskFactors
from lpgftw_ros.learning.serialise import (
    AnyArray,
    model_arrays,
    pack_names,
    read_model,
    StateReader,
)
from lpgftw_ros.learning.steps import Move


@dataclass(frozen=True, kw_only=True, slots=True)
class EwcConfig(TrainingConfig):
    """Settings of elastic weight consolidation."""

    ewc_weight: float = setting(1e-6, 'weight of the penalty (lambda)', min=0.0, max=1e6)
    penalty: Literal['original', 'scaled', 'huszar'] = setting(
        'original', 'form of the penalty', choices=('original', 'scaled', 'huszar')
    )
    shared_std: bool = setting(
        True, 'keep one sigma for all tasks instead of restarting it for each'
    )


class Ewc(SharedPolicyLearner):
    """One shared policy with a quadratic penalty around the optima of earlier tasks."""

    name = 'ewc'
    _config: EwcConfig

    def __init__(self, spec: PolicySpec, config: EwcConfig, seed: int) -> None:
        super().__init__(spec, config, seed, shared_std=config.shared_std)
        self._models: dict[str, LocalModel] = {}
        self._pull: tuple[str, Array, Array] | None = None

    def _gradient(
        self, policy: PolicySnapshot, at: Activations, batch: Batch, advantages: Array
    ) -> Move:
        gradient = super()._gradient(policy, at, batch, advantages)
        pull = self.penalty_gradient(policy.theta)
        return replace(gradient, residual=gradient.residual + pull)

    def penalty_gradient(self, theta: Array) -> Array:
        """Return the gradient of the penalty of all tasks but the running one. Shape (d,)."""
        anchors = [model for task, model in self._models.items() if task != self.running]
        weight = 2.0 * self._config.ewc_weight
        if not anchors or weight == 0.0:
            return np.zeros_like(theta)
        H_sum, H_alpha = self._sums(anchors)
        if self._config.penalty == 'huszar':
            return np.asarray(weight * (H_sum @ (theta - anchors[-1].alpha)))
        if self._config.penalty == 'scaled':
            weight /= len(anchors)
        return np.asarray(weight * (H_sum @ theta - H_alpha))

    def _sums(self, anchors: list[LocalModel]) -> tuple[Array, Array]:
        """Return the sums of H and H alpha, cached while one task runs."""
        running = self.running or ''
        if self._pull is None or self._pull[0] != running:
            H_sum = np.zeros((self._spec.n_parameters, self._spec.n_parameters))
            H_alpha = np.zeros(self._spec.n_parameters)
            for model in anchors:
                H_sum += model.H
                H_alpha += model.H @ model.alpha
            self._pull = (running, H_sum, H_alpha)
        return self._pull[1], self._pull[2]

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        """Keep the task's penalty; `batch` has the `update_trajectories` of its last policy."""
        advantages = run.advantages(batch, self._config, self._config.model_gae_lambda)
        policy = self._running_policy()
        data = (policy, batch.observations, batch.actions, advantages)
        model = self._base_learner.local_model(*data)
        # a revisited task becomes the last anchor, as its alpha is the newest
        self._models.pop(run.task, None)
        self._models[run.task] = model
        self._pull = None
        return super()._fold(run, batch)

    def _drop(self, task: str) -> None:
        """Remove the task's penalty; its effect on the shared theta stays."""
        del self._models[task]
        self._pull = None

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        state = super()._shared_state(parts)
        if 'base' in parts:
            state['base/anchors'] = pack_names(self._models)
        if 'models' in parts:
            for task, model in self._models.items():
                state |= model_arrays(task, model)
        return state

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        super()._read_shared(reader, finished)
        anchors = reader.names('base/anchors')
        if sorted(anchors) != sorted(finished):
            raise StateMismatch('base/anchors does not name the finished tasks')
        d = self._spec.n_parameters
        self._models = {task: read_model(reader, task, d) for task in anchors}
        self._pull = None
