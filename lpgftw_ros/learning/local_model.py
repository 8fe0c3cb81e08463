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

LEAST_KL_PRICE = 0.01
"""Far below the sampling noise of any finite batch."""


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


def natural_curvature(F: Array, g: Array, config: TrainingConfig) -> Array:
    """Return H = -1/2 sqrt(g' F~^-1 g / delta) F~; F is overwritten."""
    smallest = float(eigvalsh(F, subset_by_index=(0, 0), check_finite=False)[0])
    F[np.diag_indices_from(F)] += max(0.0, config.fisher_floor - smallest)
    g_Finv_g = float(g @ cho_solve(cho_factor(F, lower=True, check_finite=False), g))
    F *= -0.5 * kl_price(g_Finv_g, config)
    return F


def kl_price(g_Finv_g: float, config: TrainingConfig) -> float:
    """Return sqrt(g' F^-1 g / delta), the price of a unit of KL in return; never zero.

    Equal rewards everywhere give a gradient of exactly zero; without a floor such a task would not
    count in L, and the ridge would pull its parameters to zero.
    """
    return max(float(np.sqrt(g_Finv_g / config.max_kl)), LEAST_KL_PRICE)


def bounded_curvature(raw: Array, config: TrainingConfig) -> Array:
    """Return the symmetric part of half a Hessian, every eigenvalue at most -floor."""
    values, vectors = eigh(0.5 * (raw + raw.T))
    return np.asarray((vectors * np.minimum(values, -config.fisher_floor)) @ vectors.T)
