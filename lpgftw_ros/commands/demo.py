"""`lpgftw demo`: learn five Sawyer tasks in minutes, and compare with learning them singly."""

import argparse
from collections.abc import Mapping
import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lpgftw_ros import arguments

SOLVED = 0.8
"""Share of episodes with exploration that counts as solved."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        '--out',
        type=arguments.new_folder,
        default=Path('runs/demo'),
        help='run folders go here',
    )
    parser.add_argument(
        '--seed', type=arguments.seed, default=3, help='root of all random numbers'
    )
    parser.add_argument('--iterations', type=arguments.count, help='policy steps per task')
    parser.add_argument(
        '--workers', type=arguments.workers, default=0, help='simulation workers (0: cores)'
    )


def run(args: argparse.Namespace) -> int:
    """Learn with LPG-FTW, learn the tasks after the last column singly, print both."""
    from lpgftw_ros.runs.config import resolve
    from lpgftw_ros.runs.console import display
    from lpgftw_ros.runs.driver import drive, open_session
    from lpgftw_ros.runs.environment import limit_threads

    overrides: dict[str, Any] = {'seed': args.seed}
    if args.iterations is not None:
        overrides['iterations'] = args.iterations
    lifelong = resolve('demo', 'lpg-ftw', overrides=overrides)
    columns = int(lifelong.method['max_columns'])
    rest = ','.join(lifelong.tasks[columns:])
    single = resolve('demo', 'stl', overrides=overrides, tasks=rest)
    limit_threads(lifelong.loop.threads)
    for config in (lifelong, single):
        folder = args.out / config.learner
        print(f'{config.learner} on {", ".join(config.tasks)} -> {folder}', flush=True)
        resume = (folder / 'config.yaml').exists()
        with (
            open_session(config, folder, workers=args.workers, resume=resume) as (
                session,
                sampler,
            ),
            display(session) as shown,
        ):
            drive(session, sampler, shown.update)
    show(args.out, columns)
    return 0


def show(out: Path, columns: int) -> None:
    """Print what was learned, and how fast beside single-task learning."""
    lifelong, single = (_summary(out / name) for name in ('lpg-ftw', 'stl'))
    curves, single_curves = (_curves(out / name) for name in ('lpg-ftw', 'stl'))
    title = 'LPG-FTW on five Sawyer tasks, one after another'
    table = Table(title=title, box=box.SIMPLE)
    for name in ('task', 'learns', 'return', 'success', 'at end', 'solved', 'alone'):
        left = name in ('task', 'learns')
        table.add_column(name, justify='left' if left else 'right', no_wrap=True)
    for i, entry in enumerate(lifelong['tasks']):
        name = entry['task']
        table.add_row(
            name,
            'a column' if i < columns else 's, head',
            f'{entry["tune"]["return"]:,.0f}',
            f'{entry["tune_stochastic"]["success"]:.0%}',
            f'{entry["final_stochastic"]["success"]:.0%}',
            _solved_after(curves[name]),
            _solved_after(single_curves[name]) if name in single_curves else '',
        )
    Console().print(table)
    print(
        'solved at: first iteration with success in 80 % of its trajectories; alone: single-task'
    )
    for stage, words in (('tune', 'after training'), ('final', 'still after the last task')):
        solved = [e[f'{stage}_stochastic']['success'] >= SOLVED for e in lifelong['tasks']]
        print(f'{sum(solved)} of {len(solved)} tasks solved {words}')
    both = [e for e in lifelong['tasks'] if e['task'] in single_curves]
    for entry, alone in zip(both, single['tasks'], strict=True):
        area, area_alone = (sum(c[entry['task']]['return']) for c in (curves, single_curves))
        print(
            f'{entry["task"]}: mean return while learning {area / area_alone:.2f} x single-task, '
            f'after it {entry["tune"]["return"] / alone["tune"]["return"]:.2f} x'
        )


def _summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / 'summary.json').read_text()))


def _curves(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Return return and success per iteration of each task."""
    curves: dict[str, dict[str, list[float]]] = {}
    for line in (folder / 'metrics.jsonl').read_text().splitlines():
        row = json.loads(line)
        if row['kind'] == 'iteration':
            curve = curves.setdefault(row['task'], {'return': [], 'success': []})
            curve['return'].append(row['return_mean'])
            curve['success'].append(row['success'])
    return curves


def _solved_after(curve: Mapping[str, list[float]]) -> str:
    """Return the first iteration whose trajectories mostly solved the task."""
    first = next((i for i, share in enumerate(curve['success']) if share >= SOLVED), None)
    return 'not yet' if first is None else str(first + 1)
