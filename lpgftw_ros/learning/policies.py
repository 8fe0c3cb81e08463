r"""Gaussian policies as pure functions of flat parameters, and their derivatives.

theta is what tasks share through the basis L; the head and log sigma belong to one task:

- linear (no hidden layers): theta is [w_1 b_1 w_2 b_2 ...], one row of weights and its bias per
  action; the head is empty;
- MLP (two tanh layers): theta is [W0 row-major, b0, W1 row-major, b1]; the head is
  [W2 row-major, b2].

A policy acts in plain numpy, one call for all rows of a rollout. The rows are multiplied in
blocks of `ACTING_BLOCK`: a matrix product of another height may differ in its last bits, so
blocks of one height give a row the same action, to the last bit, in any thread or process.

With mean :math:`\mu(x)` and :math:`J = \partial\mu/\partial(\theta, head)` at one observation,

.. math::
    \nabla\log\pi(u|x) = J^\top (u - \mu) / \sigma^2, \qquad
    \partial\log\pi(u|x) / \partial\log\sigma = ((u - \mu) / \sigma)^2 - 1

`forward` runs the network once; `backward` multiplies by J' and `push_forward` by J.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.arrays import Array, require_shape

ACTING_BLOCK = 5
"""Rows that are multiplied together when a policy acts."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Shape of a policy: everything but its numbers."""

    obs_dim: int
    act_dim: int
    hidden: tuple[int, ...] = ()
    """No widths: linear mean. Two widths: tanh MLP with a head per task."""
    min_log_std: float = -3.0
    """Floor of log sigma, applied after each step."""

    def __post_init__(self) -> None:
        """Reject shapes no policy can have."""
        if self.obs_dim < 1 or self.act_dim < 1:
            raise InvalidConfig(
                f'a policy needs at least one observation and one action, '
                f'got {self.obs_dim} and {self.act_dim}'
            )
        if len(self.hidden) not in (0, 2) or any(width < 1 for width in self.hidden):
            raise InvalidConfig(
                f'hidden must be empty (linear) or two positive widths, got {self.hidden}'
            )

    @property
    def n_parameters(self) -> int:
        """Length d of theta."""
        if not self.hidden:
            return self.act_dim * (self.obs_dim + 1)
        first, second = self.hidden
        return (self.obs_dim + 1) * first + (first + 1) * second

    @property
    def head_size(self) -> int:
        """Length of the task head; 0 for a linear policy."""
        return (self.hidden[-1] + 1) * self.act_dim if self.hidden else 0


def mean_action(spec: PolicySpec, theta: Array, head: Array, obs: Array) -> Array:
    """Return the mean action of each observation. Shape (..., act_dim) for (..., obs_dim)."""
    if not spec.hidden:
        rows = theta.reshape(spec.act_dim, spec.obs_dim + 1)
        return obs @ rows[:, :-1].T + rows[:, -1]
    W0, b0, W1, b1 = split_theta(spec, theta)
    W2, b2 = split_head(spec, head)
    return np.tanh(np.tanh(obs @ W0.T + b0) @ W1.T + b1) @ W2.T + b2


def split_theta(spec: PolicySpec, theta: Array) -> tuple[Array, Array, Array, Array]:
    """Return the weights and biases of both hidden layers as views of theta."""
    first, second = spec.hidden
    sizes = (first * spec.obs_dim, first, second * first, second)
    W0, b0, W1, b1 = np.split(theta, np.cumsum(sizes)[:-1])
    return W0.reshape(first, spec.obs_dim), b0, W1.reshape(second, first), b1


def split_head(spec: PolicySpec, head: Array) -> tuple[Array, Array]:
    """Return the weights and biases of the output layer as views of the head."""
    width = spec.hidden[-1]
    return head[: spec.act_dim * width].reshape(spec.act_dim, width), head[-spec.act_dim :]


HEAD_SCALE = 0.01
"""Output layers start this much smaller than hidden ones: first actions are near zero."""


def initial_theta(spec: PolicySpec, rng: np.random.Generator) -> Array:
    """Draw theta: U(+-1/sqrt(fan_in)) per layer, the linear policy's only layer scaled down."""
    if not spec.hidden:
        return HEAD_SCALE * _uniform(rng, spec.n_parameters, spec.obs_dim)
    first, second = spec.hidden
    inner = _uniform(rng, (spec.obs_dim + 1) * first, spec.obs_dim)
    return np.concatenate((inner, _uniform(rng, (first + 1) * second, first)))


def initial_head(spec: PolicySpec, rng: np.random.Generator) -> Array:
    """Draw a task head: U(+-1/sqrt(fan_in)) scaled down; empty for a linear policy."""
    if not spec.hidden:
        return np.zeros(0)
    return HEAD_SCALE * _uniform(rng, spec.head_size, spec.hidden[-1])


def _uniform(rng: np.random.Generator, size: int, fan_in: int) -> Array:
    bound = 1.0 / np.sqrt(fan_in)
    return rng.uniform(-bound, bound, size)


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """A policy ready to act."""

    spec: PolicySpec
    theta: Array
    """Shape (d,)."""
    head: Array
    """Shape (head_size,)."""
    log_std: Array
    """Shape (act_dim,)."""

    def __post_init__(self) -> None:
        """Check that the numbers fit the shape."""
        require_shape('theta', self.theta, (self.spec.n_parameters,))
        require_shape('head', self.head, (self.spec.head_size,))
        require_shape('log_std', self.log_std, (self.spec.act_dim,))

    def act(self, obs: Array, noise: Array | None = None) -> Array:
        """Return one action per observation: the mean, or mean + sigma * noise."""
        mean = mean_action(self.spec, self.theta, self.head, _in_blocks(obs))
        mean = mean.reshape(-1, self.spec.act_dim)[: len(obs)]
        return mean if noise is None else mean + np.exp(self.log_std) * noise


def _in_blocks(obs: Array) -> Array:
    """Return the rows in blocks of equal height, the last filled up with zeros."""
    n, width = obs.shape
    n_blocks = -(-n // ACTING_BLOCK)
    if n != n_blocks * ACTING_BLOCK:
        filled = np.zeros((n_blocks * ACTING_BLOCK, width))
        filled[:n] = obs
        obs = filled
    return obs.reshape(n_blocks, ACTING_BLOCK, width)


@dataclass(frozen=True, slots=True)
class TaskFactors:
    """What one task owns: with the basis it makes a policy."""

    coefficients: Array
    """s, one number per basis column; missing ones are zero. Shape (<= k,)."""
    residual: Array
    """Added to L s; zero once it has become a column. Shape (d,)."""
    head: Array
    log_std: Array


def pad(s: Array, k: int) -> Array:
    """Return s with a zero for every column beyond its length. Shape (k,)."""
    return np.concatenate((s, np.zeros(k - len(s))))


def compose(basis: Array, factors: TaskFactors) -> Array:
    """Return theta = L s + residual, summed column by column.

    The fixed order makes the result independent of how many columns the basis has beyond those
    in use; a BLAS product would change its last bits with every new column.
    """
    theta = np.zeros(basis.shape[0])
    for j, s_j in enumerate(factors.coefficients):
        theta += basis[:, j] * s_j
    return theta + factors.residual


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All policies of a lifetime: the shared basis and every task's factors."""

    version: int
    """Grows by one whenever the basis or the set of tasks changes."""
    spec: PolicySpec
    basis: Array
    """L. Shape (d, k)."""
    tasks: Mapping[str, TaskFactors]
    """Finished and parked tasks, in the order they were first learned."""

    def policy(self, task: str) -> PolicySnapshot:
        """Compose the policy of a task."""
        if task not in self.tasks:
            raise UnknownName('policy for task', task, self.tasks)
        return self.compose(self.tasks[task])

    def compose(self, factors: TaskFactors) -> PolicySnapshot:
        """Compose a policy from factors, of any task or of none."""
        theta = compose(self.basis, factors)
        return PolicySnapshot(self.spec, theta, factors.head, factors.log_std)


# Derivatives.


@dataclass(frozen=True, slots=True)
class Activations:
    """What a forward pass over a batch keeps for the derivatives."""

    obs: Array
    """Shape (n_steps, obs_dim)."""
    mean: Array
    """Shape (n_steps, act_dim)."""
    hidden: tuple[Array, ...]
    """Outputs of the tanh layers; empty for a linear policy."""
    slopes: tuple[Array, ...]
    """Their derivatives 1 - tanh^2."""

    def rows(self, rows: slice) -> 'Activations':
        """Return some rows of the batch, as views."""
        hidden, slopes = (tuple(a[rows] for a in layers) for layers in (self.hidden, self.slopes))
        return Activations(self.obs[rows], self.mean[rows], hidden, slopes)


@dataclass(frozen=True, slots=True)
class PolicyGradient:
    """A gradient with respect to everything a policy is made of."""

    theta: Array
    head: Array
    log_std: Array


def forward(policy: PolicySnapshot, obs: Array) -> Activations:
    """Return the mean actions and what their derivatives need."""
    if not policy.spec.hidden:
        rows = policy.theta.reshape(policy.spec.act_dim, -1)
        return Activations(obs, obs @ rows[:, :-1].T + rows[:, -1], (), ())
    W0, b0, W1, b1 = split_theta(policy.spec, policy.theta)
    W2, b2 = split_head(policy.spec, policy.head)
    h1 = np.tanh(obs @ W0.T + b0)
    h2 = np.tanh(h1 @ W1.T + b1)
    return Activations(obs, h2 @ W2.T + b2, (h1, h2), (1.0 - h1 * h1, 1.0 - h2 * h2))


def with_one(x: Array) -> Array:
    """Append a column of ones, the input of the bias."""
    return np.column_stack((x, np.ones(len(x))))


def backward(policy: PolicySnapshot, at: Activations, d_mean: Array) -> tuple[Array, Array]:
    """Return J' d_mean summed over the batch, for theta and for the head."""
    if not policy.spec.hidden:
        rows = np.column_stack((d_mean.T @ at.obs, d_mean.sum(axis=0)))
        return rows.ravel(), np.zeros(0)
    _, _, W1, _ = split_theta(policy.spec, policy.theta)
    W2, _ = split_head(policy.spec, policy.head)
    (h1, h2), (slope1, slope2) = at.hidden, at.slopes
    d2 = (d_mean @ W2) * slope2
    d1 = (d2 @ W1) * slope1
    theta = ((d1.T @ at.obs).ravel(), d1.sum(axis=0), (d2.T @ h1).ravel(), d2.sum(axis=0))
    head = ((d_mean.T @ h2).ravel(), d_mean.sum(axis=0))
    return np.concatenate(theta), np.concatenate(head)


def push_forward(policy: PolicySnapshot, at: Activations, d_theta: Array, d_head: Array) -> Array:
    """Return the change of the mean actions, J (d_theta, d_head). Shape (n_steps, act_dim)."""
    if not policy.spec.hidden:
        rows = d_theta.reshape(policy.spec.act_dim, -1)
        return at.obs @ rows[:, :-1].T + rows[:, -1]
    _, _, W1, _ = split_theta(policy.spec, policy.theta)
    W2, _ = split_head(policy.spec, policy.head)
    dW0, db0, dW1, db1 = split_theta(policy.spec, d_theta)
    dW2, db2 = split_head(policy.spec, d_head)
    (h1, h2), (slope1, slope2) = at.hidden, at.slopes
    t1 = (at.obs @ dW0.T + db0) * slope1
    t2 = (t1 @ W1.T + h1 @ dW1.T + db1) * slope2
    return t2 @ W2.T + h2 @ dW2.T + db2


def surrogate_gradient(
    policy: PolicySnapshot, at: Activations, actions: Array, weights: Array
) -> PolicyGradient:
    r"""Return :math:`\frac1n \sum_i w_i \nabla\log\pi(u_i|x_i)`.

    With the advantages as weights this is the gradient of the surrogate return at the policy
    that sampled the actions.
    """
    z = (actions - at.mean) * np.exp(-policy.log_std)
    w = weights[:, None] / len(weights)
    theta, head = backward(policy, at, w * z * np.exp(-policy.log_std))
    return PolicyGradient(theta, head, np.sum(w * (z * z - 1.0), axis=0))


def log_likelihood(policy: PolicySnapshot, mean: Array, actions: Array) -> Array:
    """Return log pi(u|x) of each row, from the policy's mean actions. Shape (n_steps,)."""
    z = (actions - mean) * np.exp(-policy.log_std)
    constant = np.sum(policy.log_std) + 0.5 * actions.shape[1] * np.log(2.0 * np.pi)
    return np.asarray(-0.5 * np.sum(z * z, axis=1) - constant)


def mean_kl(old: PolicySnapshot, old_mean: Array, new: PolicySnapshot, new_mean: Array) -> float:
    r"""Return the batch mean of KL(old || new) between diagonal Gaussians.

    :math:`\sum_a \log\frac{\sigma'}{\sigma} + \frac{\sigma^2 + (\mu - \mu')^2}{2\sigma'^2}
    - \frac12`
    """
    log_ratio = new.log_std - old.log_std
    moved = np.mean((old_mean - new_mean) ** 2, axis=0) * np.exp(-2.0 * new.log_std)
    # expm1 keeps the digits of a tiny change of sigma
    return float(np.sum(log_ratio + 0.5 * (np.expm1(-2.0 * log_ratio) + moved)))
