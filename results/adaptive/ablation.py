"""Adaptive LPG-FTW with one part removed at a time: HalfCheetah gravity, ten tasks.

    python results/adaptive/ablation.py --out runs/ablation [--seeds 50,60] [--variants no-guard]

Runs that are there are continued or left as they are; then one line per variant is printed, means
over the seeds that are finished. `--archive DIR` also copies the runs without their checkpoints.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from lpgftw_ros.cli import main as lpgftw

# isort: split
import numpy as np

from lpgftw_ros.experiments.metrics import lifetime_area, stage_score
from lpgftw_ros.experiments.run_data import archive_run, read_run, RunData
from lpgftw_ros.runs.stages import FINAL, TUNE

SUITE, LEARNER, TASKS = 'halfcheetah-gravity', 'lpg-ftw-adaptive', 10
VARIANTS: dict[str, Sequence[str]] = {
    'all': (),
    'no-residuals': ('residuals=columns',),
    'paying-columns': ('columns=paying',),
    'plain-step': ('step=npg',),
    'no-start': ('std_start=one', 'policy_start=mean', 'value_start=fresh'),
    'one-draw': ('draws=1',),
    'no-inheritance': ('inherit_margin=0',),
    'no-payback': ('payback=0',),
    'no-guard': ('guard_tolerance=0',),
    'sigma-one': ('initial_log_std=0',),
}


def main() -> None:
    """Learn what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--seeds', default='50,60')
    parser.add_argument('--variants', default=','.join(VARIANTS))
    parser.add_argument('--workers', default='1')
    parser.add_argument('--archive', type=Path)
    args = parser.parse_args()
    seeds, variants = args.seeds.split(','), args.variants.split(',')
    for seed in seeds:
        for variant in variants:
            learn(args.out / variant / f'seed-{seed}', seed, VARIANTS[variant], args.workers)
    head = ['variant', 'seeds', 'steps', 'area', 'tune', 'worst tune', 'final', 'final / tune']
    print('| ' + ' | '.join(head) + ' |\n' + '|---' * len(head) + '|')
    for variant in variants:
        runs = [read_run(args.out / variant / f'seed-{seed}') for seed in seeds]
        print(line(variant, runs))
        if args.archive is not None:
            for run in runs:
                archive_run(run, args.archive / variant)


def learn(out: Path, seed: str, settings: Sequence[str], workers: str) -> None:
    """Learn ten tasks, unless that is done."""
    if (out / 'summary.json').is_file() and read_run(out).finished:
        return
    words = ['train', '--suite', SUITE, '--learner', LEARNER, '--seed', seed]
    words += ['--tasks', str(TASKS), '--out', str(out), '--workers', workers]
    for each in settings:
        words += ['--set', each]
    assert lpgftw([*words, *(['--resume'] if (out / 'config.yaml').exists() else [])]) == 0


def line(variant: str, runs: Sequence[RunData]) -> str:
    """Return the figures of one variant; the area is over the budget of ten full visits."""
    budget = TASKS * 51 * 10_000
    levels = [[stage_score(run, stage) for run in runs] for stage in (TUNE, FINAL)]
    tune, final = ([score.mean_return for score in scores if score] for scores in levels)
    worst = [min(r.scores[TUNE].mean_return for r in run.tasks) for run in runs]
    areas = [lifetime_area(run, budget) for run in runs]
    steps = np.mean([run.steps for run in runs])

    def each(values: Sequence[float]) -> str:
        return f'{np.mean(values):,.0f} ({", ".join(f"{v:,.0f}" for v in values)})'

    cells = [variant, str(len(runs)), f'{steps:,.0f}', each(areas), each(tune)]
    cells += [each(worst), each(final), f'{np.sum(final) / np.sum(tune):.3f}']
    return '| ' + ' | '.join(cells) + ' |'


if __name__ == '__main__':
    main()
