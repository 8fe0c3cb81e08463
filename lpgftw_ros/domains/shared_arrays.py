"""Named arrays in one block of memory that several processes can see."""

from collections.abc import Mapping, Sequence
import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

Layout = Sequence[tuple[str, str, tuple[int, ...]]]
"""Name, dtype and shape of each array, in the order of the block."""

_ALIGNMENT = 64


def _offsets(layout: Layout) -> tuple[list[int], int]:
    """Return where each array starts, and the size of the block."""
    offsets, end = [], 0
    for _, dtype, shape in layout:
        offsets.append(end)
        size = np.dtype(dtype).itemsize * math.prod(shape)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return offsets, max(end, 1)


def new_block(layout: Layout) -> int:
    """Return the descriptor of a fresh block of zeros; it has no name and leaves no file."""
    if hasattr(os, 'memfd_create'):
        descriptor = os.memfd_create('lpgftw')
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _offsets(layout)[1])
    return descriptor


def map_block(descriptor: int, layout: Layout) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of a block; they keep it mapped after the descriptor is closed."""
    offsets, size = _offsets(layout)
    memory = mmap.mmap(descriptor, size)
    return {
        name: np.frombuffer(memory, dtype, math.prod(shape), offset).reshape(shape)
        for (name, dtype, shape), offset in zip(layout, offsets, strict=True)
    }
