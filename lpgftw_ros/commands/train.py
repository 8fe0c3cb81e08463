"""`lpgftw train`: learn a suite of tasks one after another, in this process."""

import argparse
import logging
import sys

from rich.console import Console
from rich.table import Table

from lpgftw_ros.runs.options import add_train_arguments, default_out, run_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_train_arguments(parser)
    parser.add_argument('--tensorboard', action='store_true', help='also write TensorBoard events')


def run(args: argparse.Namespace) -> int:
    """Train, and print the table of tasks at the end."""
    logging.basicConfig(format='%(levelname)s: %(message)s', stream=sys.stderr)
    config = run_config(args)
    out = args.out or default_out(config)
    from lpgftw_ros.runs.console import display
    from lpgftw_ros.runs.driver import drive, open_session
    from lpgftw_ros.runs.environment import limit_threads

    limit_threads(config.loop.threads)
    with open_session(
        config,
        out,
        workers=args.workers,
        resume=args.resume,
        source=args.source,
        tensorboard=args.tensorboard,
    ) as (session, sampler):
        with display(session) as shown:
            shown.update(session)
            learned = drive(session, sampler, shown.update)
        print_summary(session.folder.read_json('summary.json'))
        if not learned:
            print('nothing was left to learn: every task of this run is finished')
        print(f'run folder: {out}')
    return 0


def print_summary(summary: dict) -> None:  # type: ignore[type-arg]
    """Print return and success of each task, stage by stage."""
    table = Table(title=f'{summary["learner"]} on {summary["suite"]}, seed {summary["seed"]}')
    table.add_column('task')
    stages = ('start', 'tune', 'update', 'final')
    for stage in stages:
        table.add_column(stage, justify='right')
    for entry in (*summary['tasks'], {'task': 'mean', **summary['mean']}):
        table.add_row(entry['task'], *(_cell(entry.get(stage)) for stage in stages))
    Console().print(table)


def _cell(score: dict[str, float] | None) -> str:
    return '-' if score is None else f'{score["return"]:.1f} ({score["success"]:.0%})'
