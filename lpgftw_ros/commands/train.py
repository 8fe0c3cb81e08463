"""`lpgftw train`: learn a suite of tasks one after another, in this process."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
import logging
from pathlib import Path
import subprocess
import sys

from rich.console import Console
from rich.table import Table

from lpgftw_ros.commands.watch import add_page_arguments
from lpgftw_ros.domains.suites import endless_tasks
from lpgftw_ros.runs.options import add_train_arguments, default_out, run_config, sampling_options
from lpgftw_ros.runs.stages import SHOWN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_train_arguments(parser)
    parser.add_argument('--tensorboard', action='store_true', help='as --track tensorboard')
    parser.add_argument(
        '--dashboard',
        action='store_true',
        help='also show the run in the browser, as lpgftw watch does',
    )
    add_page_arguments(parser, 'dashboard-')


def run(args: argparse.Namespace) -> int:
    """Train, and print the table of tasks at the end."""
    logging.basicConfig(format='%(levelname)s: %(message)s', stream=sys.stderr)
    config = run_config(args)
    out = args.out or default_out(config)
    from lpgftw_ros.api import load, run_session
    from lpgftw_ros.runs.driver import display
    from lpgftw_ros.runs.tracking import tracker_names

    track = tracker_names(f'{args.track or ""},{"tensorboard" if args.tensorboard else ""}')
    page = ['--host', args.dashboard_host, '--port', str(args.dashboard_port)]
    with watched(out, page) if args.dashboard else nullcontext():
        learned = run_session(
            config,
            out,
            show=display,
            **sampling_options(args),
            ray=args.ray or '',
            resume=args.resume,
            source=args.source,
            knowledge=args.knowledge,
            track=track,
        )
    print_summary(load(out).summary)
    if not learned:
        print('nothing left to learn: every task of this run is finished')
    print(f'run folder: {out}')
    return 0


@contextmanager
def watched(out: Path, where: Sequence[str]) -> Iterator[None]:
    """Show a run folder in the browser while it is written.

    The page runs in another process, so it takes no time from the learner's interpreter.
    """
    words = [sys.executable, '-m', 'lpgftw_ros.cli', 'watch', str(out), '--wait', '600', *where]
    page = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        yield
    finally:
        page.terminate()
        page.wait()


def print_summary(summary: dict) -> None:  # type: ignore[type-arg]
    """Print return and success of each task, stage by stage."""
    table = Table(title=f'{summary["learner"]} on {summary["suite"]}, seed {summary["seed"]}')
    table.add_column('task')
    for stage in SHOWN:
        table.add_column(stage, justify='right')
    endless = endless_tasks(summary['suite'])
    if all(entry['task'] in endless for entry in summary['tasks']):
        endless |= {'mean'}
    for entry in (*summary['tasks'], {'task': 'mean', **summary['mean']}):
        known = entry['task'] not in endless
        table.add_row(entry['task'], *(_cell(entry.get(stage), known) for stage in SHOWN))
    Console().print(table)


def _cell(score: dict[str, float] | None, known: bool) -> str:
    """Return a score as text; a dash if the task has no success criterion."""
    if score is None:
        return '-'
    success = f'{score["success"]:.0%}' if known else '-'
    return f'{score["return"]:.1f} ({success})'
