"""Checkpoints: a learner's state in two layers of files, and the policies in them.

`task-NNN` holds the shared knowledge (`base/…`) and the local models that changed since the file
before (`models/…`); `iteration` holds what one policy step changes (`run/…`) and names the
`task-NNN` it builds on; `replay/` holds stored trajectories, a file per chunk. The last two
iterations are kept, with every file they need. The arrays are the learner's own state
(`LifelongLearner.state`), written once: `base/basis` and the factors below `base/task/`,
`base/parked/` and `run/` are the policies, for every method. Each file carries a checksum and the
id of its run. `Session.save` decides when one is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
import hashlib
import logging
from pathlib import Path
import re
from typing import Any

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.learner import Learner, STATE_PARTS, StatePart
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.moments import read_moments
from lpgftw_ros.learning.policies import Knowledge, PolicySpec
from lpgftw_ros.learning.serialise import read_factors, StateReader
from lpgftw_ros.runs.storage import read_arrays, read_info, sync_folder, write_arrays, writing

log = logging.getLogger(__name__)
NEWEST, BEFORE = 'iteration.safetensors', 'iteration.previous.safetensors'
FRESH = 'iteration.new'
"""An iteration that is complete but not yet renamed to its final name."""
REPLAY = 'replay'
_CHUNKS = 'replay/chunks/'
_OWN_FILE = re.compile(
    r'task-\d{3,}\.safetensors|iteration(\.previous)?\.safetensors|iteration\.new|replay|.*\.tmp'
)
SHARED: tuple[StatePart, ...] = ('base', 'models', 'replay')
"""Parts of a learner's state that outlive the task in training."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a learner at one iteration, and the notes saved with it."""

    state: dict[str, Array]
    info: dict[str, Any]
    base: dict[str, Any]
    """The notes of the shared knowledge: its number, its run, the files of the local models."""


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, run: Mapping[str, Any] | None = None) -> None:
        """Open a folder; every file carries `run`: the run's `id` and what decides its numbers."""
        self.folder = folder
        self.run = dict(run or {})
        self._number = -1
        self._saves = 0
        self._model_files: dict[str, int] = {}
        self._model_digests: dict[str, str] = {}
        self._written_chunks: set[str] = set()
        self._loaded: Path | None = None

    @property
    def _owner(self) -> dict[str, Any]:
        return {'run': self.run.get('id', '')}

    # -- writing -------------------------------------------------------------------------

    def save_base(self, learner: Learner) -> None:
        """Write the shared knowledge and the local models that changed."""
        models = _by_task(learner.state(['models']))
        digests = {task: _digest(arrays) for task, arrays in models.items()}
        changed = [t for t, digest in digests.items() if self._model_digests.get(t) != digest]
        number = self._number + 1
        files = {task: self._model_files.get(task, number) for task in models}
        files.update(dict.fromkeys(changed, number))
        arrays = learner.state(['base'])
        for task in changed:
            arrays |= models[task]
        info = {**self._owner, 'decided_by': self.run, 'number': number, 'models': files}
        write_arrays(self._task_file(number), arrays, info)
        self._number, self._model_files, self._model_digests = number, files, digests

    def save_iteration(self, learner: Learner, info: Mapping[str, Any]) -> None:
        """Write the running task; the last file becomes the previous one."""
        replay, chunks = self._save_chunks(learner.state(['replay']))
        names = {'base': self._number, 'save': self._saves + 1, 'chunks': chunks}
        path, fresh = self.folder / NEWEST, self.folder / FRESH
        arrays = learner.state(['run']) | replay
        write_arrays(fresh, arrays, {**self._owner, **names, **info})
        with writing(path):
            if path.exists():
                path.replace(self.folder / BEFORE)
            fresh.replace(path)
            sync_folder(self.folder)
            self._saves += 1
            self._prune()

    def _save_chunks(self, replay: Mapping[str, Array]) -> tuple[dict[str, Array], list[str]]:
        """Write the new chunks; return the rest of the state, and the names of all chunks.

        A chunk never changes, so it is written once.
        """
        rest = {name: a for name, a in replay.items() if not name.startswith(_CHUNKS)}
        chunks: dict[str, dict[str, Array]] = {}
        for name, array in replay.items():
            if name.startswith(_CHUNKS):
                task, number, _ = name.removeprefix(_CHUNKS).split('/', 2)
                chunks.setdefault(f'{task}-{number}', {})[name] = array
        for chunk in chunks.keys() - self._written_chunks:
            with writing(self.folder / REPLAY):
                (self.folder / REPLAY).mkdir(exist_ok=True)
            write_arrays(self._chunk_file(chunk), chunks[chunk], self._owner)
            self._written_chunks.add(chunk)
        return rest, sorted(chunks)

    def _prune(self) -> None:
        """Delete the files neither kept iteration needs."""
        needed, chunks = set(), set()
        for name in (NEWEST, BEFORE):
            path = self.folder / name
            if path.exists():
                info = read_info(path)
                number = info.get('base', -1)
                needed.add(number)
                chunks |= set(info.get('chunks', ()))
                if self._task_file(number).exists():
                    needed |= set(read_info(self._task_file(number)).get('models', {}).values())
        for number, path in self._task_files():
            if number not in needed and number < self._number:
                path.unlink()
        for chunk in self._written_chunks - chunks:
            self._chunk_file(chunk).unlink(missing_ok=True)
        self._written_chunks &= chunks

    # -- reading -------------------------------------------------------------------------

    def load(self, learner: Learner) -> Checkpoint | None:
        """Load the newest intact checkpoint into the learner; None if there is none yet.

        A damaged one is skipped with a warning. A file of another run is refused, and nothing
        changes.
        """
        self._refuse_strangers()
        problems = []
        for path in self._iterations():
            try:
                found = self._read(path)
                learner.load_state(found.state)
            except ForeignCheckpoint:
                raise
            except StateMismatch as error:
                problems.append(str(error))
                continue
            for problem in problems:
                log.warning('%s; the checkpoint before it is used', problem)
            self._go_on_from(path, found)
            return found
        if problems:
            raise StateMismatch('no checkpoint can be used: ' + '; '.join(problems))
        return None

    def settle(self) -> None:
        """Make the iteration that was loaded the newest one, if a kill or damage left another."""
        if self._loaded is not None and self._loaded.name != NEWEST:
            with writing(self._loaded):
                self._loaded.replace(self.folder / NEWEST)
        self._loaded = None

    def newest(self, *, models: bool = True) -> Checkpoint:
        """Return the newest intact checkpoint; without `models` only what policies need."""
        problems = []
        for path in self._iterations():
            try:
                return self._read(path, models=models)
            except StateMismatch as error:
                problems.append(str(error))
        run = self.folder.parent
        if problems:
            raise StateMismatch(f'{run} has no intact checkpoint: {"; ".join(problems)}')
        raise StateMismatch(f'{run} has no finished iteration to read; is it a run folder?')

    def shared_before(self, number: int) -> dict[str, Array]:
        """Return the shared knowledge of task file `number`, if it is still kept."""
        state, noted = read_arrays(self._task_file(number))
        for other in set(noted['models'].values()) - {number}:
            state |= {
                n: a for n, a in read_arrays(self._task_file(other))[0].items() if _model_task(n)
            }
        return state

    def _iterations(self) -> Iterator[Path]:
        return (p for n in (FRESH, NEWEST, BEFORE) if (p := self.folder / n).exists())

    def _read(self, path: Path, *, models: bool = True) -> Checkpoint:
        """Return the learner's whole state at one iteration, and the notes saved with it."""
        arrays, info = read_arrays(path)
        self._require_owner(path, info)
        base = self._task_file(info['base'])
        shared, noted = read_arrays(base)
        self._require_owner(base, noted)
        if noted.get('number', info['base']) != info['base']:
            raise ForeignCheckpoint(f'{base.name} is task file {noted["number"]}, renamed')
        state = dict(shared)
        others = set(noted['models'].values()) - {info['base']} if models else ()
        for number in sorted(others):
            file = self._task_file(number)
            held, held_info = read_arrays(file)
            self._require_owner(file, held_info)
            wanted = {t for t, n in noted['models'].items() if n == number}
            state |= {n: a for n, a in held.items() if _model_task(n) in wanted}
        for chunk in info['chunks'] if models else ():
            file = self._chunk_file(chunk)
            held, held_info = read_arrays(file)
            self._require_owner(file, held_info)
            state |= held
        return Checkpoint(present_schema(state | arrays, noted), info, noted)

    def _require_order(self) -> None:
        """Raise if the previous iteration is not older: the file was replaced."""
        newest, before = (read_info(self.folder / n).get('save', 0) for n in (NEWEST, BEFORE))
        if newest and before >= newest:
            raise ForeignCheckpoint(
                f'{NEWEST} (save {newest}) is older than {BEFORE} (save {before}): it is of '
                f'another iteration; put back the newest one'
            )

    def _go_on_from(self, path: Path, found: Checkpoint) -> None:
        self._loaded = path
        models = _by_task(found.state)
        self._number, self._model_files = found.info['base'], found.base['models']
        self._saves = found.info.get('save', 0)
        self._model_digests = {task: _digest(models[task]) for task in self._model_files}
        self._written_chunks = set(found.info['chunks'])

    def _require_owner(self, path: Path, info: Mapping[str, Any]) -> None:
        """Raise for a file of another run; files of format 1 do not name their run."""
        if not self.run or not info.get('run'):
            return
        if info['run'] != self.run['id']:
            raise ForeignCheckpoint(
                f'{path.name} belongs to run {info["run"]}, this folder is run '
                f'{self.run["id"]}; put back the checkpoints of this run'
            )

    def _refuse_strangers(self) -> None:
        """Raise for files in the folder that this run did not write."""
        for path in sorted(self.folder.iterdir()):
            if not _OWN_FILE.fullmatch(path.name):
                raise ForeignCheckpoint(
                    f'{path} is not a file of this run; move it out of {self.folder.name}/'
                )
        for _, path in self._task_files():
            self._require_owner(path, read_info(path))
        self._require_order()

    def _task_file(self, number: int) -> Path:
        return self.folder / f'task-{number:03d}.safetensors'

    def _task_files(self) -> Iterable[tuple[int, Path]]:
        for path in sorted(self.folder.glob('task-*.safetensors')):
            if (number := path.stem.removeprefix('task-')).isdigit():
                yield int(number), path

    def _chunk_file(self, chunk: str) -> Path:
        return self.folder / REPLAY / f'{chunk}.safetensors'


class ForeignCheckpoint(StateMismatch):
    """An intact checkpoint of another run, or of another place in this one."""


def present_schema(arrays: Mapping[str, Array], info: Mapping[str, Any]) -> dict[str, Array]:
    """Return a learner's state as it is written now.

    One of format 1 kept every policy twice, under other names. A state of the adaptive learner
    may come from before it counted what a task owes.
    """
    parts = tuple(f'{part}/' for part in STATE_PARTS)
    state = {name: array for name, array in arrays.items() if name.startswith(parts)}
    if 'knowledge/basis' in arrays:
        state.pop('base/theta', None)
        state['base/basis'] = arrays['knowledge/basis']
        for i, task in enumerate(info['tasks']):
            if f'base/task/{task}/log_std' in state and f'base/parked/{task}/log_std' not in state:
                state[f'base/task/{task}/log_std'] = arrays[f'knowledge/{i}/log_std']
    if 'run/account' in state and 'run/debt' not in state:
        state['run/debt'] = np.array([0, 1, 0, 0], np.int64)
    for name in [name for name in state if name.endswith('/extra/over')]:
        state.setdefault(name.removesuffix('over') + 'asked', np.zeros(1))
    return state


def knowledge_of(state: dict[str, Array]) -> Knowledge:
    """Return every policy of a learner's state, the task in training included.

    Works for every method: a parked or running task counts with its present factors.
    """
    reader = StateReader(state)
    spec = _policy_spec(state)
    basis = reader.floats('base/basis', spec.n_parameters, None)
    places = {task: f'base/task/{task}' for task in reader.names('base/finished')}
    places |= {task: f'base/parked/{task}' for task in reader.names('base/parked')}
    version = reader.number('base/version')
    if 'run/task' in state:
        version = max(version, reader.number('run/version'))
        if running := reader.text('run/task'):
            places[running] = 'run'
    order = [*reader.names('base/order'), *places]
    tasks = {
        task: read_factors(reader, places[task], spec, basis.shape[1])
        for task in dict.fromkeys(order)
        if task in places
    }
    knowledge = Knowledge(version, spec, basis, tasks)
    moments = read_moments(state, spec.obs_dim)
    return knowledge if moments is None else moments.plain_knowledge(knowledge)


def _policy_spec(state: Mapping[str, Array]) -> PolicySpec:
    obs_dim, act_dim, *hidden = (int(n) for n in state['base/shape'])
    return PolicySpec(obs_dim, act_dim, tuple(hidden))


def load_knowledge(run_folder: Path) -> Knowledge:
    """Return every policy of a run, the task in training included."""
    return knowledge_of(CheckpointStore(run_folder / 'checkpoints').newest(models=False).state)


def load_local_models(run_folder: Path) -> dict[str, LocalModel]:
    """Return the kept local models of a run's finished tasks, around their tuned parameters.

    A state keeps them as b takes them: alpha - r for a task with a residual r.
    """
    state = CheckpointStore(run_folder / 'checkpoints').newest().state
    models = {}
    for task, arrays in _by_task(state).items():
        names = [f'models/{task}/{name}' for name in ('alpha', 'g', 'H')]
        if all(name in arrays for name in names):
            model = LocalModel(*(arrays[name] for name in names))
            tuned = model.alpha + state[f'base/task/{task}/residual']
            models[task] = replace(model, alpha=tuned)
    spec = _policy_spec(state)
    if (moments := read_moments(state, spec.obs_dim)) is not None:
        models = {task: moments.plain_model(spec, model) for task, model in models.items()}
    return models


def write_knowledge(
    path: Path, shared: Mapping[str, Array], origin: Mapping[str, Any], probe_root: int | None
) -> None:
    """Write everything learned to one file; `origin` names the run.

    `probe_root` is the root of the random numbers it was measured with; None if not known.
    """
    info = {'models': {}, 'decided_by': dict(origin)}
    write_arrays(path, shared, info | _known_root(probe_root))


def read_shared(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return everything learned from a knowledge file or a run folder, and its notes."""
    if path.is_dir():
        found = CheckpointStore(path / 'checkpoints').newest()
        state, info, noted = found.state, found.base, found.info['progress']
    else:
        arrays, info = read_arrays(path)
        state, noted = present_schema(arrays, info), info
    seed = info.get('decided_by', {}).get('config', {}).get('loop.seed')
    info = info | _known_root(noted.get('probe_root', seed))
    return {name: a for name, a in state.items() if not name.startswith('run/')}, info


def _known_root(probe_root: int | None) -> dict[str, int]:
    return {} if probe_root is None else {'probe_root': probe_root}


def _model_task(name: str) -> str | None:
    return name.split('/')[1] if name.startswith('models/') else None


def _by_task(state: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    tasks: dict[str, dict[str, Array]] = {}
    for name, array in state.items():
        if (task := _model_task(name)) is not None:
            tasks.setdefault(task, {})[name] = array
    return tasks


def _digest(arrays: Mapping[str, Array]) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name]).data)
    return total.hexdigest()
