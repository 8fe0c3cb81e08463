r"""Experience replay: one policy, every update half from the past.

With weights :math:`w = \pi_\theta(u|x) / \pi_{stored}(u|x)` that carry no gradient,

.. math:: g = \tfrac12 E_{now}[\hat A \nabla\log\pi] + \tfrac12 E_{replay}[w \hat A \nabla\log\pi]

Replay moves theta only: heads and sigma of earlier tasks stay, and so do their value functions,
which give the replayed advantages. Metric and step length are those of the running task.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.baselines.reservoir import read_reservoir, Reservoir, Stored
from lpgftw_ros.learning.baselines.shared_policy import SharedPolicyLearner
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.config import setting, TrainingConfig
from lpgftw_ros.learning.gradients import (
    Activations,
    forward,
    log_likelihood,
    surrogate_gradient,
)
from lpgftw_ros.learning.learner import StatePart
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec, TaskFactors
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.state import AnyArray, pack_names, prefixed, StateReader
from lpgftw_ros.learning.steps import Move
from lpgftw_ros.learning.task_run import TaskRun, whitened_advantages


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayConfig(TrainingConfig):
    """Settings of experience replay."""

    replay_capacity: int = setting(500, 'trajectories kept per task', min=1, max=1_000_000)
    max_importance: float = setting(
        1e6, 'largest importance weight of a replayed step; keeps sums finite', min=1.0, max=1e12
    )


class Replay(SharedPolicyLearner):
    """One shared policy that keeps practising earlier tasks from memory."""

    name = 'er'
    _config: ReplayConfig

    def __init__(self, spec: PolicySpec, config: ReplayConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self._memory: dict[str, Reservoir] = {}
        self._working: dict[str, Reservoir] = {}

    def _gradient(
        self, policy: PolicySnapshot, at: Activations, batch: Batch, advantages: Array
    ) -> Move:
        gradient = super()._gradient(policy, at, batch, advantages)
        replayed = self.replay_gradient(policy.theta, batch.n_trajectories)
        if replayed is None:
            return gradient
        half = Move(*(0.5 * part for part in _parts(gradient)))
        return replace(half, residual=half.residual + 0.5 * replayed)

    def replay_gradient(self, theta: Array, n_trajectories: int) -> Array | None:
        """Return the gradient from replayed trajectories; None if there is no past. Shape (d,)."""
        run = self._need_run()
        rng = generator(run.seed, Purpose.REPLAY, run.iteration, 0)
        total, n_steps = np.zeros_like(theta), 0
        for task, count in self.rotation(n_trajectories, run.iteration).items():
            stored = self._memory[task].draw(count, rng)
            total += stored.batch.n_steps * self._task_gradient(theta, task, stored)
            n_steps += stored.batch.n_steps
        return total / n_steps if n_steps else None

    def rotation(self, n_trajectories: int, iteration: int) -> dict[str, int]:
        """Share out a number of trajectories over the earlier tasks, the odd ones in turn."""
        earlier = [task for task in self._memory if task != self.running]
        if not earlier:
            return {}
        share, odd = divmod(n_trajectories, len(earlier))
        offset = iteration * odd
        counts = {
            task: share + ((i - offset) % len(earlier) < odd) for i, task in enumerate(earlier)
        }
        return {task: count for task, count in counts.items() if count}

    def _task_gradient(self, theta: Array, task: str, stored: Stored) -> Array:
        """Return E[w A grad log pi] over theta, for one earlier task."""
        policy, batch = self._policy_at(theta, task), stored.batch
        at = forward(policy, batch.observations)
        log_ratio = log_likelihood(policy, at.mean, batch.actions) - stored.log_likelihood
        weights = np.exp(np.minimum(log_ratio, np.log(self._config.max_importance)))
        values, config = self._finished[task].values, self._config
        advantages = whitened_advantages(values, batch, config, config.gae_lambda)
        return surrogate_gradient(policy, at, batch.actions, weights * advantages).theta

    def _after_step(
        self, run: TaskRun, policy: PolicySnapshot, batch: Batch, advantages: Array
    ) -> bool:
        """Offer the batch to the task's reservoir, with the likelihood it was sampled with."""
        at = forward(policy, batch.observations)
        stored = Stored(batch, log_likelihood(policy, at.mean, batch.actions))
        rng = generator(run.seed, Purpose.REPLAY, run.iteration, 1)
        self._working[run.task] = self._own(run.task).offer(stored, rng)
        return False

    def _own(self, task: str) -> Reservoir:
        """Return the reservoir of the running task: its working copy, or where that begins."""
        empty = Reservoir(self._config.replay_capacity)
        return self._working.get(task, self._memory.get(task, empty))

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        self._memory[run.task] = self._own(run.task).compact()
        self._working.pop(run.task, None)
        return super()._fold(run, batch)

    def cancel_task(self) -> None:
        """Drop the running task and what it stored; a revisited task is as before."""
        task = self._need_run().task
        super().cancel_task()
        self._working.pop(task, None)

    def forget_task(self, task: str) -> None:
        """Remove a task and its trajectories; what it did to the shared theta stays."""
        super().forget_task(task)
        self._memory.pop(task, None)
        self._working.pop(task, None)

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        state = super()._shared_state(parts)
        if 'replay' not in parts:
            return state
        state['replay/tasks'] = pack_names(self._memory)
        state['replay/working'] = pack_names(self._working)
        for index, reservoirs in (('index', self._memory), ('working', self._working)):
            for task, reservoir in reservoirs.items():
                state[f'replay/{index}/{task}'] = reservoir.index()
                state |= prefixed(f'replay/chunks/{task}', reservoir.arrays())
        return state

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        super()._read_shared(reader, finished)
        self._memory = self._read_reservoirs(reader, 'index', 'replay/tasks')
        self._working = self._read_reservoirs(reader, 'working', 'replay/working')

    def _read_reservoirs(self, reader: StateReader, kind: str, names: str) -> dict[str, Reservoir]:
        shape, capacity = (self._spec.obs_dim, self._spec.act_dim), self._config.replay_capacity
        return {
            task: read_reservoir(
                reader,
                f'replay/chunks/{task}',
                f'replay/{kind}/{task}',
                task,
                capacity,
                shape,
            )
            for task in reader.names(names)
        }


def _parts(move: Move) -> tuple[Array, Array, Array, Array]:
    return move.log_std, move.coefficients, move.residual, move.head
