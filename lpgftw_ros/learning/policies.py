"""Gaussian policies as pure functions of flat parameters.

theta is what tasks share through the basis L, the head and log sigma belong to one task:

- linear (no hidden layers): theta holds [w_1 b_1 w_2 b_2 ...], one row of weights and its bias
  per action; the head is empty;
- MLP (two tanh layers): theta holds [W0 row-major, b0, W1 row-major, b1]; the head holds
  [W2 row-major, b2].

Acting is plain numpy on a batch of observations: one call for all rows of a rollout, which
multiplies block after block of `ACTING_BLOCK` rows. A matrix product of another height may differ
in its last bits; blocks of one height make the action of a row the same to the last bit whether
all rows act together or, block by block, in different threads and processes.
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
    """s, one number per basis column; columns beyond its length count as zero. Shape (<= k,)."""
    residual: Array
    """Added to L s; zero once a column has taken it up. Shape (d,)."""
    head: Array
    log_std: Array


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
        """Compose the policy of factors that need not be among the tasks."""
        theta = compose(self.basis, factors)
        return PolicySnapshot(self.spec, theta, factors.head, factors.log_std)
