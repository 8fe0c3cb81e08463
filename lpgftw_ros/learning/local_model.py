r"""The quadratic model a finished task leaves behind.

.. math:: J(\theta) \approx J(\alpha) + g^\top(\theta - \alpha)
          + (\theta - \alpha)^\top H (\theta - \alpha)

H is *half* the Hessian and negative definite. For the natural gradient it is the curvature that
makes the KL-limited step the optimum: with :math:`\tilde F = F + \max(0, f - \lambda_{min}) I`,

.. math:: H = -\tfrac12 \sqrt{g^\top \tilde F^{-1} g / \delta}\; \tilde F
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, eigvalsh

from lpgftw_ros.learning.arrays import Array, require_finite, require_shape
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.fisher import Fisher
from lpgftw_ros.learning.gradients import Activations, forward, surrogate_gradient
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.learning.state import AnyArray, prefixed, StateReader

LEAST_KL_PRICE = 0.01
"""Far below what the noise of any finite batch gives."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Quadratic model of one task's return around its tuned parameters."""

    alpha: Array
    """Tuned parameters, the expansion point. Shape (d,)."""
    g: Array
    """Gradient of the return at `alpha`. Shape (d,)."""
    H: Array
    """Half the Hessian at `alpha`, negative definite. Shape (d, d)."""

    def __post_init__(self) -> None:
        """Check shapes and finiteness before anything is built on the model."""
        d = len(self.alpha)
        require_shape('alpha', self.alpha, (d,))
        require_shape('g', self.g, (d,))
        require_shape('H', self.H, (d, d))
        require_finite('alpha', self.alpha)
        require_finite('g', self.g)
        require_finite('H', self.H)


def local_model(
    policy: PolicySnapshot, obs: Array, actions: Array, advantages: Array, config: TrainingConfig
) -> LocalModel:
    """Build the model of a task at its policy, over theta alone (head, log sigma held)."""
    at = forward(policy, obs)
    g = surrogate_gradient(policy, at, actions, advantages).theta
    require_finite('the gradient of the local model', g)
    if config.step == 'reinforce':
        return LocalModel(policy.theta, g, reinforce_curvature(policy, at, advantages, config))
    F = Fisher(policy, at).of_theta()
    return LocalModel(policy.theta, g, natural_curvature(F, g, config))


def natural_curvature(F: Array, g: Array, config: TrainingConfig) -> Array:
    """Return H = -1/2 sqrt(g' F~^-1 g / delta) F~; F is overwritten."""
    smallest = float(eigvalsh(F, subset_by_index=(0, 0), check_finite=False)[0])
    F[np.diag_indices_from(F)] += max(0.0, config.fisher_floor - smallest)
    g_Finv_g = float(g @ cho_solve(cho_factor(F, lower=True, check_finite=False), g))
    F *= -0.5 * kl_price(g_Finv_g, config)
    return F


def kl_price(g_Finv_g: float, config: TrainingConfig) -> float:
    """Return sqrt(g' F^-1 g / delta), what a unit of KL costs in return; never quite nothing.

    Equal rewards everywhere give a gradient of exactly zero; without a floor such a task would
    have no say in L at all and the ridge would pull its parameters away.
    """
    return max(float(np.sqrt(g_Finv_g / config.max_kl)), LEAST_KL_PRICE)


def reinforce_curvature(
    policy: PolicySnapshot, at: Activations, advantages: Array, config: TrainingConfig
) -> Array:
    """Return -1/2 E[A J' S^-1 J], projected so that every eigenvalue is at most -floor."""
    raw = -0.5 * Fisher(policy, at).of_theta(advantages)
    values, vectors = eigh(0.5 * (raw + raw.T))
    return np.asarray((vectors * np.minimum(values, -config.fisher_floor)) @ vectors.T)


def model_arrays(task: str, model: LocalModel) -> dict[str, AnyArray]:
    """Return the arrays a state keeps of a task's model; models never change, so no copies."""
    return prefixed(f'models/{task}', {'alpha': model.alpha, 'g': model.g, 'H': model.H})


def read_model(reader: StateReader, task: str, d: int) -> LocalModel:
    """Read the model of a task with d parameters."""
    return LocalModel(
        reader.floats(f'models/{task}/alpha', d),
        reader.floats(f'models/{task}/g', d),
        reader.floats(f'models/{task}/H', d, d),
    )
