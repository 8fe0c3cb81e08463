"""The run folder: one process writes it, and all readers go through this module.

config.yaml        every setting, and the run's identity
suite/NAME.yaml    the run's own copy of its suite
metrics.jsonl      a row per iteration and update (`.gz` in an archive)
summary.json       scores of every task, readable at any moment
fingerprint.json   libraries, processor and physics the numbers depend on
checkpoints/       see `runs.checkpoints`
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
import fcntl
import gzip
import hashlib
import json
import os
from pathlib import Path
import shutil
from types import TracebackType
from typing import Any
import uuid

import yaml

from lpgftw_ros.domains.suites import load_suite, Suite, suite_file, TaskSpec
from lpgftw_ros.errors import InvalidConfig, LpgftwError, StateMismatch
from lpgftw_ros.resources import read_yaml
from lpgftw_ros.runs.config import RETIRED, RunConfig
from lpgftw_ros.runs.storage import READABLE, write_bytes, writing

CONFIG, METRICS, SUMMARY, SUITE = 'config.yaml', 'metrics.jsonl', 'summary.json', 'suite'
BEFORE_CONFIG = {'.lock', 'checkpoints', SUITE, 'config.yaml.tmp'}
"""Files of a run that was killed right after it started."""
MOST_ROWS_AHEAD = 4
"""Iterations and updates a kill may leave in metrics.jsonl after the checkpoint: those of two
saves, if the newest checkpoint is damaged too."""


class FolderInUse(LpgftwError):
    """Another process is writing to the run folder."""


class MissingRun(LpgftwError):
    """No run folder where one was expected."""


class BadRunFolder(LpgftwError):
    """A run folder whose files are damaged or of another format."""


class RunFolder:
    """One run on disk, held by one process at a time."""

    def __init__(
        self, path: Path, config: RunConfig, *, resume: bool, knowledge: str = ''
    ) -> None:
        """Create the folder, or open it again with the configuration it was made with.

        `knowledge` is the digest of what a new run starts from.
        """
        self.path = path
        self.checkpoints = path / 'checkpoints'
        exists = (path / CONFIG).exists()
        _require_room(path, resume=resume, exists=exists)
        if exists:
            require_same(read_config(path), config)
        with writing(path):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self._lock = (path / '.lock').open('w')
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise FolderInUse(f'{path} is in use by another process') from None
        if exists:
            noted = read_settings(path)
            self.id, self.knowledge = (str(noted.get(n) or '') for n in ('run', 'knowledge'))
        else:
            self.id, self.knowledge = uuid.uuid4().hex[:12], knowledge
            self._copy_suite(config)
            origin = {'knowledge': knowledge} if knowledge else {}
            content = {'run': self.id, **config.to_dict(), **origin}
            write_bytes(path / CONFIG, yaml.safe_dump(content, sort_keys=False).encode())
        self.config = with_suite_copy(config, path)
        self._metrics = _Digest()

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

    # -- the suite -----------------------------------------------------------------------

    def _copy_suite(self, config: RunConfig) -> None:
        source = suite_file(config.suite_source)
        with writing(self.path / SUITE):
            (self.path / SUITE).mkdir(exist_ok=True)
        write_bytes(self.path / SUITE / f'{source.stem}.yaml', source.read_bytes())
        for file in load_suite(source).files:  # the user's own environments
            write_bytes(self.path / SUITE / file.name, file.read_bytes())

    def add_tasks(self, tasks: Iterable[TaskSpec]) -> None:
        """Add tasks to the run's own copy of its suite."""
        suite = load_suite(self.config.suite_source)
        fresh = [task for task in tasks if task.name not in suite.task_names]
        if not fresh:
            return
        with writing(self.path / SUITE):
            (self.path / SUITE).mkdir(exist_ok=True)
        for file in (file for task in fresh for file in task.traits.files):
            write_bytes(self.path / SUITE / file.name, file.read_bytes())
        path = self.path / SUITE / f'{suite.name}.yaml'
        write_bytes(path, _suite_text(suite, fresh, suite.order(self.config.loop.seed)).encode())
        self.config = with_suite_copy(self.config, self.path)

    @property
    def identity(self) -> dict[str, Any]:
        """What every checkpoint carries: the run's id, and what decides its numbers."""
        suite = load_suite(self.config.suite_source)
        return {
            'id': self.id,
            'config': flat_settings(self.config),
            'tasks': {task.name: task_digest(task) for task in suite.tasks},
        }

    # -- metrics -------------------------------------------------------------------------

    def open_metrics(self, noted: Mapping[str, Any] | None) -> None:
        """Check metrics.jsonl against the checkpoint; drop the rows after it.

        Raise `StateMismatch`, and change nothing, if the file is not the one the checkpoint was
        written with.
        """
        path = self.path / METRICS
        content = path.read_bytes() if path.exists() else b''
        noted = noted or {'size': 0}
        size = int(noted['size'])
        if len(content) < size:
            what = f'has {len(content)} bytes' if path.exists() else 'is missing'
            raise StateMismatch(f'{path} {what}, the checkpoint expects {size}; put it back')
        digest = _Digest(content[:size])
        if noted.get('sha256', digest.sha256) != digest.sha256:
            raise StateMismatch(
                f'{path} was changed: its first {size} bytes are not those the checkpoint '
                f'was written with; put it back'
            )
        ahead = _learning_rows(content[size:])
        if ahead > MOST_ROWS_AHEAD:
            raise StateMismatch(
                f'{path} goes on for {ahead} iterations after the checkpoint, which is of '
                f'another iteration; put back the newest one, or cut the file to {size} bytes'
            )
        with writing(path):
            path.touch()
            if len(content) > size:
                os.truncate(path, size)
        self._metrics = digest

    def append_metrics(self, rows: Iterable[Mapping[str, Any]]) -> '_Digest':
        """Write rows durably after the accepted ones; `accept_metrics` accepts them.

        Rows that were written but never accepted, because a later write failed, are replaced.
        """
        content = ''.join(json.dumps(row) + '\n' for row in rows).encode()
        if content:
            path = self.path / METRICS
            with writing(path), path.open('r+b') as file:
                file.seek(self._metrics.size)
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        return self._metrics.extended(content)

    def accept_metrics(self, written: '_Digest') -> None:
        """Accept rows: a checkpoint names them."""
        self._metrics = written

    # -- JSON files ----------------------------------------------------------------------

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
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


class _Digest:
    """Size and checksum of the accepted rows of metrics.jsonl."""

    def __init__(self, content: bytes = b'') -> None:
        self.size = len(content)
        self._hash = hashlib.sha256(content)

    def extended(self, content: bytes) -> '_Digest':
        """Return the digest with more rows; this one stays as it is."""
        longer = _Digest()
        longer.size, longer._hash = self.size + len(content), self._hash.copy()
        longer._hash.update(content)
        return longer

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def noted(self) -> dict[str, Any]:
        """Return the values for a checkpoint."""
        return {'size': self.size, 'sha256': self.sha256}


def _learning_rows(content: bytes) -> int:
    return content.count(b'"kind": "iteration"') + content.count(b'"kind": "update"')


def _require_room(path: Path, *, resume: bool, exists: bool) -> None:
    """Raise for a folder this run may not write to."""
    if path.exists() and not path.is_dir():
        raise InvalidConfig(f'{path} is a file, expected a folder for the run')
    foreign = path.exists() and {p.name for p in path.iterdir()} - BEFORE_CONFIG
    if not resume and foreign:
        raise InvalidConfig(
            f'{path} is not empty; add --resume (resume:=true for ros2 launch) to continue '
            f'it, or choose another out'
        )
    if resume and not exists and foreign:
        raise InvalidConfig(f'{path} is not a run folder: it has no {CONFIG}')


# -- reading ---------------------------------------------------------------------------------


def find_runs(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return all run folders at or below the given paths, sorted, each once."""
    found: set[Path] = set()
    for path in paths:
        if not path.is_dir():
            raise MissingRun(f"no folder '{path}'; expected a run folder or one that holds some")
        below = {file.parent for file in path.rglob(SUMMARY)}
        if not below:
            raise MissingRun(f"no run below '{path}': no {SUMMARY} found there")
        found |= below
    return tuple(sorted(found))


def read_settings(path: Path) -> dict[str, Any]:
    """Return the content of a run's config.yaml, not yet interpreted."""
    try:
        values = read_yaml(path / CONFIG)
    except OSError as error:
        raise InvalidConfig(f'{path} is not a run folder: {error.strerror}') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f'{path}/{CONFIG} is not valid YAML') from error
    if not isinstance(values, dict):
        raise InvalidConfig(f'{path}/{CONFIG} holds no settings')
    return values


def read_config(path: Path) -> RunConfig:
    """Return the configuration of a run folder."""
    return with_suite_copy(RunConfig.from_dict(read_settings(path)), path)


def with_suite_copy(config: RunConfig, path: Path) -> RunConfig:
    """Return a configuration that reads the suite from the run's own copy, if there is one."""
    copy = path / SUITE / f'{Path(config.suite).stem}.yaml'
    return replace(config, suite_copy=str(copy.absolute())) if copy.is_file() else config


def read_summary(path: Path) -> dict[str, Any]:
    """Return the summary of a run folder, its format number checked."""
    file = path / SUMMARY
    if not file.is_file():
        raise MissingRun(f"'{path}' is not a run folder: it has no {SUMMARY}")
    try:
        summary = json.loads(file.read_text(encoding='utf-8'))
    except (ValueError, OSError) as error:
        raise BadRunFolder(f"cannot read '{file}': {error}") from error
    version = summary.get('format') if isinstance(summary, dict) else None
    if version not in READABLE:
        known = ' and '.join(map(str, READABLE))
        raise BadRunFolder(f"'{file}' has format {version}, this version reads {known}")
    return dict(summary)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the metrics, plain or compressed; none if there are none yet."""
    plain, packed = path / METRICS, path / f'{METRICS}.gz'
    try:
        if plain.is_file():
            text = plain.read_text(encoding='utf-8')
        elif packed.is_file():
            text = gzip.decompress(packed.read_bytes()).decode('utf-8')
        else:
            return []
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadRunFolder(f"cannot read the metrics of '{path}': {error}") from error
    rows: list[dict[str, Any]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or 'kind' not in row:
                raise ValueError('no row')
        except ValueError as error:
            if number == len(lines):
                break  # the writer of a live run may be in the middle of its last line
            raise BadRunFolder(f"'{path}' metrics line {number} is damaged: {error!r}") from error
        rows.append(row)
    return rows


def copy_metrics(path: Path, folder: Path) -> None:
    """Copy the metrics of a run in compressed form; the same run gives the same bytes."""
    plain, packed = path / METRICS, path / f'{METRICS}.gz'
    if plain.is_file():
        content = gzip.compress(plain.read_bytes(), 9, mtime=0)
        (folder / f'{METRICS}.gz').write_bytes(content)
    elif packed.is_file():
        shutil.copyfile(packed, folder / f'{METRICS}.gz')


# -- comparing -------------------------------------------------------------------------------


def require_same(saved: RunConfig, asked: RunConfig) -> None:
    """Raise `InvalidConfig` that names every setting in which two configurations differ."""
    if differing := differences(saved, asked):
        raise InvalidConfig(
            f'this run folder has another configuration: {"; ".join(differing)}; leave these '
            f'options as they were, or choose another out'
        )


def require_unchanged(noted: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise if config.yaml or the suite were edited since the checkpoint was written."""
    if not noted:
        return
    retired = {f'method.{name}' for name in RETIRED}
    before = {name: value for name, value in noted['config'].items() if name not in retired}
    known = {name: now['config'].get(name) for name in before}  # others are newer
    if edited := _phrases(before, known, 'was', 'is now'):
        raise StateMismatch(
            f'{CONFIG} was edited after the run began: {"; ".join(edited)}; put it back, or '
            f'start a new run'
        )
    for task, digest in noted['tasks'].items():
        if now['tasks'].get(task) != digest:
            what = 'was changed' if task in now['tasks'] else 'is gone'
            raise StateMismatch(
                f"task '{task}' {what} in the suite of this run; put the suite back, or start "
                f'a new run'
            )


def differences(saved: RunConfig, asked: RunConfig) -> list[str]:
    """Return a phrase for every setting in which two configurations differ."""
    return _phrases(flat_settings(saved), flat_settings(asked), 'is', 'asked for')


def _phrases(old: Mapping[str, Any], new: Mapping[str, Any], was: str, now: str) -> list[str]:
    return [
        f'{key} {was} {old.get(key)!r}, {now} {new.get(key)!r}'
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def flat_settings(config: RunConfig) -> dict[str, Any]:
    """Return every setting of a run under one name each."""
    values = config.to_dict()
    del values['format']
    parts = {part: values.pop(part) for part in ('loop', 'method')}
    inner = {f'{part}.{key}': v for part, group in parts.items() for key, v in group.items()}
    return values | inner


def require_same_tasks(run: RunConfig, suite: str) -> None:
    """Raise if a suite no longer says what the run's own copy says."""
    own = {task.name: task_digest(task) for task in load_suite(run.suite_source).tasks}
    for task in load_suite(suite).tasks:
        if own.get(task.name, task_digest(task)) != task_digest(task):
            raise InvalidConfig(
                f"suite {suite} has changed since this run began: task '{task.name}' differs; "
                f"leave the suite out to go on with the run's own copy"
            )


def task_digest(task: TaskSpec) -> str:
    """Return a short hash of everything a task is built from."""
    content = [task.name, task.kind, task.horizon, dict(task.settings)]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[
        :16
    ]


def _suite_text(suite: Suite, added: Sequence[TaskSpec], order: Sequence[str]) -> str:
    """Return a suite with further tasks as YAML; every task says its kind and horizon."""
    content = {
        'description': suite.description,
        'horizon': suite.horizon,
        'hidden': list(suite.hidden),
        'tasks': [
            {'name': task.name, 'kind': task.kind, 'horizon': task.horizon, **task.settings}
            for task in (*suite.tasks, *added)
        ],
        'sequence': list(order),
    }
    return yaml.safe_dump(content, sort_keys=False)
