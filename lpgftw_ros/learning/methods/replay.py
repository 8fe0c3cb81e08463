r"""Experience replay: one policy; half of every gradient comes from earlier tasks.

With weights :math:`w = \pi_\theta(u|x) / \pi_{stored}(u|x)` that carry no gradient,

.. math:: g = \tfrac12 E_{now}[\hat A \nabla\log\pi] + \tfrac12 E_{replay}[w \hat A \nabla\log\pi]

Replay moves theta only: heads and sigma of earlier tasks stay, and so do their value functions,
which give the replayed advantages. Metric and step length are those of the running task.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array, Batch, Integers
from lpgftw_ros.learning.config import setting, TrainingConfig
from lpgftw_ros.learning.learner import StatePart
from lpgftw_ros.learning.lifetime import TaskRun
from lpgftw_ros.learning.methods.shared_policy import SharedPolicyLearner
from lpgftw_ros.learning.policies import (
    Activations,
    forward,
    log_likelihood,
    PolicySnapshot,
    PolicySpec,
    surrogate_gradient,
    TaskFactors,
)
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.serialise import AnyArray, pack_names, prefixed, StateReader
from lpgftw_ros.learning.steps import Move
from lpgftw_ros.learning.values import whitened_advantages

# A uniform sample of all trajectories a task has seen, in bounded memory.
#
# Trajectories arrive in chunks (those of one iteration that were accepted). A chunk never changes
# once it is made and its number is never used again, so a store may write each chunk once and
# skip it afterwards; only the small index of live slots changes.


BATCH_ARRAYS = tuple(item.name for item in fields(Batch) if item.name != 'task')


@dataclass(frozen=True, slots=True)
class Stored:
    """Trajectories with the log-likelihood of their actions when they were made."""

    batch: Batch
    log_likelihood: Array
    """Shape (n_steps,)."""

    def select(self, trajectories: Integers) -> 'Stored':
        """Return some of the trajectories, in the order given."""
        starts, lengths = self.batch.starts, self.batch.lengths
        rows = [self.log_likelihood[starts[i] : starts[i] + lengths[i]] for i in trajectories]
        return Stored(self.batch.select(trajectories), np.concatenate(rows))


def joined(parts: list[Stored]) -> Stored:
    """Return all trajectories as one, in order."""
    arrays = {
        name: np.concatenate([getattr(part.batch, name) for part in parts])
        for name in BATCH_ARRAYS
    }
    log_likelihood = np.concatenate([part.log_likelihood for part in parts])
    return Stored(Batch(parts[0].batch.task, **arrays), log_likelihood)


@dataclass(frozen=True, slots=True)
class Reservoir:
    """The kept trajectories of one task; every change makes a new reservoir."""

    capacity: int
    seen: int = 0
    """Trajectories offered so far."""
    next_chunk: int = 0
    slots: tuple[tuple[int, int], ...] = ()
    """Chunk and position in it of each kept trajectory."""
    chunks: Mapping[int, Stored] = field(default_factory=dict)

    def offer(self, stored: Stored, rng: np.random.Generator) -> 'Reservoir':
        """Return the reservoir after these trajectories were offered (algorithm R)."""
        slots, accepted, seen = list(self.slots), dict[int, int](), self.seen
        for i in range(stored.batch.n_trajectories):
            seen += 1
            slot = len(slots) if len(slots) < self.capacity else int(rng.integers(seen))
            if slot < self.capacity:
                if slot == len(slots):
                    slots.append((self.next_chunk, -1))
                accepted[slot] = i
        if not accepted:
            return Reservoir(self.capacity, seen, self.next_chunk, self.slots, self.chunks)
        for position, slot in enumerate(accepted):
            slots[slot] = (self.next_chunk, position)
        chunk = stored.select(np.array(list(accepted.values())))
        chunks = {**self.chunks, self.next_chunk: chunk}
        grown = Reservoir(self.capacity, seen, self.next_chunk + 1, tuple(slots), chunks)
        return grown._pruned()

    def _pruned(self) -> 'Reservoir':
        """Drop chunks no slot uses; merge all into one when most of what is held is dead."""
        live = {chunk for chunk, _ in self.slots}
        chunks = {number: c for number, c in self.chunks.items() if number in live}
        held = sum(chunk.batch.n_trajectories for chunk in chunks.values())
        kept = Reservoir(self.capacity, self.seen, self.next_chunk, self.slots, chunks)
        return kept.compact() if held > 2 * self.capacity else kept

    def compact(self) -> 'Reservoir':
        """Return the same trajectories as a single chunk."""
        if len(self.chunks) <= 1:
            return self
        n, number = len(self.slots), self.next_chunk
        merged = self.take(np.arange(n))
        slots = tuple((number, i) for i in range(n))
        return Reservoir(self.capacity, self.seen, number + 1, slots, {number: merged})

    def take(self, which: Integers) -> Stored:
        """Return the trajectories in these slots."""
        places = [self.slots[int(i)] for i in which]
        return joined([self.chunks[c].select(np.array([position])) for c, position in places])

    def draw(self, count: int, rng: np.random.Generator) -> Stored:
        """Return a random selection without repeats, all if there are fewer."""
        size = min(count, len(self.slots))
        return self.take(np.sort(rng.permutation(len(self.slots))[:size]))

    def index(self) -> AnyArray:
        """Return slots and counters as one array of whole numbers."""
        flat = [place for pair in self.slots for place in pair]
        return np.array([self.seen, self.next_chunk, *flat], dtype=np.uint64)

    def arrays(self) -> dict[str, AnyArray]:
        """Return every chunk as arrays named by its number; they never change."""
        named: dict[str, AnyArray] = {}
        for number, chunk in self.chunks.items():
            for name in BATCH_ARRAYS:
                named[f'{number}/{name}'] = getattr(chunk.batch, name)
            named[f'{number}/log_likelihood'] = chunk.log_likelihood
        return named


def read_reservoir(
    reader: StateReader, prefix: str, index: str, task: str, capacity: int, shape: tuple[int, int]
) -> Reservoir:
    """Read a reservoir whose observations and actions have these widths."""
    flat = reader.array(index, (None,), np.uint64).astype(int)
    if len(flat) < 2 or len(flat) % 2 or (len(flat) - 2) // 2 > capacity:
        raise StateMismatch(f'{index} does not describe a reservoir of {capacity} trajectories')
    slots = tuple((int(chunk), int(i)) for chunk, i in flat[2:].reshape(-1, 2))
    chunks = {
        number: _read_chunk(reader, f'{prefix}/{number}', task, shape)
        for number in sorted({chunk for chunk, _ in slots})
    }
    if any(i >= chunks[chunk].batch.n_trajectories for chunk, i in slots):
        raise StateMismatch(f'{index} names a trajectory that is not there')
    return Reservoir(capacity, int(flat[0]), int(flat[1]), slots, chunks)


def _read_chunk(reader: StateReader, prefix: str, task: str, shape: tuple[int, int]) -> Stored:
    lengths = reader.array(f'{prefix}/lengths', (None,), np.int64)
    n, steps = len(lengths), int(lengths.sum())
    if n == 0 or lengths.min() <= 0:
        raise StateMismatch(f'{prefix}/lengths has a trajectory without steps')
    flags = {
        name: reader.array(f'{prefix}/{name}', (n,), np.bool_)
        for name in ('terminated', 'truncated', 'success', 'failed')
    }
    batch = Batch(
        task=task,
        observations=reader.floats(f'{prefix}/observations', steps, shape[0]),
        actions=reader.floats(f'{prefix}/actions', steps, shape[1]),
        rewards=reader.floats(f'{prefix}/rewards', steps),
        lengths=lengths,
        final_observations=reader.floats(f'{prefix}/final_observations', n, shape[0]),
        **flags,
    )
    return Stored(batch, reader.floats(f'{prefix}/log_likelihood', steps))


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

    @property
    def _share_of_batch(self) -> float:
        run = self._need_run()
        return 0.5 if self.rotation(1, run.iteration) else 1.0

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
        """Divide a number of trajectories among the earlier tasks, remainder in turn."""
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
        """Offer the batch to the task's reservoir, with the log-likelihoods of its actions."""
        at = forward(policy, batch.observations)
        stored = Stored(batch, log_likelihood(policy, at.mean, batch.actions))
        rng = generator(run.seed, Purpose.REPLAY, run.iteration, 1)
        self._working[run.task] = self._own(run.task).offer(stored, rng)
        return False

    def _own(self, task: str) -> Reservoir:
        """Return the reservoir of the running task: its working copy, or its start."""
        empty = Reservoir(self._config.replay_capacity)
        return self._working.get(task, self._memory.get(task, empty))

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        self._memory[run.task] = self._own(run.task).compact()
        self._working.pop(run.task, None)
        return super()._fold(run, batch)

    def cancel_task(self) -> None:
        """Drop the running task and what it stored; a revisited task returns to its old state."""
        task = self._need_run().task
        super().cancel_task()
        self._working.pop(task, None)

    def forget_task(self, task: str) -> None:
        """Remove a task and its trajectories; its effect on the shared theta stays."""
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
