r"""Natural gradient whose parts, and length, are weighed by what two halves of a batch agree on.

A batch is small: along few shared directions (s and the head) its gradient is mostly signal,
along the d directions of theta or of a residual mostly noise, and a step of fixed KL spends itself
on the noise. With the shared directions P and the residual as the other part,

.. math::
    g_S = F P (P^\top F P)^{-1} P^\top g, \qquad g_R = g - g_S,

which are orthogonal in the metric F, and the gradients :math:`g^1, g^2` of the two halves,

.. math::
    c_i = {g_i^1}^\top F^{-1} g_i^2, \qquad
    w_i = \mathrm{clip}\Big(\frac{c_i}{\bar g_i^\top F^{-1} \bar g_i},\, 0,\, 1\Big), \qquad
    \bar g_i = \tfrac12 (g_i^1 + g_i^2).

:math:`c_i` has the noise of neither half on average, so :math:`w_i` is the share of a part that is
signal. The step is along :math:`F^{-1}(w_S g_S + w_R g_R)`, and its KL is :math:`\rho\,\delta`
with :math:`\rho = \sum w_i c_i / \sum \max(0, c_i)`, about the squared cosine between this
direction and the true one, at least `LEAST`. If the halves agree on nothing, it is the plain
direction. What a method adds to the gradient of the return (a penalty, replayed trajectories) has
no halves and is added whole. Log sigma moves with the weight of both parts together: a smaller
sigma almost always earns more at once, so with a weight of its own it would fall before the mean
is where it should be.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.learner import measure
from lpgftw_ros.learning.policies import PolicyGradient, surrogate_gradient
from lpgftw_ros.learning.steps import (
    conjugate_gradient,
    Fisher,
    guarded,
    Move,
    Npg,
    PolicyStep,
    StepStart,
)

SHARED_WEIGHT = measure('shared_weight', 'share of signal along the shared directions')
OWN_WEIGHT = measure('own_weight', 'share of signal along theta or the residual')
LEAST = 0.05
"""Smallest share of the allowed KL, taken where the halves agree on nothing."""


class Agreed(Npg):
    """Natural gradient that trusts a batch as far as its halves agree."""

    def step(self, start: StepStart, gradient: Move) -> PolicyStep:
        """Step along the weighed gradient, as far as its share of signal allows."""
        common, energy = self.agreement(start)
        weights, rho = share(common, energy), LEAST
        if weights.any():
            (both,) = share(common.sum(keepdims=True), energy.sum(keepdims=True))
            own = self.gradient(start)
            added = gradient.flat() - start.share * own.flat()
            moved = start.coordinates.split(weights @ self.parts(start, own))
            moved = replace(moved, log_std=both * own.log_std)
            gradient = start.coordinates.split(start.share * moved.flat() + added)
            rho = max(LEAST, float(weights @ common / np.sum(common, where=common > 0.0)))
        x, length = self.direction(start, gradient)
        found = {SHARED_WEIGHT: float(weights[0]), OWN_WEIGHT: float(weights[1])}
        step = guarded(start, x, length * np.sqrt(rho), rho * self._config.max_kl)
        return replace(step, measures=found)

    def agreement(self, start: StepStart) -> tuple[Array, Array]:
        """Return what the halves have in common, c, and the energy of their mean, by part."""
        product = start.coordinates.fisher(Fisher(start.policy, start.at))
        first, second = (self.parts(start, g) for g in half_gradients(start))
        common, energy = np.zeros(2), np.zeros(2)
        for i in range(2):
            x1, x2 = self._solve(product, first[i]), self._solve(product, second[i])
            common[i] = 0.5 * float(x1 @ second[i] + x2 @ first[i])
            energy[i] = 0.25 * float((x1 + x2) @ (first[i] + second[i]))
        return common, energy

    def parts(self, start: StepStart, gradient: Move) -> Array:
        """Return the shared and the own part of a gradient, without log sigma. Shape (2, n)."""
        coordinates = start.coordinates
        g = replace(gradient, log_std=np.zeros_like(gradient.log_std)).flat()
        k = coordinates.basis.shape[1]
        if not coordinates.free:
            return np.array((g, np.zeros_like(g)))
        fisher = Fisher(start.policy, start.at)
        F = fisher.of_coefficients(coordinates.basis)
        F += self._config.cg_damping * np.eye(len(F))
        rest = np.concatenate((gradient.coefficients, gradient.head))
        x = np.linalg.lstsq(F, rest, rcond=None)[0]  # columns may depend on each other
        theta, head = fisher.product(coordinates.basis @ x[:k], x[k:])
        of_shared = PolicyGradient(theta, head, np.zeros_like(gradient.log_std))
        shared = coordinates.pull_back(of_shared).flat()
        return np.array((shared, g - shared))

    def _solve(self, product: Callable[[Array], Array], g: Array) -> Array:
        config = self._config
        return conjugate_gradient(
            product, g, iterations=config.cg_iterations, damping=config.cg_damping
        )


def share(common: Array, energy: Array) -> Array:
    """Return common / energy between 0 and 1; 0 without energy."""
    ratio = np.divide(common, energy, out=np.zeros_like(common), where=energy > 0.0)
    return np.clip(ratio, 0.0, 1.0)


def half_gradients(start: StepStart) -> tuple[Move, Move]:
    """Return the gradient of the surrogate return over each half of the batch.

    Halves hold whole trajectories. A single one is divided into what came first and last: these
    depend on each other, so little can be said then.
    """
    n, starts = len(start.advantages), start.starts
    inner = starts[1:]
    middle = int(inner[np.argmin(np.abs(inner - n / 2))]) if len(inner) else n // 2
    both = []
    for rows in (slice(0, middle), slice(middle, len(start.advantages))):
        at, actions, advantages = start.at.rows(rows), start.actions[rows], start.advantages[rows]
        here = surrogate_gradient(start.policy, at, actions, advantages)
        both.append(start.coordinates.pull_back(here))
    return both[0], both[1]
