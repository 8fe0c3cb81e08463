"""Finished trajectories, the only thing a learner learns from."""

from dataclasses import dataclass

import numpy as np

from lpgftw_ros.errors import WrongShape
from lpgftw_ros.learning.arrays import Array, Integers, Mask, require_finite, require_shape


@dataclass(frozen=True, slots=True)
class Batch:
    """Trajectories of one task laid end to end, in row order.

    M is the number of time steps of all trajectories together, n the number of trajectories.
    """

    task: str
    observations: Array
    """What the policy saw before each step. Shape (M, obs_dim), float64."""
    actions: Array
    """What it did, unclipped. Shape (M, act_dim), float64."""
    rewards: Array
    """Shape (M,), float64."""
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
        """Check shapes and finiteness once, so that nobody downstream has to."""
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
        """Number of time steps M."""
        return len(self.rewards)

    @property
    def starts(self) -> Integers:
        """Index of the first step of each trajectory. Shape (n,)."""
        return np.concatenate(([0], np.cumsum(self.lengths)[:-1]))

    @property
    def step_in_trajectory(self) -> Integers:
        """Time step of each row within its own trajectory. Shape (M,)."""
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
