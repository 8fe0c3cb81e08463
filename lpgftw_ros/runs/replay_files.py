"""Stored trajectories on disk: a chunk never changes, so it is written once."""

from collections.abc import Iterable
from pathlib import Path

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.storage import read_arrays, write_arrays

CHUNKS = 'replay/chunks/'


class ReplayFiles:
    """The chunks of one run, a file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: set[str] = set()

    def save(self, arrays: dict[str, Array]) -> tuple[dict[str, Array], list[str]]:
        """Write the chunks that are new; return what is left of the state, and all names."""
        rest = {name: a for name, a in arrays.items() if not name.startswith(CHUNKS)}
        chunks: dict[str, dict[str, Array]] = {}
        for name, array in arrays.items():
            if name.startswith(CHUNKS):
                task, number, _ = name.removeprefix(CHUNKS).split('/', 2)
                chunks.setdefault(f'{task}-{number}', {})[name] = array
        for chunk, content in chunks.items():
            if chunk not in self._written:
                self._folder.mkdir(exist_ok=True)
                write_arrays(self._file(chunk), content, {})
                self._written.add(chunk)
        return rest, sorted(chunks)

    def load(self, chunks: Iterable[str]) -> dict[str, Array]:
        """Read the chunks a checkpoint names; raises `StateMismatch` if one is damaged."""
        arrays: dict[str, Array] = {}
        for chunk in chunks:
            arrays |= read_arrays(self._file(chunk))[0]
        self._written = set(chunks)
        return arrays

    def prune(self, needed: set[str]) -> None:
        """Delete the chunks no checkpoint names any more."""
        for chunk in self._written - needed:
            self._file(chunk).unlink(missing_ok=True)
        self._written &= needed

    def _file(self, chunk: str) -> Path:
        return self._folder / f'{chunk}.safetensors'
