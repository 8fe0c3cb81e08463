"""A simulation worker: answers its parent's requests until the parent is gone.

Runs as a process of its own, started by `WorkerProcesses`. It must import quickly: no torch.
"""

from collections.abc import Mapping, Sequence
import importlib
import json
import math
import mmap
import os
import socket
import struct
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Named arrays in one block of memory that several processes can see.


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


HEADER = struct.Struct('<IcI')
"""Sequence number, operation, number of the hosted environment."""
REPLY = struct.Struct('<I?')
"""Sequence number, whether it worked; then a result or an error as JSON."""
LARGEST = 1 << 17
"""Bytes of the largest message."""
_PATIENCE = 2.0
"""Seconds between two checks that the parent is alive."""


class Worker:
    """Hosts rows of environments and works on its share of the shared arrays."""

    def __init__(self) -> None:
        self._hosted: dict[int, Any] = {}

    def handle(self, operation: bytes, number: int, body: bytes, descriptors: list[int]) -> bytes:
        """Carry out one request and return its result."""
        if operation == b'S':
            self._hosted[number].step()
        elif operation == b'R':
            self._hosted[number].reset()
        elif operation == b'B':
            self._build(number, json.loads(body), descriptors[0])
        elif operation == b'X':
            state: bytes = self._hosted[number].state(json.loads(body)).tobytes()
            return state
        elif operation == b'P':
            return self._draw(number, json.loads(body), descriptors[0])
        elif operation == b'C' and number in self._hosted:
            self._hosted.pop(number).close()
        return b''

    def _build(self, number: int, request: dict[str, Any], descriptor: int) -> None:
        """Host the rows start to stop of a new environment."""
        layout = [(name, dtype, tuple(shape)) for name, dtype, shape in request['layout']]
        start, stop = request['rows']
        arrays = {k: v[start:stop] for k, v in map_block(descriptor, layout).items()}
        module, _, name = request['rows_class'].partition(':')
        rows_class = getattr(importlib.import_module(module), name)
        self._hosted[number] = rows_class(arrays, **request['settings'])

    def _draw(self, number: int, row: int, descriptor: int) -> bytes:
        """Write a picture of one row into a file of the parent and return its shape."""
        frame = np.ascontiguousarray(self._hosted[number].render(row), dtype=np.uint8)
        with os.fdopen(os.dup(descriptor), 'wb') as file:
            file.write(frame.tobytes())
        return json.dumps(frame.shape).encode()


def main(descriptor: int) -> None:
    """Serve requests from the socket until the parent closes it or dies."""
    parent = os.getppid()
    worker = Worker()
    with socket.socket(fileno=descriptor) as channel:
        channel.settimeout(_PATIENCE)
        while os.getppid() == parent:
            try:
                message, received, _, _ = socket.recv_fds(channel, LARGEST, 1)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if not message:
                break
            _answer(worker, channel, message, received)


def _answer(
    worker: Worker, channel: socket.socket, message: bytes, descriptors: list[int]
) -> None:
    """Handle one request; every error goes back to the parent as text."""
    sequence, operation, number = HEADER.unpack_from(message)
    try:
        result = worker.handle(operation, number, message[HEADER.size :], descriptors)
        reply = REPLY.pack(sequence, True) + result
    except Exception as error:
        text = json.dumps([type(error).__name__, str(error)])
        reply = REPLY.pack(sequence, False) + text.encode()[: LARGEST // 2]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    try:
        channel.sendall(reply)
    except ConnectionError:
        return
