r"""Base learners: one policy step by natural gradient at a fixed KL, or by plain REINFORCE.

A step moves some coordinates of a policy: log sigma, the coefficients s of basis columns, theta
itself (or the residual, which is added to it) and the head, flattened in this order. Nothing is
changed in place; a step that cannot be taken raises.

The metric is the Fisher information over the mean parameters,

.. math:: F = E[J^\top \mathrm{diag}(1/\sigma^2) J], \qquad J = \partial\mu/\partial(\theta, head)

The block of log sigma is 2 I, without cross terms. Linear policies have the closed form
:math:`F = \mathrm{diag}(1/\sigma^2) \otimes E[\tilde x \tilde x^\top]`; MLPs use their batch
Jacobian, built layer by layer.

To add a base learner, write a subclass of `BaseLearner` in a file of its own, as `trpo` does, and
a line in `config.BASE_LEARNERS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
import importlib

import numpy as np
from scipy.linalg.blas import dsyrk

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array, Batch, Integers, require_finite
from lpgftw_ros.learning.config import BASE_LEARNERS, TrainingConfig
from lpgftw_ros.learning.local_model import bounded_curvature, LocalModel, natural_curvature
from lpgftw_ros.learning.policies import (
    Activations,
    backward,
    forward,
    mean_action,
    mean_kl,
    PolicyGradient,
    PolicySnapshot,
    PolicySpec,
    push_forward,
    split_head,
    split_theta,
    surrogate_gradient,
    TaskFactors,
    with_one,
)
from lpgftw_ros.learning.solvers import TaskModel, with_form
from lpgftw_ros.learning.solvers.forms import factored_model

KL_EXCESS = 3.0
"""A step is halved while its measured KL is above this many times the allowed one."""
MAX_HALVINGS = 40
TINY = 1e-20
_SMALL_RESIDUAL = 1e-10
"""Squared length of a residual at which conjugate gradients stop."""
CHUNK = 2048
"""Rows of the batch worked on at a time."""


def _precision(policy: PolicySnapshot) -> Array:
    """Return 1 / sigma^2. Shape (act_dim,)."""
    return np.asarray(np.exp(-2.0 * policy.log_std))


@dataclass(frozen=True, slots=True)
class Fisher:
    """Fisher information of one policy over one batch, in the form a caller needs."""

    policy: PolicySnapshot
    at: Activations

    def product(self, d_theta: Array, d_head: Array) -> tuple[Array, Array]:
        """Return F v for v = (d_theta, d_head), without forming F.

        Works chunk by chunk, so that the forward pass is still in the cache on the way back.
        """
        theta, head = np.zeros_like(d_theta), np.zeros_like(d_head)
        weight = _precision(self.policy) / len(self.at.mean)
        for start in range(0, len(self.at.mean), CHUNK):
            at = self.at.rows(slice(start, start + CHUNK))
            d_mean = weight * push_forward(self.policy, at, d_theta, d_head)
            part = backward(self.policy, at, d_mean)
            theta, head = theta + part[0], head + part[1]
        return theta, head

    def of_theta(self, weights: Array | None = None) -> Array:
        """Return F over theta alone, head held fixed; rows may be weighted. Shape (d, d)."""
        if not self.policy.spec.hidden:
            x = with_one(self.at.obs)
            second_moment = (x if weights is None else x * weights[:, None]).T @ x / len(x)
            return np.kron(np.diag(_precision(self.policy)), second_moment)
        return _mlp_theta(self.policy, self.at, weights)

    def of_coefficients(self, basis: Array) -> Array:
        """Return P' F P for P = blkdiag(L, I): over (s, head). Shape (k + h, k + h)."""
        if not self.policy.spec.hidden:
            x = with_one(self.at.obs)
            rows = basis.reshape(self.policy.spec.act_dim, x.shape[1], -1 if basis.size else 0)
            tangents = np.einsum('ank,nm,aml->akl', rows, x.T @ x / len(x), rows)
            return np.asarray(np.einsum('a,akl->kl', _precision(self.policy), tangents))
        return _mlp_coefficients(self.policy, self.at, basis)


def _mlp_theta(policy: PolicySnapshot, at: Activations, weights: Array | None) -> Array:
    """Accumulate J' S^-1 J over actions and chunks of rows."""
    d, n_rows = policy.spec.n_parameters, len(at.mean)
    F = np.zeros((d, d), order='F')
    scale = _precision(policy) / n_rows
    for start in range(0, n_rows, CHUNK):
        rows = slice(start, start + CHUNK)
        for action in range(policy.spec.act_dim):
            J = _theta_jacobian(policy, at, rows, action)  # (chunk, d)
            if weights is None:
                F = dsyrk(scale[action], J.T, beta=1.0, c=F, overwrite_c=1)
            else:
                F += scale[action] * (J.T @ (J * weights[rows, None]))
    return F if weights is not None else np.triu(F) + np.triu(F, 1).T


def _theta_jacobian(policy: PolicySnapshot, at: Activations, rows: slice, action: int) -> Array:
    """Return d mean[action] / d theta of some rows. Shape (rows, d)."""
    spec = policy.spec
    _, _, W1, _ = split_theta(spec, policy.theta)
    W2, _ = split_head(spec, policy.head)
    x, h1 = at.obs[rows], at.hidden[0][rows]
    d2 = W2[action] * at.slopes[1][rows]
    d1 = (d2 @ W1) * at.slopes[0][rows]
    J = np.empty((len(x), spec.n_parameters))
    first, second = spec.hidden
    ends = np.cumsum((first * spec.obs_dim, first, second * first, second))
    np.multiply(d1[:, :, None], x[:, None, :], out=J[:, : ends[0]].reshape(len(x), first, -1))
    J[:, ends[0] : ends[1]] = d1
    outer = J[:, ends[1] : ends[2]].reshape(len(x), second, first)
    np.multiply(d2[:, :, None], h1[:, None, :], out=outer)
    J[:, ends[2] :] = d2
    return J


def _mlp_coefficients(policy: PolicySnapshot, at: Activations, basis: Array) -> Array:
    """Build the small Fisher from k tangents and the inputs of the head."""
    spec, k = policy.spec, basis.shape[1]
    no_head = np.zeros(spec.head_size)
    tangents = [push_forward(policy, at, column, no_head) for column in basis.T]
    # (n_steps, act_dim, k)
    J_s = np.stack(tangents, axis=2) if k else np.zeros((*at.mean.shape, 0))
    h = with_one(at.hidden[1])  # (n_steps, width + 1)
    gram = h.T @ h / len(h)
    F = np.zeros((k + spec.head_size, k + spec.head_size))
    for action, precision in enumerate(_precision(policy)):
        J_a = J_s[:, action]
        own = k + _head_indices(spec.hidden[1], spec.act_dim, action)
        F[:k, :k] += precision * (J_a.T @ J_a) / len(h)
        F[np.ix_(own, own)] = precision * gram
        F[:k, own] = precision * (J_a.T @ h) / len(h)
        F[own, :k] = F[:k, own].T
    return F


def _head_indices(width: int, act_dim: int, action: int) -> Array:
    """Return where one action's weights and bias sit in the head."""
    return np.append(np.arange(action * width, (action + 1) * width), act_dim * width + action)


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
    """How many times the step was shortened."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Further measures of the base learner, by name."""


def conjugate_gradient(
    product: Callable[[Array], Array], g: Array, *, iterations: int, damping: float
) -> Array:
    """Solve (F + damping I) x = g from x = 0, at most `iterations` steps (for L: `solvers`)."""
    x = np.zeros_like(g)
    r, p = g.copy(), g.copy()
    rr = float(r @ r)
    for _ in range(iterations):
        if rr < _SMALL_RESIDUAL:
            break
        Fp = product(p) + damping * p
        length = rr / float(p @ Fp)
        x += length * p
        r -= length * Fp
        rr, rr_old = float(r @ r), rr
        p = r + (rr / rr_old) * p
    return x


def curvature_along(product: Callable[[Array], Array], g: Array) -> float:
    """Return g' F g / g' g, the curvature along the gradient; 0 without a gradient."""
    size = float(g @ g)
    return float(g @ product(g)) / size if size > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class StepStart:
    """Where a step starts: the policy, its free coordinates, and its batch."""

    policy: PolicySnapshot
    coordinates: Coordinates
    at: Activations
    actions: Array
    """Shape (n_steps, act_dim)."""
    advantages: Array
    """Shape (n_steps,)."""
    starts: Integers
    """First step of each trajectory. Shape (n_trajectories,)."""
    share: float = 1.0
    """Weight of the batch's gradient in the one followed; what a method adds has the rest."""

    def moved(self, move: Move) -> tuple[PolicySnapshot, Array, float]:
        """Return the policy after a move, its mean actions, and the mean KL from the old one."""
        new = self.coordinates.move_policy(self.policy, move)
        mean = mean_action(new.spec, new.theta, new.head, self.at.obs)
        return new, mean, mean_kl(self.policy, self.at.mean, new, mean)


class BaseLearner(ABC):
    """How one task is learned from its batches: gradient, step, and the model it leaves."""

    def __init__(self, config: TrainingConfig) -> None:
        self._config = config

    def gradient(self, start: StepStart) -> Move:
        """Return the gradient of the surrogate return, which a step follows."""
        here = surrogate_gradient(start.policy, start.at, start.actions, start.advantages)
        return start.coordinates.pull_back(here)

    @abstractmethod
    def step(self, start: StepStart, gradient: Move) -> PolicyStep:
        """Return a step up the gradient, to which a method may have added its own terms."""

    @abstractmethod
    def curvature(
        self, policy: PolicySnapshot, at: Activations, g: Array, advantages: Array
    ) -> Array:
        """Return half a Hessian over theta, negative definite. Shape (d, d)."""

    def local_model(
        self, policy: PolicySnapshot, obs: Array, actions: Array, advantages: Array
    ) -> LocalModel:
        """Return the model of a task at its policy, over theta alone (head, log sigma held)."""
        at = forward(policy, obs)
        g = surrogate_gradient(policy, at, actions, advantages).theta
        require_finite('the gradient of the local model', g)
        return LocalModel(policy.theta, g, self.curvature(policy, at, g, advantages))

    def task_model(
        self, policy: PolicySnapshot, batch: Batch, advantages: Array, form: str
    ) -> TaskModel:
        """Return the model of a task with its curvature in the form a solver works with."""
        model = self.local_model(policy, batch.observations, batch.actions, advantages)
        return with_form(model, form, policy.spec)


class Npg(BaseLearner):
    """Natural policy gradient: a step of fixed KL along F^-1 g."""

    def step(self, start: StepStart, gradient: Move) -> PolicyStep:
        """Step as far as the KL allows; halve the step if the measured KL is far above."""
        x, eta = self.direction(start, gradient)
        return guarded(start, x, eta, self._config.max_kl)

    def direction(self, start: StepStart, gradient: Move) -> tuple[Array, float]:
        """Return x = F^-1 g by conjugate gradient, and the length eta of its step.

        eta = sqrt(2 delta / g' F^-1 g), so that the KL of the step is delta.
        """
        g, config = _checked(gradient), self._config
        product = start.coordinates.fisher(Fisher(start.policy, start.at))
        iterations, damping = config.cg_iterations, config.cg_damping
        if config.relative_damping:
            damping += config.relative_damping * curvature_along(product, g)
        x = conjugate_gradient(product, g, iterations=iterations, damping=damping)
        require_finite('the natural gradient', x)
        return x, float(np.sqrt(2.0 * config.max_kl / (abs(float(g @ x)) + TINY)))

    def curvature(
        self, policy: PolicySnapshot, at: Activations, g: Array, advantages: Array
    ) -> Array:
        """Return -1/2 sqrt(g' F^-1 g / delta) F, with a floor under the eigenvalues of F."""
        return natural_curvature(Fisher(policy, at).of_theta(), g, self._config)

    def task_model(
        self, policy: PolicySnapshot, batch: Batch, advantages: Array, form: str
    ) -> TaskModel:
        """Return the model of a task; a factored form comes straight from the batch."""
        if form == 'dense':
            return super().task_model(policy, batch, advantages, form)
        data = (policy, batch.observations, batch.actions, advantages)
        return factored_model(*data, self._config, form)


class Reinforce(BaseLearner):
    """Plain policy gradient: a step of fixed rate along g."""

    def step(self, start: StepStart, gradient: Move) -> PolicyStep:
        """Step by the learning rate; halve the step if its KL is far above the allowed one."""
        config = self._config
        return guarded(start, _checked(gradient), config.learning_rate, config.max_kl)

    def curvature(
        self, policy: PolicySnapshot, at: Activations, g: Array, advantages: Array
    ) -> Array:
        """Return -1/2 E[A J' S^-1 J], projected to be negative definite."""
        return bounded_curvature(-0.5 * Fisher(policy, at).of_theta(advantages), self._config)


def make_base_learner(config: TrainingConfig) -> BaseLearner:
    """Return the base learner the settings name."""
    module, name = BASE_LEARNERS[config.step].split(':')
    made = getattr(importlib.import_module(f'lpgftw_ros.learning.{module}'), name)(config)
    assert isinstance(made, BaseLearner)
    return made


def _checked(gradient: Move) -> Array:
    g = gradient.flat()
    require_finite('the policy gradient', g)
    return g


def guarded(start: StepStart, direction: Array, length: float, max_kl: float) -> PolicyStep:
    """Return a step, halved until its measured KL is acceptable."""
    for refused in range(MAX_HALVINGS + 1):
        move = start.coordinates.split(length * direction)
        _, _, kl = start.moved(move)
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
