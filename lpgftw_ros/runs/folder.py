"""The run folder: configuration, metrics, summary, checkpoints, and the lock on them."""

from collections.abc import Iterable
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from lpgftw_ros.errors import InvalidConfig, LpgftwError, StateMismatch
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.storage import CannotWrite, write_bytes


class FolderInUse(LpgftwError):
    """Another process is writing to the run folder."""


BEFORE_CONFIG = {'.lock', 'checkpoints', 'config.yaml.tmp'}
"""What a run that was killed in its first moment leaves behind."""


class RunFolder:
    """One run on disk, held by one process at a time."""

    def __init__(self, path: Path, config: RunConfig, *, resume: bool) -> None:
        """Create the folder, or open it again with the configuration it was made with."""
        self.path = path
        self.config = config
        self.checkpoints = path / 'checkpoints'
        exists = (path / 'config.yaml').exists()
        if path.exists() and not path.is_dir():
            raise InvalidConfig(f'{path} is a file, expected a folder for the run')
        foreign = path.exists() and {p.name for p in path.iterdir()} - BEFORE_CONFIG
        if not resume and foreign:
            raise InvalidConfig(
                f'{path} is not empty; add --resume (resume:=true for ros2 launch) to continue '
                f'it, or choose another out'
            )
        if resume and not exists and foreign:
            raise InvalidConfig(f'{path} is not a run folder: it has no config.yaml')
        if exists:
            require_same(read_config(path), config)
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self._lock = (path / '.lock').open('w')
        except OSError as error:
            raise CannotWrite(f'cannot write to {path}: {error.strerror}') from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise FolderInUse(f'{path} is in use by another process') from None
        if not exists:
            text = yaml.safe_dump(config.to_dict(), sort_keys=False)
            write_bytes(path / 'config.yaml', text.encode())
        self._metrics_size = 0

    def __enter__(self) -> 'RunFolder':
        """Return the open folder."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the folder."""
        self.close()

    def close(self) -> None:
        """Release the folder for other processes."""
        self._lock.close()

    def truncate_metrics(self, size: int) -> None:
        """Drop the rows written after the checkpoint that noted `size`."""
        path = self.path / 'metrics.jsonl'
        path.touch()
        with path.open('r+b') as file:
            file.truncate(size)
        self._metrics_size = size

    def append_metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows durably."""
        content = ''.join(json.dumps(row) + '\n' for row in rows).encode()
        if not content:
            return
        try:
            with (self.path / 'metrics.jsonl').open('ab') as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CannotWrite(f'cannot write metrics.jsonl: {error.strerror}') from error
        self._metrics_size += len(content)

    @property
    def metrics_size(self) -> int:
        """Bytes of metrics.jsonl that are complete."""
        return self._metrics_size

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Replace a JSON file as a whole, so that it can be read at any moment."""
        write_bytes(
            self.path / name, (json.dumps(content, indent=2) + '\n').encode(), durable=False
        )

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file; empty if it is not there."""
        path = self.path / name
        if not path.exists():
            return {}
        try:
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            raise StateMismatch(f'{path} is damaged; remove it to go on without it') from None


def read_config(path: Path) -> RunConfig:
    """Return the configuration of a run folder."""
    try:
        values = yaml.safe_load((path / 'config.yaml').read_text())
    except OSError as error:
        raise InvalidConfig(f'{path} is not a run folder: {error.strerror}') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f'{path}/config.yaml is not valid YAML') from error
    if not isinstance(values, dict):
        raise InvalidConfig(f'{path}/config.yaml holds no settings')
    return RunConfig.from_dict(values)


def require_same(saved: RunConfig, asked: RunConfig) -> None:
    """Raise `InvalidConfig` that names every setting in which two configurations differ."""
    if differing := differences(saved, asked):
        raise InvalidConfig(
            f'this run folder has another configuration: {"; ".join(differing)}; leave these '
            f'options as they were, or choose another out'
        )


def differences(saved: RunConfig, asked: RunConfig) -> list[str]:
    """Return a phrase for every setting in which two configurations differ."""
    old, new = _flat(saved), _flat(asked)
    return [
        f'{key} is {old.get(key)!r}, asked for {new.get(key)!r}'
        for key in old | new
        if old.get(key) != new.get(key)
    ]


def _flat(config: RunConfig) -> dict[str, Any]:
    values = config.to_dict()
    parts = {part: values.pop(part) for part in ('loop', 'method')}
    inner = {f'{part}.{key}': v for part, group in parts.items() for key, v in group.items()}
    return values | inner
