"""Run `make run`'s demo for several seeds and arithmetics; print who solves what, and the gain.

    python results/demo/measure.py --out /tmp/demo

Five seeds run with the pinned arithmetic, three without it and with other OpenBLAS kernels. A demo
that has ended is not run again.
"""

import argparse
import os
from pathlib import Path
import subprocess
import sys

from lpgftw_ros.api import load
from lpgftw_ros.commands.demo import SOLVED, solved_after, success_curves
from lpgftw_ros.runs.stages import FINAL_STOCHASTIC, TUNE_STOCHASTIC

PINNED = [(seed, '') for seed in (3, 0, 1, 2, 4)]
NATIVE = [(3, 'Nehalem'), (0, 'Sandybridge'), (1, 'Nehalem')]


def run(seed: int, kernel: str, out: Path) -> None:
    """Run the demo in a process of its own: the arithmetic is chosen when numpy loads."""
    environment = dict(os.environ)
    for name in ('OPENBLAS_CORETYPE', 'NPY_DISABLE_CPU_FEATURES', 'ATEN_CPU_CAPABILITY'):
        environment.pop(name, None)
    if kernel:
        environment |= {'LPGFTW_ARITHMETIC': 'native', 'OPENBLAS_CORETYPE': kernel}
    words = ['-m', 'lpgftw_ros.cli', 'demo', '--seed', str(seed), '--out', str(out)]
    words += ['--workers', '1']  # the numbers do not depend on it
    subprocess.run([sys.executable, *words], env=environment, check=True)


def row(seed: int, kernel: str, out: Path) -> str:
    """Return a line of the table."""
    ours, alone = load(out / 'lpg-ftw'), load(out / 'stl')
    tasks = ours.summary['tasks']
    solved = [
        sum(task[stage]['success'] >= SOLVED for task in tasks)
        for stage in (TUNE_STOCHASTIC, FINAL_STOCHASTIC)
    ]
    curves, curves_alone = success_curves(ours), success_curves(alone)
    first, needed = (
        [
            sum(measure(each[name]) for name in curves_alone) / len(curves_alone)
            for each in (curves, curves_alone)
        ]
        for measure in (lambda curve: curve[0], lambda curve: solved_after(curve) or len(curve))
    )
    return (
        f'| {seed} | {kernel or "pinned"} | {solved[0]} of {len(tasks)} | {solved[1]} of '
        f'{len(tasks)} | {first[0]:.0%} | {first[1]:.0%} | {needed[0]:.1f} | {needed[1]:.1f} |'
    )


def main() -> None:
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, required=True, help='run folders go here')
    args = parser.parse_args()
    lines = []
    for seed, kernel in PINNED + NATIVE:
        out = args.out / f'{kernel or "pinned"}-{seed}'
        if not (out / 'report' / 'report.md').is_file():
            run(seed, kernel, out)
        lines.append(row(seed, kernel, out))
    head = ('seed', 'arithmetic', 'solved', 'solved at the end', 'first try', 'alone')
    print('| ' + ' | '.join((*head, 'iterations', 'alone')) + ' |')
    print('|---' * 8 + '|', *lines, sep='\n')


if __name__ == '__main__':
    main()
