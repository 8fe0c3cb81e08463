"""Run the cells of an experiment: in processes of this machine or as tasks of a Ray cluster.

Finished cells are skipped, interrupted ones resumed, failures survived. Both backends run the same
command: this Python with the words given, its output in a log file.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
import json
import os
from pathlib import Path
import shlex
import signal
import subprocess
import sys
import time
from typing import Any, Protocol, TYPE_CHECKING

from lpgftw_ros.domains.cluster import Cluster, worker_environment
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.experiments import Cell, ExperimentSpec
from lpgftw_ros.resources import source_root

if TYPE_CHECKING:
    from lpgftw_ros.runs.config import RunConfig

GRACE_SECONDS = 10.0
"""Time between asking a process to end and ending it."""


class Backend(Protocol):
    """Runs commands and says which have ended."""

    @property
    def capacity(self) -> int:
        """Commands that may run at once."""

    def start(self, key: str, words: Sequence[str], log: Path) -> None:
        """Start a command under a name of its own."""

    def poll(self) -> Mapping[str, int]:
        """Return exit codes of the commands that ended since the last call."""

    def stop(self) -> None:
        """End everything that still runs."""


def launch(
    words: Sequence[str], log: Path, folder: str | None = None
) -> 'subprocess.Popen[bytes]':
    """Start this Python with the given words in a session of its own."""
    paths = [source_root(), *filter(None, [os.environ.get('PYTHONPATH')])]
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(paths)}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open('ab') as output:
        return subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )


def end(processes: Sequence['subprocess.Popen[bytes]']) -> None:
    """Ask processes and their children to end, then make them."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: 'subprocess.Popen[bytes]', number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


class LocalProcesses:
    """Up to `jobs` processes on this machine."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def capacity(self) -> int:
        """Commands that may run at once."""
        return self._jobs

    def start(self, key: str, words: Sequence[str], log: Path) -> None:
        """Start a command under a name of its own."""
        self._running[key] = launch(words, log)

    def poll(self) -> Mapping[str, int]:
        """Return exit codes of the commands that ended since the last call."""
        codes = {key: process.poll() for key, process in self._running.items()}
        ended = {key: code for key, code in codes.items() if code is not None}
        for key in ended:
            del self._running[key]
        return ended

    def stop(self) -> None:
        """End everything that still runs."""
        end(list(self._running.values()))
        self._running.clear()


def run_to_end(words: Sequence[str], log: str, folder: str) -> int:
    """Run a command and return its exit code; cancelling the call ends the command."""
    process = launch(words, Path(log), folder)
    try:
        while (code := process.poll()) is None:
            time.sleep(0.1)  # an endless wait() would not notice that Ray cancels this call
        return code
    finally:
        if process.poll() is None:
            end([process])


LOST = -1
"""Code of a command whose node is gone; it is resumed elsewhere."""
MOST_LOSSES = 3
"""Times a cell is resumed after its node was lost."""


class RayTasks:
    """Cells as tasks of a Ray cluster whose nodes share this file system.

    A cell asks for one CPU, where it learns. With several workers it asks for one more for each,
    on any node, and samples there; never more cells run than the cluster has CPUs for, so that
    none waits for ever for workers that another one keeps from it.
    """

    def __init__(self, address: str, workers: int = 1, jobs: int | None = None) -> None:
        self._workers, self._jobs = workers, jobs
        self._cluster = Cluster(address, (jobs or 1) * self.cpus_per_cell)
        self._ray = self._cluster.ray
        if (cpus := self._cluster.cpus) < self.cpus_per_cell:
            self._cluster.close()
            raise LpgftwError(
                f'a cell asks for {self.cpus_per_cell} CPUs (one to learn, {workers} to sample), '
                f'the cluster has {cpus}: choose fewer --workers'
            )
        self._task = self._ray.remote(
            num_cpus=1,
            max_retries=0,
            scheduling_strategy='SPREAD',
            runtime_env={'env_vars': worker_environment()},
        )(run_to_end)
        self._keys: dict[Any, str] = {}

    @property
    def cpus_per_cell(self) -> int:
        """CPUs of one cell."""
        return 1 if self._workers == 1 else 1 + self._workers

    @property
    def options(self) -> tuple[str, ...]:
        """Words of `lpgftw train` that let a cell sample on the cluster."""
        return () if self._workers == 1 else ('--ray', self._cluster.address)

    @property
    def capacity(self) -> int:
        """Commands that may run at once, on the nodes there are now."""
        fitting = max(1, self._cluster.cpus // self.cpus_per_cell)
        return min(fitting, self._jobs or fitting)

    def start(self, key: str, words: Sequence[str], log: Path) -> None:
        """Hand a command to the cluster under a name of its own."""
        reference = self._task.remote(list(words), str(log.resolve()), str(Path.cwd()))
        self._keys[reference] = key

    def poll(self) -> Mapping[str, int]:
        """Return exit codes of the commands that ended since the last call."""
        if not self._keys:
            return {}
        ready, _ = self._ray.wait(list(self._keys), num_returns=len(self._keys), timeout=0)
        return {self._keys.pop(reference): self._code(reference) for reference in ready}

    def _code(self, reference: Any) -> int:
        try:
            return int(self._ray.get(reference))
        except self._ray.exceptions.RayError:
            return LOST

    def stop(self) -> None:
        """Cancel everything that still runs and leave the cluster."""
        for reference in self._keys:
            self._ray.cancel(reference)
        if self._keys:
            self._ray.wait(
                list(self._keys), num_returns=len(self._keys), timeout=2 * GRACE_SECONDS
            )
        self._keys.clear()
        self._cluster.close()


TRAIN = ('-m', 'lpgftw_ros.cli', 'train')
"""Words after the interpreter that train one cell."""
_SLURM = """\
#!/bin/bash
# {title}: {count} cells, one per index of a job array.
# Submit it with: bash SCRIPT. Submit it again to go on with cells that ended early.
#SBATCH --job-name={name}
#SBATCH --cpus-per-task={workers}
#SBATCH --output={root}/slurm-%A_%a.log
#SBATCH --requeue
set -eu
cd {here}
if [ -z "${{SLURM_ARRAY_TASK_ID:-}}" ]; then
    mkdir -p {root}
{submit}
    exit
fi
case "$SLURM_ARRAY_TASK_ID" in
{cells}
*) echo "there is no cell $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;
esac
exec {program} "$@" --workers {workers} --resume
"""


def slurm_script(spec: ExperimentSpec, root: Path, workers: int, jobs: int | None) -> str:
    """Return a script that submits itself as a SLURM array, at most `jobs` cells at once.

    Cells that start from another one come last and wait for those before them.
    """
    cells = sorted(spec.cells, key=lambda cell: cell.source is not None)
    free, limit = sum(cell.source is None for cell in cells), f'%{jobs}' if jobs else ''
    submit = [f'    first=$(sbatch --parsable --array=0-{free - 1}{limit} "$0"); echo "$first"']
    if free < len(cells):
        later = f'--array={free}-{len(cells) - 1}{limit} --dependency="afterany:$first"'
        submit.append(f'    sbatch {later} "$0"')
    return _SLURM.format(
        title=spec.title,
        count=len(cells),
        name=f'lpgftw-{spec.name}',
        workers=workers,
        root=shlex.quote(str(root)),
        here=shlex.quote(str(Path.cwd())),
        submit='\n'.join(submit),
        cells='\n'.join(
            f'{i}) set -- {shlex.join(cell.arguments(root))} ;;' for i, cell in enumerate(cells)
        ),
        program=shlex.join([sys.executable, *TRAIN]),
    )


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
        """File with the output of the training command, next to the run folder."""
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
        self._losses: Counter[str] = Counter()
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
        if code == LOST and self._losses[name] < MOST_LOSSES:
            self._losses[name] += 1
            self._change(replace(status, state=CellState.WAITING, message='its node was lost'))
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
    from lpgftw_ros.runs.options import is_suite_of

    try:
        saved, asked = read_config(folder), cell_config(cell)
    except LpgftwError as error:
        return str(error)
    if is_suite_of(asked.suite, saved):
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
