"""One rollout: n trajectories of a task, driven from outside one control step at a time.

Both drivers use it. In process, `drive` asks the policy; the ROS bridge publishes `observations`,
waits for the answer and calls `advance`. A trajectory depends on its index and the seed only, so a
rollout may be split; `joined` puts its pieces together.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, SimulationFailed, WrongShape
from lpgftw_ros.learning.arrays import Array, Batch, Mask
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.learning.randomness import ExplorationNoise

Piece = Mapping[str, NDArray[Any]]
"""Trajectories under the names of a batch's fields."""


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

    def piece(self) -> Piece:
        """Return the trajectories, laid end to end, under the names of a batch's fields.

        One that blew up in its first step has length 0 here, but keeps that step.
        """
        rows = range(self.count)
        steps = [max(int(self.lengths[row]), 1) for row in rows]
        ends = ('lengths', 'terminated', 'truncated', 'success', 'failed')
        long = ('observations', 'actions', 'rewards')
        return {
            **{k: np.concatenate([getattr(self, k)[r, : steps[r]] for r in rows]) for k in long},
            **{name: getattr(self, name)[: self.count] for name in ends},
            'final_observations': self.final[: self.count],
        }


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
        """Rows of the environment; a wave may use fewer."""
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
        """Record the lengths of the rows that just ended; start the next wave."""
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

    def pieces(self) -> list[Piece]:
        """Return the finished trajectories of each wave, to be joined by whoever has all parts."""
        if not self.done:
            raise InvalidConfig('this rollout is not complete')
        return [wave.piece() for wave in self.waves]


def batch_of(parts: Sequence[Rollout]) -> Batch:
    """Return the finished trajectories of a rollout that may have been split."""
    return joined(parts[0].task, [piece for part in parts for piece in part.pieces()])


def joined(task: str, pieces: Sequence[Piece]) -> Batch:
    """Return the batch whose trajectories these pieces are, in order.

    A trajectory that blew up in its first step keeps that step, with reward 0 and marked as
    failed, so that rows stay in place. If all of them did, this raises.
    """
    fields = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    lengths = fields.pop('lengths')
    if not lengths.any():
        raise SimulationFailed(
            f"task '{task}': all {len(lengths)} trajectories blew up in their first step"
        )
    return Batch(task=task, lengths=np.maximum(lengths, 1), **fields)


def drive(
    rollout: Rollout,
    policy: PolicySnapshot,
    explore: bool = True,
    before_step: Callable[[Array], None] | None = None,
) -> None:
    """Run a rollout to its end with one policy call per control step, for all rows at once.

    `before_step` sees the actions and may raise to abandon the rollout.
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
