"""`lpgftw evaluate`: run the policies of a run folder."""

import argparse
from dataclasses import asdict
import json

from rich.console import Console
from rich.table import Table

from lpgftw_ros import arguments
from lpgftw_ros.domains.suites import endless_tasks
from lpgftw_ros.runs.options import add_sampling_arguments, sampling_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('run_folder', metavar='RUN', type=arguments.folder, help='run folder')
    parser.add_argument(
        '--tasks', type=arguments.names, help='names separated by commas (default: all)'
    )
    parser.add_argument('--episodes', type=arguments.count, help='episodes per task')
    parser.add_argument('--stochastic', action='store_true', help='act with exploration noise')
    parser.add_argument('--seed', type=arguments.seed, help="seed (default: the run's own)")
    add_sampling_arguments(parser)
    parser.add_argument(
        '--render',
        type=arguments.video,
        metavar='FILE.mp4|DIR',
        help='video of the first task of --tasks; into a folder: one of each task',
    )
    parser.add_argument(
        '--sheet',
        type=arguments.picture,
        metavar='FILE.png',
        help='picture of the end of an episode of each task: at the start, tuned, final',
    )
    parser.add_argument('--json', action='store_true', help='print one JSON object')


def run(args: argparse.Namespace) -> int:
    """Evaluate and print a table or JSON."""
    from lpgftw_ros.api import evaluate
    from lpgftw_ros.runs.driver import render_run, write_sheet
    from lpgftw_ros.runs.folder import read_config

    tasks: tuple[str, ...] = args.tasks or ()
    results = evaluate(
        args.run_folder,
        tasks=tasks,
        episodes=args.episodes,
        stochastic=args.stochastic,
        seed=args.seed,
        **sampling_options(args),
    )
    if args.json:
        print(json.dumps({'run': str(args.run_folder), 'tasks': [asdict(r) for r in results]}))
    else:
        table = Table(title=str(args.run_folder))
        for column in ('task', 'episodes', 'return', 'std', 'success'):
            table.add_column(column, justify='left' if column == 'task' else 'right')
        endless = endless_tasks(read_config(args.run_folder).suite_source)
        for r in results:
            success = '-' if r.task in endless else f'{r.success:.0%}'
            numbers = (f'{r.return_mean:.1f}', f'{r.return_std:.1f}', success)
            table.add_row(r.task, str(r.episodes), *numbers)
        Console().print(table)
    if args.render:
        shown = tasks or tuple(r.task for r in results)
        render_run(args.run_folder, args.render, shown, args.seed, stochastic=args.stochastic)
    if args.sheet:
        write_sheet(args.run_folder, args.sheet, tasks or [r.task for r in results], args.seed)
    return 0
