"""Two layers of checkpoints: the shared knowledge per task, the running task per iteration.

`task-NNN` holds the basis, every task's factors and value function, and the local models that
changed since the file before; `iteration` holds what one policy step changes and names the
`task-NNN` it stands on. The last two iterations are kept, and every task file either needs.
"""

import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.runs.knowledge_files import (
    base_name,
    BEFORE,
    factor_arrays,
    knowledge_arrays,
    knowledge_info,
    NEWEST,
)
from lpgftw_ros.runs.replay_files import ReplayFiles
from lpgftw_ros.runs.storage import read_arrays, read_info, sync_folder, write_arrays

log = logging.getLogger(__name__)


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = -1
        self._model_files: dict[str, int] = {}
        self._model_digests: dict[str, str] = {}
        self._replay = ReplayFiles(folder / 'replay')

    def save_base(self, learner: Learner) -> None:
        """Write the shared knowledge and the local models that changed."""
        models = _by_task(learner.state(['models']))
        digests = {task: _digest(arrays) for task, arrays in models.items()}
        changed = [t for t, digest in digests.items() if self._model_digests.get(t) != digest]
        number = self._number + 1
        files = {task: self._model_files.get(task, number) for task in models}
        files.update(dict.fromkeys(changed, number))
        arrays = learner.state(['base']) | knowledge_arrays(learner.knowledge())
        for task in changed:
            arrays |= models[task]
        info = {'models': files, **knowledge_info(learner.knowledge())}
        write_arrays(self._task_file(number), arrays, info)
        self._number, self._model_files, self._model_digests = number, files, digests

    def save_iteration(self, learner: Learner, info: dict[str, Any]) -> None:
        """Write the running task; the file before becomes the previous one."""
        arrays = learner.state(['run'])
        if learner.running is not None:
            arrays |= factor_arrays('running', learner.factors())
        replay, chunks = self._replay.save(learner.state(['replay']))
        arrays |= replay
        path = self.folder / NEWEST
        fresh = path.with_suffix('.new')
        names = {'base': self._number, 'running': learner.running, 'chunks': chunks}
        write_arrays(fresh, arrays, {**names, **info})
        if path.exists():
            path.replace(self.folder / BEFORE)
        fresh.replace(path)
        sync_folder(self.folder)
        self._prune()

    def load(self, learner: Learner) -> dict[str, Any] | None:
        """Load the newest whole checkpoint into the learner and return its info.

        A damaged one is passed over with a warning. None if nothing was saved yet.
        """
        problems = []
        candidates = [self.folder / name for name in (NEWEST, BEFORE)]
        fresh = (self.folder / NEWEST).with_suffix('.new')
        for path in (p for p in (fresh, *candidates) if p.exists()):
            try:
                state, info = self._read(path)
                learner.load_state(state)
            except StateMismatch as error:
                problems.append(str(error))
                continue
            for problem in problems:
                log.warning('%s; the checkpoint before it is used', problem)
            if path.name != NEWEST:
                path.replace(self.folder / NEWEST)
            return info
        if problems:
            raise StateMismatch('no checkpoint can be used: ' + '; '.join(problems))
        return None

    def read_shared(self) -> dict[str, Array]:
        """Return all but the running task of the newest whole checkpoint."""
        problems = []
        for name in (NEWEST, BEFORE):
            try:
                state, _ = self._read(self.folder / name)
                return {key: a for key, a in state.items() if not key.startswith('run/')}
            except StateMismatch as error:
                problems.append(str(error))
        raise StateMismatch('no checkpoint can be used: ' + '; '.join(problems))

    def _read(self, path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the learner's whole state at one iteration, and what was noted with it."""
        arrays, info = read_arrays(path)
        shared = self._load_base(info['base']) | self._replay.load(info['chunks'])
        return shared | learner_part(arrays), info

    def _load_base(self, number: int) -> dict[str, Array]:
        arrays, info = read_arrays(self._task_file(number))
        state = learner_part(arrays)
        for task, file_number in info['models'].items():
            held = (
                arrays if file_number == number else read_arrays(self._task_file(file_number))[0]
            )
            state |= {n: a for n, a in held.items() if n.startswith(f'models/{task}/')}
        self._number, self._model_files = number, info['models']
        models = _by_task(state)
        self._model_digests = {task: _digest(models[task]) for task in info['models']}
        return state

    def _task_file(self, number: int) -> Path:
        return self.folder / base_name(number)

    def _prune(self) -> None:
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
        for path in self.folder.glob('task-*.safetensors'):
            number = int(path.stem.removeprefix('task-'))
            if number not in needed and number < self._number:
                path.unlink()
        self._replay.prune(chunks)


def learner_part(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays that belong to a learner's state."""
    parts = ('run/', 'base/', 'models/', 'replay/')
    return {name: array for name, array in arrays.items() if name.startswith(parts)}


def _by_task(state: dict[str, Array]) -> dict[str, dict[str, Array]]:
    tasks: dict[str, dict[str, Array]] = {}
    for name, array in state.items():
        if name.startswith('models/'):
            tasks.setdefault(name.split('/')[1], {})[name] = array
    return tasks


def _digest(arrays: dict[str, Array]) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name]).data)
    return total.hexdigest()
