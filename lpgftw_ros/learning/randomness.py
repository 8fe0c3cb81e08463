"""Random streams that depend on what is computed, not on when or where.

A rollout has one seed, derived from (run seed, purpose, visit, iteration). The reset of a
trajectory depends on (rollout seed, trajectory index), its exploration noise on (rollout seed,
trajectory index, time step). So the same rollout gets the same numbers from any worker, process or
driver.
"""

from enum import IntEnum

import numpy as np

from lpgftw_ros.learning.arrays import Array


class Purpose(IntEnum):
    """What a seed is drawn for; keeps the streams of one run apart."""

    POLICY_INIT = 0
    VALUE_INIT = 1
    TRAIN = 2
    UPDATE = 3
    EVALUATE = 4
    VALUE_FIT = 5
    REPLAY = 6
    TASK_ORDER = 7
    RESET = 8
    NOISE = 9
    PROBE = 10


def derive_seed(root: int, purpose: Purpose, *path: int) -> int:
    """Return the 64-bit seed of (root, purpose, path)."""
    return int(np.random.SeedSequence((root, int(purpose), *path)).generate_state(1, np.uint64)[0])


def generator(root: int, purpose: Purpose, *path: int) -> np.random.Generator:
    """Return the generator of (root, purpose, path)."""
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence((root, int(purpose), *path)))
    )


class ExplorationNoise:
    """Standard normal noise of a rollout, addressed by time step.

    Row i of `at(step)` belongs to trajectory `first + i` and does not depend on the number of
    rows: one stream per block of steps serves the trajectories in order.
    """

    _BLOCK = 64

    def __init__(self, rollout_seed: int, n_rows: int, act_dim: int, first: int = 0) -> None:
        self._seed, self._first = rollout_seed, first
        self._size = (first + n_rows, self._BLOCK, act_dim)
        self._drawn: tuple[int, Array] | None = None

    def at(self, step: int) -> Array:
        """Return the noise of one time step. Shape (n_rows, act_dim)."""
        block, offset = divmod(step, self._BLOCK)
        if self._drawn is None or self._drawn[0] != block:
            self._drawn = (block, self._draw(block))
        noise: Array = self._drawn[1][offset]
        return noise

    def _draw(self, block: int) -> Array:
        """Return the noise of a block of steps. Shape (steps, n_rows, act_dim)."""
        rows = generator(self._seed, Purpose.NOISE, block).standard_normal(self._size)
        return np.ascontiguousarray(rows[self._first :].swapaxes(0, 1))
