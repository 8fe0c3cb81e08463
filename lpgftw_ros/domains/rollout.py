"""One rollout: n trajectories of a task, driven from outside one control step at a time.

Both drivers use it. Where the policy is at hand, `drive` asks it; the ROS bridge publishes
`observations`, waits for the answer and calls `advance`. A trajectory depends on its index and on
the seed only, so that a rollout may also be split: `batch_of` joins its parts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, SimulationFailed, WrongShape
from lpgftw_ros.learning.arrays import Array, Mask
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

    def __init__(
        self, env: TaskVectorEnv, n_trajectories: int, seed: int, task_name: str, first: int = 0
    ) -> None:
        if n_trajectories < 1:
            raise InvalidConfig(f'a rollout needs at least one trajectory, got {n_trajectories}')
        self.env, self.seed, self.task = env, seed, task_name
        self._end = first + n_trajectories
        self.waves: list[_Wave] = []
        self.done = False
        self._start_wave(first)

    def _start_wave(self, first: int) -> None:
        self.first, self.step = first, 0
        count = min(self.env.num_envs, self._end - first)
        self._wave = _Wave(self.env, count)
        self.waves.append(self._wave)
        self.env.reset(seed=self.seed, options={'first': first, 'count': count})
        self.observations: Array = self.env.observations
        self.alive: Mask = self.env.alive
        self.n_alive = count

    @property
    def rows(self) -> int:
        """Rows of the environment, of which a wave may use fewer."""
        return int(self.env.num_envs)

    @property
    def n_done(self) -> int:
        """Trajectories that have ended."""
        return sum(wave.count for wave in self.waves) - self.n_alive

    @property
    def dimensions(self) -> tuple[int, int]:
        """Numbers in an observation and in an action of the task."""
        return self.env.obs_dim, self.env.act_dim

    def advance(self, actions: Array) -> None:
        """Apply one action per row; starts the next wave when this one has ended."""
        if self.done:
            raise InvalidConfig('this rollout is complete; start another')
        env, wave, t = self.env, self._wave, self.step
        rewards, success = env.advance(actions)
        wave.observations[:, t] = self.observations
        wave.actions[:, t] = actions
        wave.rewards[:, t] = rewards
        if success is not None:
            wave.success |= success
        self.observations, self.step = env.observations, t + 1
        if env.n_running != self.n_alive:
            self._note_ends()

    def _note_ends(self) -> None:
        """Write down how long the rows that just ended were; start what follows."""
        alive, wave = self.env.alive, self._wave
        terminated, truncated, failed = self.env.ends
        ended = self.alive & ~alive
        # The step that blew up is not part of the trajectory.
        wave.lengths[ended] = self.step - failed[ended]
        self.alive, self.n_alive = alive, self.env.n_running
        if self.n_alive:
            return
        wave.terminated, wave.truncated, wave.failed = terminated, truncated, failed
        wave.final = self.observations
        following = self.first + wave.count
        if following < self._end:
            self._start_wave(following)
        else:
            self.done = True

    def batch(self) -> Batch:
        """Return the finished trajectories."""
        return batch_of([self])


def batch_of(parts: Sequence[Rollout]) -> Batch:
    """Return the finished trajectories of a rollout that may have been split.

    A trajectory that blew up in its very first step keeps that step, with reward 0 and its mark,
    so that rows stay in place; if all of them did, there is nothing to learn from.
    """
    if not all(part.done for part in parts):
        raise InvalidConfig('this rollout is not complete')
    waves, task = [wave for part in parts for wave in part.waves], parts[0].task
    lengths = _per_row(waves, 'lengths')
    if not lengths.any():
        raise SimulationFailed(
            f"task '{task}': all {len(lengths)} trajectories blew up in their first step"
        )
    return Batch(
        task=task,
        observations=_end_to_end(waves, 'observations'),
        actions=_end_to_end(waves, 'actions'),
        rewards=_end_to_end(waves, 'rewards'),
        lengths=np.maximum(lengths, 1),
        terminated=_per_row(waves, 'terminated'),
        truncated=_per_row(waves, 'truncated'),
        success=_per_row(waves, 'success'),
        failed=_per_row(waves, 'failed'),
        final_observations=_per_row(waves, 'final'),
    )


def _end_to_end(waves: list[_Wave], name: str) -> Array:
    """Lay the steps of all trajectories end to end."""
    return np.concatenate(
        [
            getattr(wave, name)[row, : max(wave.lengths[row], 1)]
            for wave in waves
            for row in range(wave.count)
        ]
    )


def _per_row(waves: list[_Wave], name: str) -> Any:
    return np.concatenate([getattr(wave, name)[: wave.count] for wave in waves])


def drive(
    rollout: Rollout,
    policy: PolicySnapshot,
    explore: bool = True,
    before_step: Callable[[Array], None] | None = None,
) -> None:
    """Run a rollout to its end with one policy call per control step, for all rows at once.

    `before_step` sees the actions and may raise to give the rollout up.
    """
    dims = (policy.spec.obs_dim, policy.spec.act_dim)
    if dims != rollout.dimensions:
        raise WrongShape(
            f'the policy maps {dims[0]} observations to {dims[1]} actions, '
            f'the task has {rollout.dimensions[0]} and {rollout.dimensions[1]}'
        )
    noise, first = None, -1
    while not rollout.done:
        if explore and rollout.first != first:
            first = rollout.first
            noise = ExplorationNoise(rollout.seed, rollout.rows, policy.spec.act_dim, first)
        sample = None if noise is None else noise.at(rollout.step)
        actions = policy.act(rollout.observations, sample)
        if before_step is not None:
            before_step(actions)
        rollout.advance(actions)


def collect(
    env: TaskVectorEnv,
    policy: PolicySnapshot,
    n_trajectories: int,
    seed: int,
    explore: bool = True,
    task_name: str = '',
) -> Batch:
    """Sample trajectories in one environment."""
    rollout = Rollout(env, n_trajectories, seed, task_name)
    drive(rollout, policy, explore)
    return rollout.batch()
