"""Reading and writing learner states: flat dictionaries of arrays.

Text travels as bytes, numbers as arrays of one element, so that any array file format can hold
a state. Reading checks everything and raises `StateMismatch`; writers copy.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lpgftw_ros.errors import InvalidConfig, StateMismatch

FORMAT = 1
"""Version of the layout of all learner states."""

AnyArray = NDArray[Any]


def check_task_name(task: str) -> None:
    """Raise `InvalidConfig` for a name that cannot be part of a state's keys."""
    if not task or '/' in task or '\n' in task:
        raise InvalidConfig(f"a task name needs at least one character and no '/': got '{task}'")


def pack_text(text: str) -> AnyArray:
    """Return a text as an array of bytes."""
    return np.frombuffer(text.encode(), dtype=np.uint8).copy()


def pack_number(number: int) -> AnyArray:
    """Return a non-negative whole number as an array."""
    return np.array([number], dtype=np.uint64)


def pack_names(names: Iterable[str]) -> AnyArray:
    """Return a list of task names as an array of bytes, each after a line break, never empty."""
    return pack_text('\n' + '\n'.join(names))


def prefixed(prefix: str, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Put a prefix before every key."""
    return {f'{prefix}/{key}': value for key, value in arrays.items()}


class StateReader:
    """A state being read; remembers what was read, so that leftovers can be named."""

    def __init__(self, state: Mapping[str, AnyArray]) -> None:
        self._state = state
        self._read: set[str] = set()

    def array(self, key: str, shape: tuple[int | None, ...], dtype: DTypeLike) -> AnyArray:
        """Return a copy of an array of this shape (None: any length) and type, all finite."""
        found = self._raw(key)
        wanted = np.dtype(dtype)
        fits = len(shape) == found.ndim and all(
            size is None or size == have for size, have in zip(shape, found.shape, strict=False)
        )
        if not fits or found.dtype != wanted:
            expected = '(' + ', '.join('any' if n is None else str(n) for n in shape) + ')'
            raise StateMismatch(
                f'{key} is {found.dtype} {found.shape}, expected {wanted} {expected}'
            )
        if wanted.kind == 'f' and not np.isfinite(found).all():
            raise StateMismatch(f'{key} has elements that are not finite')
        return found.copy()

    def floats(self, key: str, *shape: int | None) -> AnyArray:
        """Return a float64 array."""
        return self.array(key, shape, np.float64)

    def number(self, key: str) -> int:
        """Return a whole number."""
        return int(self.array(key, (1,), np.uint64)[0])

    def text(self, key: str) -> str:
        """Return a text."""
        raw = self.array(key, (None,), np.uint8)
        try:
            return raw.tobytes().decode()
        except UnicodeDecodeError as error:
            raise StateMismatch(f'{key} is not a text: {error}') from error

    def names(self, key: str) -> list[str]:
        """Return a list of task names."""
        return [name for name in self.text(key).split('\n') if name]

    def has(self, prefix: str) -> bool:
        """Return whether any key begins with a prefix."""
        return any(key.startswith(prefix) for key in self._state)

    def finish(self) -> None:
        """Raise `StateMismatch` if the state holds anything that was not read."""
        left = sorted(set(self._state) - self._read)
        if left:
            raise StateMismatch(f'{len(left)} unknown entries, the first is {left[0]}')

    def _raw(self, key: str) -> AnyArray:
        if key not in self._state:
            raise StateMismatch(f'{key} is missing')
        self._read.add(key)
        return np.asarray(self._state[key])
