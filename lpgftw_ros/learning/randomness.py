"""Random streams that depend on what is computed, never on when or by whom.

A rollout has one seed, derived from (run seed, purpose, visit, iteration). Each of its
trajectories has two streams derived from (rollout seed, trajectory index): one for the reset of
the environment, one for exploration noise. Workers, processes and drivers may come and go: the
same rollout sees the same numbers.
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


def derive_seed(root: int, purpose: Purpose, *path: int) -> int:
    """Return the 64-bit seed that (root, purpose, path) stands for."""
    return int(np.random.SeedSequence((root, int(purpose), *path)).generate_state(1, np.uint64)[0])


def generator(root: int, purpose: Purpose, *path: int) -> np.random.Generator:
    """Return the generator that (root, purpose, path) stands for."""
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence((root, int(purpose), *path)))
    )


class ExplorationNoise:
    """Standard normal noise of a rollout, addressed by time step.

    Row i of `at(step)` belongs to trajectory `first + i` and is the same whatever the number of
    rows beside it.
    """

    _BLOCK = 256

    def __init__(self, rollout_seed: int, n_rows: int, act_dim: int, first: int = 0) -> None:
        self._streams = [
            generator(rollout_seed, Purpose.NOISE, first + row) for row in range(n_rows)
        ]
        self._act_dim = act_dim
        self._block = np.empty((0, n_rows, act_dim))
        self._start = 0

    def at(self, step: int) -> Array:
        """Return the noise of one time step. Shape (n_rows, act_dim).

        Steps are asked for in increasing order; a skipped step is drawn and dropped.
        """
        if step < self._start:
            raise ValueError(f'noise of step {step} was already dropped')
        while step >= self._start + len(self._block):
            self._start += len(self._block)
            size = (self._BLOCK, self._act_dim)
            self._block = np.stack([s.standard_normal(size) for s in self._streams], axis=1)
        return np.ascontiguousarray(self._block[step - self._start])
