"""Arrays: their types, the checks every entry point makes, and a batch of trajectories."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.errors import NonFinite, WrongShape

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
Integers = NDArray[np.integer[Any]]


def require_finite(name: str, array: Array) -> None:
    """Raise `NonFinite` if any element is NaN or infinite."""
    if not np.isfinite(array).all():
        bad = int(np.size(array) - np.count_nonzero(np.isfinite(array)))
        raise NonFinite(f'{name} has {bad} of {np.size(array)} elements that are not finite')


def require_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raise `WrongShape` unless `array` has exactly `shape`."""
    if array.shape != shape:
        raise WrongShape(f'{name} has shape {array.shape}, expected {shape}')


@dataclass(frozen=True, slots=True)
class Batch:
    """Trajectories of one task, concatenated: all that a learner sees.

    `n_steps` counts the time steps of all trajectories together, n the trajectories.
    """

    task: str
    observations: Array
    """What the policy saw before each step. Shape (n_steps, obs_dim), float64."""
    actions: Array
    """What it did, unclipped. Shape (n_steps, act_dim), float64."""
    rewards: Array
    """Shape (n_steps,), float64."""
    lengths: Integers
    """Steps of each trajectory, all positive. Shape (n,), int64."""
    terminated: Mask
    """The task itself ended the trajectory. Shape (n,)."""
    truncated: Mask
    """The time limit ended it. Shape (n,)."""
    success: Mask
    """The task was solved at some step. Shape (n,)."""
    failed: Mask
    """The simulator became unstable; the steps before that are kept. Shape (n,)."""
    final_observations: Array
    """What was seen after the last step, for bootstrapping. Shape (n, obs_dim)."""

    def __post_init__(self) -> None:
        """Check shapes and finiteness once, here."""
        n, n_steps = len(self.lengths), int(np.sum(self.lengths))
        if n == 0 or np.min(self.lengths) <= 0:
            raise WrongShape('a batch needs at least one trajectory, each of at least one step')
        obs_dim = self.observations.shape[-1]
        require_shape('observations', self.observations, (n_steps, obs_dim))
        require_shape('actions', self.actions, (n_steps, self.actions.shape[-1]))
        require_shape('rewards', self.rewards, (n_steps,))
        require_shape('final_observations', self.final_observations, (n, obs_dim))
        for name in ('terminated', 'truncated', 'success', 'failed'):
            require_shape(name, getattr(self, name), (n,))
        for name in ('observations', 'actions', 'rewards', 'final_observations'):
            require_finite(name, getattr(self, name))

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories n."""
        return len(self.lengths)

    @property
    def n_steps(self) -> int:
        """Number of time steps, over all trajectories."""
        return len(self.rewards)

    @property
    def starts(self) -> Integers:
        """Index of the first step of each trajectory. Shape (n,)."""
        return np.concatenate(([0], np.cumsum(self.lengths)[:-1]))

    @property
    def step_in_trajectory(self) -> Integers:
        """Time step of each row within its own trajectory. Shape (n_steps,)."""
        return np.arange(self.n_steps) - np.repeat(self.starts, self.lengths)

    @property
    def returns(self) -> Array:
        """Undiscounted return of each trajectory. Shape (n,)."""
        return np.add.reduceat(self.rewards, self.starts)

    def select(self, trajectories: Integers) -> 'Batch':
        """Return a batch of these trajectories only, in the order given."""
        rows = np.concatenate(
            [np.arange(self.starts[i], self.starts[i] + self.lengths[i]) for i in trajectories]
        )
        return Batch(
            task=self.task,
            observations=self.observations[rows],
            actions=self.actions[rows],
            rewards=self.rewards[rows],
            lengths=self.lengths[trajectories],
            terminated=self.terminated[trajectories],
            truncated=self.truncated[trajectories],
            success=self.success[trajectories],
            failed=self.failed[trajectories],
            final_observations=self.final_observations[trajectories],
        )
