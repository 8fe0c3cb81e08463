"""One rollout: n trajectories of a task, driven from outside one control step at a time.

Both drivers use it. The in-process one asks the policy itself (`collect`); the ROS bridge
publishes `observations`, waits for the answer and calls `advance`.
"""

from typing import Any

import numpy as np

from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, SimulationFailed, WrongShape
from lpgftw_ros.learning.arrays import Array, Integers, Mask
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.learning.randomness import ExplorationNoise


class _Wave:
    """Buffers of the trajectories that run side by side."""

    def __init__(self, env: TaskVectorEnv, count: int) -> None:
        n, horizon = env.num_envs, env.horizon
        self.count = count
        self.observations = np.empty((n, horizon, env.obs_dim))
        self.actions = np.empty((n, horizon, env.act_dim))
        self.rewards = np.empty((n, horizon))
        self.lengths = np.zeros(n, dtype=np.int64)
        self.terminated, self.truncated = np.zeros((2, n), dtype=bool)
        self.success, self.failed = np.zeros((2, n), dtype=bool)
        self.final: Array = np.empty((n, env.obs_dim))


class Rollout:
    """n trajectories of one task, in waves if the environment has fewer rows.

    Row r of the wave is trajectory `first + r`. Rows that ended, and rows of a last wave that
    has fewer trajectories than rows, are not alive; their actions are not used.
    """

    def __init__(self, env: TaskVectorEnv, n_trajectories: int, seed: int, task_name: str) -> None:
        if n_trajectories < 1:
            raise InvalidConfig(f'a rollout needs at least one trajectory, got {n_trajectories}')
        self._env, self._seed, self._task = env, seed, task_name
        self._n_trajectories = n_trajectories
        self._waves: list[_Wave] = []
        self.done = False
        self._start_wave(first=0)

    def _start_wave(self, first: int) -> None:
        self.first, self.step = first, 0
        count = min(self._env.num_envs, self._n_trajectories - first)
        self._wave = _Wave(self._env, count)
        self._waves.append(self._wave)
        self._env.reset(seed=self._seed, options={'first': first, 'count': count})
        self.observations: Array = self._env.observations
        self.alive: Mask = self._env.alive
        self._n_alive = count

    @property
    def rows(self) -> int:
        """Rows of the environment, of which a wave may use fewer."""
        return int(self._env.num_envs)

    def advance(self, actions: Array) -> None:
        """Apply one action per row; starts the next wave when this one has ended."""
        if self.done:
            raise InvalidConfig('this rollout is complete; start another')
        env, wave, t = self._env, self._wave, self.step
        rewards, success = env.advance(actions)
        wave.observations[:, t] = self.observations
        wave.actions[:, t] = actions
        wave.rewards[:, t] = rewards
        if success is not None:
            wave.success |= success
        self.observations, self.step = env.observations, t + 1
        if env.n_running != self._n_alive:
            self._note_ends()

    def _note_ends(self) -> None:
        """Write down how long the rows that just ended were; start what follows."""
        alive, wave = self._env.alive, self._wave
        terminated, truncated, failed = self._env.ends
        ended = self.alive & ~alive
        # The step that blew up is not part of the trajectory.
        wave.lengths[ended] = self.step - failed[ended]
        self.alive, self._n_alive = alive, self._env.n_running
        if self._n_alive:
            return
        wave.terminated, wave.truncated, wave.failed = terminated, truncated, failed
        wave.final = self.observations
        following = self.first + wave.count
        if following < self._n_trajectories:
            self._start_wave(following)
        else:
            self.done = True

    def batch(self) -> Batch:
        """Return the finished trajectories.

        A trajectory that blew up in its very first step keeps that step, with reward 0 and its
        mark, so that rows stay in place; if all of them did, there is nothing to learn from.
        """
        if not self.done:
            raise InvalidConfig('this rollout is not complete')
        lengths = [wave.lengths[: wave.count] for wave in self._waves]
        if not np.concatenate(lengths).any():
            raise SimulationFailed(
                f"task '{self._task}': all {self._n_trajectories} trajectories blew up in their "
                'first step'
            )
        kept = [np.maximum(own, 1) for own in lengths]
        return Batch(
            task=self._task,
            observations=self._lay('observations', kept),
            actions=self._lay('actions', kept),
            rewards=self._lay('rewards', kept),
            lengths=np.concatenate(kept),
            terminated=self._per_row('terminated'),
            truncated=self._per_row('truncated'),
            success=self._per_row('success'),
            failed=self._per_row('failed'),
            final_observations=self._per_row('final'),
        )

    def _lay(self, name: str, kept: list[Integers]) -> Array:
        """Lay the steps of all trajectories end to end."""
        return np.concatenate(
            [
                getattr(wave, name)[row, :length]
                for wave, lengths in zip(self._waves, kept, strict=True)
                for row, length in enumerate(lengths)
            ]
        )

    def _per_row(self, name: str) -> Any:
        return np.concatenate([getattr(wave, name)[: wave.count] for wave in self._waves])


def collect(
    env: TaskVectorEnv,
    policy: PolicySnapshot,
    n_trajectories: int,
    seed: int,
    explore: bool = True,
    task_name: str = '',
) -> Batch:
    """Sample trajectories with one policy call per control step, for all rows at once."""
    dims = (policy.spec.obs_dim, policy.spec.act_dim)
    if dims != (env.obs_dim, env.act_dim):
        raise WrongShape(
            f'the policy maps {dims[0]} observations to {dims[1]} actions, '
            f'the task has {env.obs_dim} and {env.act_dim}'
        )
    rollout = Rollout(env, n_trajectories, seed, task_name)
    noise, first = None, -1
    while not rollout.done:
        if explore and rollout.first != first:
            first = rollout.first
            noise = ExplorationNoise(seed, rollout.rows, policy.spec.act_dim, first)
        sample = None if noise is None else noise.at(rollout.step)
        rollout.advance(policy.act(rollout.observations, sample))
    return rollout.batch()
