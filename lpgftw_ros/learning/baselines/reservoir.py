"""A uniform sample of all trajectories a task has seen, in bounded memory.

Trajectories arrive in chunks (those of one iteration that were accepted). A chunk never changes
once it is made and its number is never used again, so a store may write each chunk once and skip
it afterwards; only the small index of live slots changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array, Integers
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.state import AnyArray, StateReader

BATCH_ARRAYS = tuple(item.name for item in fields(Batch) if item.name != 'task')


@dataclass(frozen=True, slots=True)
class Stored:
    """Trajectories with the log-likelihood of their actions when they were made."""

    batch: Batch
    log_likelihood: Array
    """Shape (M,)."""

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
        """Return the reservoir after these trajectories passed by (algorithm R)."""
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
