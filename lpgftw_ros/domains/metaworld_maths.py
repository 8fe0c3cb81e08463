"""Small replacements of what Meta-World's rewards ask of numpy and scipy at every step."""

import math
from typing import Any

from metaworld.utils import reward_utils
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def norm(x: Any, ord: int | None = None) -> Any:
    """Return the Euclidean norm of a vector or a number, in the same bits as numpy's."""
    if type(x) is np.ndarray and x.ndim == 1:
        return np.sqrt(x.dot(x))
    return np.sqrt(np.float64(x) * x)


def all_true(x: Any) -> Any:
    """Return whether all elements are true."""
    if type(x) is np.ndarray and x.ndim == 1:
        return False not in x.tolist()
    return np.all(x)


_LONG_TAIL = math.sqrt(1.0 / 0.1 - 1.0)
_GAUSSIAN = math.sqrt(-2.0 * math.log(0.1))


def tolerance(
    x: Any,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: Any = 0.0,
    sigmoid: str = 'gaussian',
    value_at_margin: float = 0.1,
) -> Any:
    """Return 1 inside the bounds and a sigmoid of the distance over `margin` outside.

    Numbers with the two sigmoids the rewards use are computed here, all else by upstream.
    """
    lower, upper = bounds
    usual = sigmoid in ('long_tail', 'gaussian') and value_at_margin == 0.1
    if not usual or not isinstance(x, float) or lower > upper or margin <= 0:
        return reward_utils.tolerance(x, bounds, margin, sigmoid, value_at_margin)
    if lower <= x <= upper:
        return 1.0
    d = float((lower - x if x < lower else x - upper) / margin)
    if sigmoid == 'gaussian':
        return math.exp(-0.5 * (d * _GAUSSIAN) ** 2)
    return 1.0 / ((d * _LONG_TAIL) ** 2 + 1.0)


class Rotation:
    """The one thing upstream asks of scipy's class: a matrix as a quaternion x, y, z, w."""

    __slots__ = ('_matrix',)

    def __init__(self, matrix: Floats) -> None:
        self._matrix = matrix

    @classmethod
    def from_matrix(cls, matrix: Floats) -> 'Rotation':
        """Take a 3 x 3 rotation matrix."""
        return cls(matrix)

    def as_quat(self) -> Floats:
        """Return the unit quaternion whose largest component is positive."""
        (a, b, c), (d, e, f), (g, h, i) = self._matrix.tolist()
        trace = a + e + i
        largest = max(a, e, i, trace)
        if largest == trace and trace not in (a, e, i):
            x, y, z, w = h - f, c - g, d - b, 1.0 + trace
        elif largest == a:
            x, y, z, w = 1.0 - trace + 2.0 * a, d + b, g + c, h - f
        elif largest == e:
            x, y, z, w = d + b, 1.0 - trace + 2.0 * e, h + f, c - g
        else:
            x, y, z, w = g + c, h + f, 1.0 - trace + 2.0 * i, d - b
        size = math.sqrt(x * x + y * y + z * z + w * w)
        return np.array([x / size, y / size, z / size, w / size])
