"""Arrays on disk, intact or refused: checksummed safetensors, written atomically."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
import errno
import hashlib
import json
import os
from pathlib import Path
import stat
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

from lpgftw_ros.errors import LpgftwError, StateMismatch
from lpgftw_ros.learning.arrays import Array

FORMAT = 2
"""Number of the run-folder format: config.yaml, summary.json and all checkpoints."""
READABLE = (1, FORMAT)
"""Formats that can still be read; 1 kept every policy twice."""
LARGEST_HEADER = 100_000_000
"""Most bytes of a header, as in the safetensors library."""
DAMAGED = (ValueError, KeyError, TypeError, OverflowError, MemoryError, RecursionError)
"""What reading a damaged file raises."""


class CannotWrite(LpgftwError):
    """A file of the run folder could not be written; what was there is untouched."""


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file as a whole: temporary name, flush to disk, rename."""
    temporary = path.with_name(path.name + '.tmp')
    with writing(path):
        try:
            temporary.unlink(missing_ok=True)  # of a killed process, or a link to another file
            with temporary.open('xb') as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with suppress(OSError):  # the first error says more
                temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(what: Path) -> Iterator[None]:
    """Turn an error of the operating system into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(f'cannot write {what}: {error.strerror or error}') from error


def write_arrays(path: Path, arrays: Mapping[str, Array], info: Mapping[str, Any]) -> None:
    """Write arrays and plain values into one checksummed file."""
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(info, sort_keys=True)
    metadata = {'format': str(FORMAT), 'info': text, 'sha256': _digest(packed, text)}
    write_bytes(path, format_tensors(packed, metadata=metadata))


def read_arrays(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `write_arrays` wrote; raise `StateMismatch` if a single bit is off."""
    try:
        with _open(path) as file:
            metadata = _header(file)['__metadata__']
            file.seek(0)
            content = file.read()
        if int(metadata['format']) not in READABLE:
            raise StateMismatch(
                f'{path.name} has format {metadata["format"]}, this version reads '
                f'{" and ".join(map(str, READABLE))}'
            )
        arrays = {name: np.array(array) for name, array in parse_tensors(content).items()}
        info = json.loads(metadata['info'])
    except OSError as error:
        raise StateMismatch(f'cannot read {path}: {error.strerror}') from error
    except (*DAMAGED, SafetensorError) as error:
        raise StateMismatch(f'{path.name} is damaged: {type(error).__name__}') from error
    if metadata.get('sha256') != _digest(arrays, metadata['info']):
        raise StateMismatch(f'{path.name} is damaged: its checksum does not match')
    return arrays, info


def read_info(path: Path) -> dict[str, Any]:
    """Read the plain values of a file without its arrays; empty if they cannot be read."""
    try:
        with _open(path) as file:
            return dict(json.loads(_header(file)['__metadata__']['info']))
    except (OSError, *DAMAGED):
        return {}


def _open(path: Path) -> BinaryIO:
    """Open a regular file; a pipe would block the reader, and a device may never end."""

    def regular(name: str, flags: int) -> int:
        handle = os.open(name, flags | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, 'not a regular file', name)
        return handle

    return open(path, 'rb', opener=regular)


def _header(file: BinaryIO) -> dict[str, Any]:
    """Read the header; its size is checked first."""
    size = int.from_bytes(file.read(8), 'little')
    if size > LARGEST_HEADER:
        raise ValueError(f'a header of {size} bytes')
    return dict(json.loads(file.read(size)))


def _digest(arrays: Mapping[str, Array], text: str) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f'{name} {array.dtype} {array.shape}'.encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()
