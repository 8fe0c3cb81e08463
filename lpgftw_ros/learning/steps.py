r"""One policy step: natural gradient at a fixed KL, or plain REINFORCE.

A step moves some coordinates of a policy: log sigma, the coefficients s of basis columns, theta
itself (or the residual, which is added to it) and the head, flattened in this order. Everything
here is a pure function; a step that cannot be taken raises before anything has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array, require_finite
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.fisher import Fisher
from lpgftw_ros.learning.gradients import Activations, mean_kl, PolicyGradient
from lpgftw_ros.learning.policies import mean_action, PolicySnapshot, PolicySpec, TaskFactors

KL_EXCESS = 3.0
"""A step is halved while its measured KL is above this many times the allowed one."""
MAX_HALVINGS = 40
TINY = 1e-20


@dataclass(frozen=True, slots=True)
class Move:
    """A change (or a gradient) of the coordinates a step may move."""

    log_std: Array
    coefficients: Array
    """Of the basis columns in use. Shape (k,), k may be 0."""
    residual: Array
    """Of theta itself; empty if only the coefficients move. Shape (d,) or (0,)."""
    head: Array

    def flat(self) -> Array:
        """Return all coordinates as one vector."""
        return np.concatenate((self.log_std, self.coefficients, self.residual, self.head))


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Which coordinates a step moves."""

    spec: PolicySpec
    basis: Array
    """Columns whose coefficients move. Shape (d, k), k may be 0."""
    free: bool
    """True if theta (or the residual) moves too."""

    def pull_back(self, gradient: PolicyGradient) -> Move:
        """Return the gradient in these coordinates: L' g for s, g for theta."""
        residual = gradient.theta if self.free else np.zeros(0)
        return Move(gradient.log_std, self.basis.T @ gradient.theta, residual, gradient.head)

    def split(self, flat: Array) -> Move:
        """Undo `Move.flat`."""
        d = self.spec.n_parameters if self.free else 0
        ends = np.cumsum((self.spec.act_dim, self.basis.shape[1], d))
        return Move(*np.split(flat, ends))

    def fisher(self, fisher: Fisher) -> Callable[[Array], Array]:
        """Return v -> F v in these coordinates, the block 2 I of log sigma included."""
        m = self.spec.act_dim
        if not self.free:
            small = fisher.of_coefficients(self.basis)
            return lambda v: np.concatenate((2.0 * v[:m], small @ v[m:]))
        return lambda v: self._product(fisher, self.split(v))

    def _product(self, fisher: Fisher, v: Move) -> Array:
        theta, head = fisher.product(self.basis @ v.coefficients + v.residual, v.head)
        return self.pull_back(PolicyGradient(theta, head, 2.0 * v.log_std)).flat()

    def move_policy(self, policy: PolicySnapshot, move: Move) -> PolicySnapshot:
        """Return the policy after a move, log sigma kept above its floor."""
        theta = policy.theta + self.basis @ move.coefficients
        return PolicySnapshot(
            self.spec,
            theta + move.residual if self.free else theta,
            policy.head + move.head,
            np.maximum(policy.log_std + move.log_std, self.spec.min_log_std),
        )

    def move_factors(self, factors: TaskFactors, move: Move) -> TaskFactors:
        """Return a task's factors after a move, log sigma kept above its floor."""
        return TaskFactors(
            factors.coefficients + move.coefficients
            if self.basis.shape[1]
            else factors.coefficients,
            factors.residual + move.residual if self.free else factors.residual,
            factors.head + move.head,
            np.maximum(factors.log_std + move.log_std, self.spec.min_log_std),
        )


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A step ready to be applied."""

    move: Move
    kl: float
    """Measured mean KL(old || new)."""
    length: float
    """Factor on the (natural) gradient."""
    refused: int
    """How often the step was halved."""


def conjugate_gradient(
    product: Callable[[Array], Array], g: Array, *, iterations: int, damping: float
) -> Array:
    """Solve (F + damping I) x = g from x = 0, at most `iterations` steps."""
    x = np.zeros_like(g)
    r, p = g.copy(), g.copy()
    rr = float(r @ r)
    for _ in range(iterations):
        if rr < 1e-10:
            break
        Fp = product(p) + damping * p
        alpha = rr / float(p @ Fp)
        x += alpha * p
        r -= alpha * Fp
        rr, rr_old = float(r @ r), rr
        p = r + (rr / rr_old) * p
    return x


def policy_step(
    policy: PolicySnapshot,
    coordinates: Coordinates,
    gradient: Move,
    at: Activations,
    config: TrainingConfig,
) -> PolicyStep:
    """Take the step the configuration asks for, up the gradient."""
    g = gradient.flat()
    require_finite('the policy gradient', g)
    if config.step == 'reinforce':
        return _guarded(policy, coordinates, g, config.learning_rate, at, config.max_kl)
    x = natural_gradient(coordinates, g, Fisher(policy, at), config)
    # eta = sqrt(2 delta / g' F^-1 g), so that the KL of the step is delta
    eta = np.sqrt(2.0 * config.max_kl / (abs(float(g @ x)) + TINY))
    return _guarded(policy, coordinates, x, float(eta), at, config.max_kl)


def natural_gradient(
    coordinates: Coordinates, g: Array, fisher: Fisher, config: TrainingConfig
) -> Array:
    """Return F^-1 g, as far as the configured conjugate gradient gets."""
    x = conjugate_gradient(
        coordinates.fisher(fisher), g, iterations=config.cg_iterations, damping=config.cg_damping
    )
    require_finite('the natural gradient', x)
    return x


def _guarded(
    policy: PolicySnapshot,
    coordinates: Coordinates,
    direction: Array,
    length: float,
    at: Activations,
    max_kl: float,
) -> PolicyStep:
    """Measure the KL of a step and halve it until it is acceptable."""
    for refused in range(MAX_HALVINGS + 1):
        move = coordinates.split(length * direction)
        new = coordinates.move_policy(policy, move)
        new_mean = mean_action(new.spec, new.theta, new.head, at.obs)
        kl = mean_kl(policy, at.mean, new, new_mean)
        if kl <= KL_EXCESS * max_kl:  # False for NaN
            return PolicyStep(move, kl, length, refused)
        length *= 0.5
    raise NonFinite(
        f'no acceptable policy step: KL {kl:g} after {refused} halvings, allowed {max_kl:g}'
    )


def with_sparsity(gradient: Move, coefficients: Array, weight: float) -> Move:
    """Add the sub-gradient of -weight |s|_1."""
    s = gradient.coefficients - weight * np.sign(coefficients)
    return replace(gradient, coefficients=s)


def with_decay(gradient: Move, residual: Array, weight: float) -> Move:
    """Add the gradient of -weight |eps|^2."""
    return replace(gradient, residual=gradient.residual - 2.0 * weight * residual)
