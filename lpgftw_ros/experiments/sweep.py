"""Run the cells of an experiment: skip what is finished, resume what is not, survive failures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
import json
from pathlib import Path
import time
from typing import TYPE_CHECKING

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.experiments.processes import Backend
from lpgftw_ros.experiments.spec import Cell, ExperimentSpec

if TYPE_CHECKING:
    from lpgftw_ros.runs.config import RunConfig

TRAIN = ('-m', 'lpgftw_ros.cli', 'train')
"""Words after the interpreter that train one cell."""


class CellState(StrEnum):
    """Where a cell stands."""

    WAITING = 'waiting'
    RUNNING = 'running'
    SKIPPED = 'finished before'
    FINISHED = 'finished'
    FAILED = 'failed'
    BLOCKED = 'source failed'
    FOREIGN = 'another run is there'


DONE = (CellState.SKIPPED, CellState.FINISHED)
BAD = (CellState.FAILED, CellState.BLOCKED, CellState.FOREIGN)


@dataclass(frozen=True, slots=True)
class CellStatus:
    """A cell and what became of it."""

    cell: Cell
    folder: Path
    state: CellState = CellState.WAITING
    seconds: float = 0.0
    message: str = ''

    @property
    def log(self) -> Path:
        """File with the output of the training command, beside the run folder."""
        return self.folder.with_name(f'{self.folder.name}.log')


def is_finished(folder: Path) -> bool:
    """Return True if the run folder says its run has ended."""
    try:
        summary = json.loads((folder / 'summary.json').read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get('state') == 'finished'


def last_words(log: Path) -> str:
    """Return the last line a failed command wrote."""
    try:
        lines = log.read_text(encoding='utf-8', errors='replace').split('\n')
    except OSError:
        return ''
    return next((line.strip() for line in reversed(lines) if line.strip()), '')


class Sweep:
    """The state of an experiment that is being run."""

    def __init__(
        self,
        spec: ExperimentSpec,
        root: Path,
        backend: Backend,
        *,
        extra: Sequence[str] = (),
        program: Sequence[str] = TRAIN,
        on_change: Callable[[CellStatus], None] = lambda status: None,
    ) -> None:
        self._root, self._backend, self._on_change = root, backend, on_change
        self._program, self._extra = tuple(program), tuple(extra)
        self._started: dict[str, float] = {}
        self.statuses = {cell.name: first_status(cell, root) for cell in spec.cells}

    def run(self, poll_seconds: float = 0.2) -> tuple[CellStatus, ...]:
        """Run all cells; on any interruption end the commands that still run."""
        try:
            while self.advance():
                time.sleep(poll_seconds)
        finally:
            self._backend.stop()
        return tuple(self.statuses.values())

    def advance(self) -> bool:
        """Note what ended, start what can start; return False when nothing is left."""
        for name, code in self._backend.poll().items():
            self._note_end(name, code)
        for status in list(self.statuses.values()):
            if status.state is CellState.WAITING:
                self._try_start(status)
        return any(
            status.state in (CellState.WAITING, CellState.RUNNING)
            for status in self.statuses.values()
        )

    def _try_start(self, status: CellStatus) -> None:
        cell = status.cell
        if cell.source_name is not None:
            source = self.statuses[cell.source_name]
            if source.state in BAD:
                self._change(replace(status, state=CellState.BLOCKED, message=source.cell.name))
            if source.state not in DONE:
                return
        running = sum(s.state is CellState.RUNNING for s in self.statuses.values())
        if running >= self._backend.capacity:
            return
        words = [*self._program, *cell.arguments(self._root), *self._extra]
        if status.folder.is_dir() and any(status.folder.iterdir()):
            words.append('--resume')
        self._backend.start(cell.name, words, status.log)
        self._started[cell.name] = time.monotonic()
        self._change(replace(status, state=CellState.RUNNING))

    def _note_end(self, name: str, code: int) -> None:
        status = self.statuses[name]
        seconds = time.monotonic() - self._started[name]
        if code == 0 and is_finished(status.folder):
            self._change(replace(status, state=CellState.FINISHED, seconds=seconds))
            return
        reason = f'exit code {code}' if code else 'ended without finishing'
        words = last_words(status.log)
        message = f'{reason}: {words}' if words else reason
        self._change(replace(status, state=CellState.FAILED, seconds=seconds, message=message))

    def _change(self, status: CellStatus) -> None:
        self.statuses[status.cell.name] = status
        self._on_change(status)


def first_status(cell: Cell, root: Path) -> CellStatus:
    """Return where a cell stands before anything was run."""
    folder = cell.folder(root)
    finished = is_finished(folder)
    made = finished or (folder / 'config.yaml').exists()
    if made and (message := _difference(cell, folder)):
        return CellStatus(cell, folder, CellState.FOREIGN, message=message)
    return CellStatus(cell, folder, CellState.SKIPPED if finished else CellState.WAITING)


def _difference(cell: Cell, folder: Path) -> str:
    """Say in what the run in the folder is not the cell's; empty if it is."""
    from lpgftw_ros.runs.folder import differences, read_config
    from lpgftw_ros.runs.options import same_suite

    try:
        saved, asked = read_config(folder), cell_config(cell)
    except LpgftwError as error:
        return str(error)
    if same_suite(asked.suite, saved.suite):
        asked = replace(asked, suite=saved.suite)
    if not (differing := differences(saved, asked)):
        return ''
    return f'{folder}: {"; ".join(differing)}; choose another --out, or move that run away'


def cell_config(cell: Cell) -> 'RunConfig':
    """Return the configuration `lpgftw train` makes of a cell."""
    from lpgftw_ros.runs.options import RunOptions

    options = dict(cell.options)
    tasks, preset = options.pop('tasks', None), options.pop('preset', None)
    return RunOptions(
        suite=cell.suite,
        learner=cell.learner,
        tasks=tasks,
        preset=preset,
        settings={**cell.settings, **options, 'seed': cell.seed},
    ).new_run()
