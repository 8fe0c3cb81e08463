"""`lpgftw demo`: close five drawers, one learned after another; compare with learning alone."""

import argparse
import os
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING
import webbrowser

from lpgftw_ros import arguments
from lpgftw_ros.runs.stages import FINAL_STOCHASTIC, TUNE_STOCHASTIC

if TYPE_CHECKING:
    from lpgftw_ros.api import Run

SUITE = 'drawers'
SOLVED = 0.8
"""Share of episodes with exploration that counts as solved."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        '--out', type=arguments.new_folder, default=Path('runs/demo'), help='run folders go here'
    )
    parser.add_argument(
        '--seed', type=arguments.seed, default=3, help='root of all random numbers'
    )
    parser.add_argument('--iterations', type=arguments.count, help='policy steps per task')
    parser.add_argument(
        '--workers', type=arguments.workers, default=0, help='simulation workers (0: cores)'
    )


def run(args: argparse.Namespace) -> int:
    """Learn with LPG-FTW, learn the last tasks alone too, print both and draw the report."""
    from lpgftw_ros.api import load, run_session
    from lpgftw_ros.runs.config import resolve
    from lpgftw_ros.runs.driver import display

    overrides: dict[str, Any] = {'seed': args.seed}
    if args.iterations is not None:
        overrides['iterations'] = args.iterations
    lifelong = resolve(SUITE, 'lpg-ftw', overrides=overrides)
    columns = int(lifelong.method['max_columns'])
    rest = ','.join(lifelong.tasks[columns:])
    alone = resolve(SUITE, 'stl', overrides=overrides, tasks=rest)
    for config in (lifelong, alone):
        folder = args.out / config.learner
        print(f'{config.learner} on {", ".join(config.tasks)} -> {folder}', flush=True)
        resume = (folder / 'config.yaml').exists()
        run_session(config, folder, show=display, workers=args.workers, resume=resume)
    both = load(args.out / lifelong.learner), load(args.out / alone.learner)
    show(*both, columns)
    look_at(*both, args.out)
    return 0


def show(lifelong: 'Run', alone: 'Run', columns: int) -> None:
    """Print the results next to those of learning alone, and the gain in one sentence."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title='Five drawers, one learned after another', box=box.SIMPLE)
    for name in ('drawer', 'learns', 'first try', 'after', 'at end', 'solved', 'alone'):
        left = name in ('drawer', 'learns')
        table.add_column(name, justify='left' if left else 'right', no_wrap=True)
    learning, learning_alone = success_curves(lifelong), success_curves(alone)
    tasks = lifelong.summary['tasks']
    for i, entry in enumerate(tasks):
        name = entry['task']
        table.add_row(
            name,
            'a column' if i < columns else 's only',
            f'{learning[name][0]:.0%}',
            f'{entry[TUNE_STOCHASTIC]["success"]:.0%}',
            f'{entry[FINAL_STOCHASTIC]["success"]:.0%}',
            _words(solved_after(learning[name])),
            _words(solved_after(learning_alone[name])) if name in learning_alone else '',
        )
    Console().print(table)
    print('success rates with exploration noise; solved: first iteration with 80 % success;')
    print('alone: the same task learned by single-task learning')
    for stage, words in (
        (TUNE_STOCHASTIC, 'after training'),
        (FINAL_STOCHASTIC, 'still after the last task'),
    ):
        solved = [entry[stage]['success'] >= SOLVED for entry in tasks]
        print(f'{sum(solved)} of {len(solved)} tasks solved {words}')
    print(gain(learning, learning_alone))


def gain(lifelong: dict[str, list[float]], alone: dict[str, list[float]]) -> str:
    """Return the measured gain of the tasks that were also learned alone."""
    first = [lifelong[task][0] for task in alone]
    first_alone = [curve[0] for curve in alone.values()]
    needed = [solved_after(lifelong[task]) or len(lifelong[task]) for task in alone]
    needed_alone = [solved_after(curve) or len(curve) for curve in alone.values()]
    return (
        f'Gain: a new drawer is closed in {_mean(first):.0%} of the first tries instead of '
        f'{_mean(first_alone):.0%}, and solved after {_mean(needed):.1f} iterations instead of '
        f'{_mean(needed_alone):.1f}.'
    )


def look_at(lifelong: 'Run', alone: 'Run', out: Path) -> None:
    """Write a report and a video, say where they are, and open them where there is a screen."""
    from lpgftw_ros.errors import LpgftwError
    from lpgftw_ros.experiments.report import write_report
    from lpgftw_ros.experiments.run_data import read_run
    from lpgftw_ros.runs.driver import render_run

    report, video = out / 'report' / 'report.md', out / 'drawer.mp4'
    write_report([read_run(run.path) for run in (lifelong, alone)], report.parent)
    made = [report]
    try:
        render_run(lifelong.path, video, lifelong.tasks[-1:], stochastic=False)
        made.append(video)
    except LpgftwError as error:
        print(f'no video: {error}')
    print(f'look at: {", ".join(map(str, made))}')
    if sys.stdout.isatty() and ({'DISPLAY', 'WAYLAND_DISPLAY'} & set(os.environ)):
        for path in made:
            webbrowser.open(path.resolve().as_uri())


def success_curves(run: 'Run') -> dict[str, list[float]]:
    """Return the success rate of each iteration of each task."""
    curves: dict[str, list[float]] = {}
    for row in run.metrics:
        if row['kind'] == 'iteration':
            curves.setdefault(row['task'], []).append(row['success'])
    return curves


def solved_after(curve: list[float]) -> int | None:
    """Return the first iteration that solved the task; None if there is none yet."""
    return next((i + 1 for i, share in enumerate(curve) if share >= SOLVED), None)


def _words(iterations: int | None) -> str:
    return 'not yet' if iterations is None else str(iterations)


def _mean(numbers: list[float] | list[int]) -> float:
    return sum(numbers) / len(numbers)
