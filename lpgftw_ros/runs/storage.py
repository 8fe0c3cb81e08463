"""Arrays on disk that are either whole or refused: checksummed safetensors, written atomically."""

from collections.abc import Mapping
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

from lpgftw_ros.errors import LpgftwError, StateMismatch
from lpgftw_ros.learning.arrays import Array

FILE_FORMAT = '1'


class CannotWrite(LpgftwError):
    """A file of the run folder could not be written; what was there is untouched."""


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file as a whole: temporary name, flush to disk, rename."""
    temporary = path.with_name(path.name + '.tmp')
    try:
        with temporary.open('wb') as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CannotWrite(f'cannot write {path}: {error.strerror}') from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_arrays(path: Path, arrays: Mapping[str, Array], info: Mapping[str, Any]) -> None:
    """Write arrays and plain values into one checksummed file."""
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(info, sort_keys=True)
    metadata = {'format': FILE_FORMAT, 'info': text, 'sha256': _digest(packed, text)}
    write_bytes(path, format_tensors(packed, metadata=metadata))


def read_arrays(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `write_arrays` wrote; raise `StateMismatch` if a single bit is off."""
    try:
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], 'little')])
        metadata = header['__metadata__']
        if metadata['format'] != FILE_FORMAT:
            raise StateMismatch(
                f'{path.name} has format {metadata["format"]}, expected {FILE_FORMAT}'
            )
        arrays = {name: np.array(array) for name, array in parse_tensors(content).items()}
        info = json.loads(metadata['info'])
    except OSError as error:
        raise StateMismatch(f'cannot read {path}: {error.strerror}') from error
    except (ValueError, KeyError, TypeError, OverflowError, SafetensorError) as error:
        raise StateMismatch(f'{path.name} is damaged: {type(error).__name__}') from error
    if metadata.get('sha256') != _digest(arrays, metadata['info']):
        raise StateMismatch(f'{path.name} is damaged: its checksum does not match')
    return arrays, info


def read_info(path: Path) -> dict[str, Any]:
    """Read the plain values of a file without its arrays; empty if that cannot be done."""
    try:
        with path.open('rb') as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
        return dict(json.loads(header['__metadata__']['info']))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, MemoryError):
        return {}


def _digest(arrays: Mapping[str, Array], text: str) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f'{name} {array.dtype} {array.shape}'.encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()
