"""The array type of the library and the checks every entry point makes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.errors import NonFinite, WrongShape

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
Integers = NDArray[np.integer[Any]]


def require_finite(name: str, array: Array) -> None:
    """Raise `NonFinite` if any element is NaN or infinite."""
    if not np.isfinite(array).all():
        bad = int(np.size(array) - np.count_nonzero(np.isfinite(array)))
        raise NonFinite(f'{name} has {bad} of {np.size(array)} elements that are not finite')


def require_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raise `WrongShape` unless `array` has exactly `shape`."""
    if array.shape != shape:
        raise WrongShape(f'{name} has shape {array.shape}, expected {shape}')
