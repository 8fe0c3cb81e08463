"""`lpgftw experiment`: run a table of learner x suite x seed."""

import argparse
from collections.abc import Callable, Mapping, Sequence
import json
from pathlib import Path
import shlex
import signal
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lpgftw_ros import arguments
from lpgftw_ros.domains.workers import available_cores
from lpgftw_ros.errors import UnknownName
from lpgftw_ros.experiments import ExperimentSpec, load_spec
from lpgftw_ros.experiments.sweep import (
    Backend,
    BAD,
    CellState,
    CellStatus,
    LocalProcesses,
    RayTasks,
    slurm_script,
    Sweep,
    TRAIN,
)
from lpgftw_ros.resources import data_folder
from lpgftw_ros.runs.options import add_options
from lpgftw_ros.runs.settings import ClusterOption

_COLOURS = {
    CellState.WAITING: 'dim',
    CellState.RUNNING: 'cyan',
    CellState.SKIPPED: 'green dim',
    CellState.FINISHED: 'green',
    CellState.FAILED: 'bold red',
    CellState.BLOCKED: 'yellow',
    CellState.FOREIGN: 'bold red',
}
_TAIL_BYTES = 4096
PLANS = ('commands', 'slurm')
"""What `--dry-run` may print."""


def spec_names() -> tuple[str, ...]:
    """Return the names of the specs that come with the package."""
    folder = data_folder('config') / 'experiments'
    return tuple(sorted(path.stem for path in folder.glob('*.yaml')))


def spec_path(name: str) -> Path:
    """Return the file of a spec given by path or by name."""
    if name.endswith(('.yaml', '.yml')):
        return Path(name)
    if name not in spec_names():
        raise UnknownName('figure or table', name, spec_names())
    return data_folder('config') / 'experiments' / f'{name}.yaml'


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how cells are run."""
    parser.add_argument(
        '--out', type=arguments.new_folder, default=Path('runs'), help='folder of all runs'
    )
    parser.add_argument(
        '--jobs', type=arguments.count, metavar='N', help='cells at once (default 1)'
    )
    parser.add_argument(
        '--workers',
        type=arguments.whole(1, arguments.MOST_WORKERS),
        metavar='N',
        help='simulation workers per cell (default cores/jobs; with --ray 1)',
    )
    add_options(parser, ClusterOption)
    parser.add_argument(
        '--dry-run',
        nargs='?',
        choices=PLANS,
        const='commands',
        help='run nothing; print the commands, or a script that runs them as a SLURM array',
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('spec', help='spec file (.yaml), or the name of one in the package')
    parser.add_argument('--profile', help='smoke, laptop or paper (default: top-level values)')
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the cells and print how each ended."""
    spec = load_spec(spec_path(args.spec), args.profile)
    statuses = execute(spec, args)
    return 1 if any(status.state in BAD for status in statuses) else 0


def cells_root(spec: ExperimentSpec, out: Path) -> Path:
    """Return the folder of a spec's runs; specs with the same profile share their cells."""
    return out / (spec.profile or spec.name)


def execute(
    spec: ExperimentSpec, args: argparse.Namespace, program: Sequence[str] = TRAIN
) -> tuple[CellStatus, ...]:
    """Run all cells of a spec; return how each ended."""
    jobs = args.jobs or 1
    here = max(1, available_cores() // jobs) if args.ray is None else 1
    workers = args.workers or here
    root = cells_root(spec, args.out)
    extra: tuple[str, ...] = ('--workers', str(workers))
    if args.dry_run == 'slurm':
        print(slurm_script(spec, root.resolve(), workers, args.jobs), end='')
        return ()
    if args.dry_run:
        for cell in spec.cells:
            print(shlex.join(['lpgftw', 'train', *cell.arguments(root), *extra]))
        return ()
    backend: Backend = LocalProcesses(jobs)
    if args.ray is not None:
        backend = RayTasks(args.ray, workers, args.jobs)
        root, extra = root.resolve(), (*extra, *backend.options)
    console = Console()
    progress = LiveProgress(console) if console.is_terminal else PlainProgress(_print_line)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with progress:
            sweep = Sweep(
                spec, root, backend, extra=extra, program=program, on_change=progress.change
            )
            progress.watch(sweep.statuses)
            statuses = sweep.run()
    finally:
        signal.signal(signal.SIGTERM, previous)
    _print_failures(statuses)
    return statuses


def _print_failures(statuses: Sequence[CellStatus]) -> None:
    bad = [status for status in statuses if status.state in BAD]
    print(f'{len(statuses) - len(bad)} of {len(statuses)} cells finished')
    for status in bad:
        print(f'{status.state.value}: {status.cell.name} ({status.message}), log: {status.log}')


def _print_line(line: str) -> None:
    print(line, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def last_iteration(folder: Path) -> Mapping[str, Any] | None:
    """Return the newest complete metrics row of a running cell, without reading the whole file."""
    try:
        with (folder / 'metrics.jsonl').open('rb') as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode('utf-8', errors='replace').splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        return row if isinstance(row, dict) else None
    return None


def describe(status: CellStatus) -> str:
    """Return what a cell is doing or why it stopped, in a few words."""
    if status.state is not CellState.RUNNING:
        return status.message
    row = last_iteration(status.folder)
    if row is None:
        return 'starting'
    return (
        f'task {row.get("visit", 0) + 1} ({row.get("task")}), iteration {row.get("iteration")}, '
        f'return {row.get("return_mean", float("nan")):.4g}'
    )


def status_table(statuses: Mapping[str, CellStatus]) -> Table:
    """Return the table of all cells."""
    table = Table(box=None, pad_edge=False)
    for heading in ('cell', 'state', 'minutes', ''):
        table.add_column(heading, justify='right' if heading == 'minutes' else 'left')
    for name, status in statuses.items():
        minutes = f'{status.seconds / 60:.1f}' if status.seconds else ''
        state = Text(status.state.value, style=_COLOURS[status.state])
        table.add_row(name, state, minutes, Text(describe(status)))
    return table


class PlainProgress:
    """One line per change."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def __enter__(self) -> 'PlainProgress':
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, statuses: Mapping[str, CellStatus]) -> None:
        """Print the cells that exist already."""
        for status in statuses.values():
            if status.state is not CellState.WAITING:
                self.change(status)

    def change(self, status: CellStatus) -> None:
        """Write the new state of a cell."""
        text = f': {status.message}' if status.message else ''
        self._write(f'{status.cell.name}: {status.state.value}{text}')


class LiveProgress:
    """A table that is redrawn in place, about twice a second."""

    def __init__(self, console: Console) -> None:
        self._statuses: Mapping[str, CellStatus] = {}
        self._live = Live(
            console=console,
            get_renderable=lambda: status_table(self._statuses),
            refresh_per_second=2,
        )

    def __enter__(self) -> 'LiveProgress':
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def watch(self, statuses: Mapping[str, CellStatus]) -> None:
        """Show these cells from now on."""
        self._statuses = statuses

    def change(self, status: CellStatus) -> None:
        """Redraw at once."""
        self._live.refresh()
