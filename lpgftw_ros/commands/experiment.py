"""`lpgftw experiment`: run a table of learner x suite x seed."""

import argparse
from collections.abc import Sequence
import os
from pathlib import Path
import shlex
import signal
from types import FrameType

from rich.console import Console

from lpgftw_ros import arguments
from lpgftw_ros.errors import UnknownName
from lpgftw_ros.experiments.processes import Backend, LocalProcesses, RayTasks
from lpgftw_ros.experiments.progress import LiveProgress, PlainProgress
from lpgftw_ros.experiments.spec import ExperimentSpec, load_spec
from lpgftw_ros.experiments.sweep import BAD, CellStatus, Sweep, TRAIN
from lpgftw_ros.resources import data_folder


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
        help='simulation workers per cell (default cores/jobs)',
    )
    parser.add_argument(
        '--ray',
        nargs='?',
        type=arguments.text,
        const='local',
        metavar='ADDRESS',
        help='run the cells as Ray tasks, on this machine or on the cluster at ADDRESS '
        '(which must share this file system)',
    )
    parser.add_argument('--dry-run', action='store_true', help='print the commands, run nothing')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('spec', help='spec file (.yaml), or the name of one that comes with us')
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
    """Run all cells of a spec as the options say; return how each ended."""
    jobs = args.jobs or 1
    workers = args.workers or max(1, (os.cpu_count() or 1) // jobs)
    root, extra = cells_root(spec, args.out), ('--workers', str(workers))
    if args.dry_run:
        for cell in spec.cells:
            print(shlex.join(['lpgftw', 'train', *cell.arguments(root), *extra]))
        return ()
    backend: Backend = (
        LocalProcesses(jobs) if args.ray is None else RayTasks(args.ray, workers, args.jobs)
    )
    if args.ray is not None:
        root = root.resolve()
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
