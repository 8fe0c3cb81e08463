"""`lpgftw evaluate`: run the policies of a run folder."""

import argparse
from dataclasses import asdict
import json

from rich.console import Console
from rich.table import Table

from lpgftw_ros import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('run_folder', metavar='RUN', type=arguments.folder, help='run folder')
    parser.add_argument(
        '--tasks', type=arguments.names, help='names separated by commas (default: all)'
    )
    parser.add_argument('--episodes', type=arguments.count, help='episodes per task')
    parser.add_argument('--stochastic', action='store_true', help='act with exploration noise')
    parser.add_argument('--seed', type=arguments.seed, help="another seed than the run's own")
    parser.add_argument(
        '--workers', type=arguments.workers, default=0, help='simulation workers (0: cores)'
    )
    parser.add_argument(
        '--render', type=arguments.video, metavar='FILE.mp4', help='video of the first task'
    )
    parser.add_argument('--json', action='store_true', help='print one JSON object')


def run(args: argparse.Namespace) -> int:
    """Evaluate and print a table or JSON."""
    from lpgftw_ros.runs.environment import limit_threads
    from lpgftw_ros.runs.evaluation import evaluate_run

    tasks: tuple[str, ...] = args.tasks or ()
    limit_threads(1)
    results = list(
        evaluate_run(
            args.run_folder,
            tasks=tasks,
            episodes=args.episodes,
            stochastic=args.stochastic,
            seed=args.seed,
            workers=args.workers,
        )
    )
    if args.json:
        print(json.dumps({'run': str(args.run_folder), 'tasks': [asdict(r) for r in results]}))
    else:
        table = Table(title=str(args.run_folder))
        for column in ('task', 'episodes', 'return', 'std', 'success'):
            table.add_column(column, justify='left' if column == 'task' else 'right')
        for r in results:
            numbers = (f'{r.return_mean:.1f}', f'{r.return_std:.1f}', f'{r.success:.0%}')
            table.add_row(r.task, str(r.episodes), *numbers)
        Console().print(table)
    if args.render:
        _render(args, tasks or tuple(r.task for r in results))
    return 0


def _render(args: argparse.Namespace, tasks: tuple[str, ...]) -> None:
    from lpgftw_ros.domains.sampler import Sampler
    from lpgftw_ros.runs.evaluation import record_video
    from lpgftw_ros.runs.folder import read_config
    from lpgftw_ros.runs.knowledge_files import load_knowledge
    from lpgftw_ros.runs.visits import evaluation_seed

    config = read_config(args.run_folder)
    policy = load_knowledge(args.run_folder).policy(tasks[0])
    seed = evaluation_seed(config.loop.seed if args.seed is None else args.seed, tasks[0])
    with Sampler(config.suite, 1) as sampler:
        env = sampler.env(tasks[0], 1)
        record_video(env, policy, args.render, seed=seed, stochastic=args.stochastic)
