"""What a reset of a vector environment may be asked for: which rows, from which seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lpgftw_ros.errors import InvalidConfig, WrongShape
from lpgftw_ros.learning.arrays import Integers, Mask
from lpgftw_ros.learning.randomness import generator, Purpose

_OPTIONS = ('first', 'count', 'reset_mask')


def reset_mask(options: Mapping[str, Any], n: int) -> Mask:
    """Return which of n rows a reset concerns. Shape (n,)."""
    for name in options:
        if name not in _OPTIONS:
            raise InvalidConfig(f"unknown reset option '{name}' (known: {', '.join(_OPTIONS)})")
    count = int(options.get('count', n))
    if not 1 <= count <= n:
        raise InvalidConfig(f'count must be between 1 and {n}, got {count}')
    mask = options.get('reset_mask')
    if mask is None:
        return np.arange(n) < count
    if np.shape(mask) != (n,):
        raise WrongShape(f'reset_mask has shape {np.shape(mask)}, expected {(n,)}')
    return np.asarray(mask, dtype=bool)


def row_streams(
    seed: int | Sequence[int | None], rows: Integers, first: int, n: int
) -> list[np.random.Generator | None]:
    """Return the random stream of each of these rows; None lets its present stream run on.

    One seed stands for a rollout, in which row r is trajectory first + r; a sequence holds a seed
    for each of the n rows.
    """
    if isinstance(seed, int | np.integer):
        root = _checked(seed)
        return [generator(root, Purpose.RESET, first + int(row)) for row in rows]
    if len(seed) != n:
        raise WrongShape(f'{len(seed)} seeds for {n} rows')
    own = [seed[row] for row in rows]
    return [None if s is None else generator(_checked(s), Purpose.RESET, 0) for s in own]


def _checked(seed: int) -> int:
    if seed < 0:
        raise InvalidConfig(f'seed must not be negative, got {seed}')
    return int(seed)
