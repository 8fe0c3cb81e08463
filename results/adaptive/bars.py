"""Say which of its aims adaptive LPG-FTW reaches, from runs of three seeds it was not tuned on.

Run `python results/adaptive/bars.py RUNS...`; RUNS hold lpg-ftw-adaptive, lpg-ftw and stl. The
measures are those of docs/metrics.md.
"""

from collections.abc import Iterator
from pathlib import Path
import sys

import lpgftw_ros  # noqa: F401  (pins the arithmetic)

# isort: split
import numpy as np

from lpgftw_ros.experiments.groups import group_runs, iqm, SuiteRuns
from lpgftw_ros.experiments.metrics import lifetime_area, stage_score
from lpgftw_ros.experiments.run_data import read_runs, RunData
from lpgftw_ros.runs.stages import FINAL, TUNE

OURS = 'lpg-ftw-adaptive'
SEEDS = (70, 80, 90)
AFTER = 3
"""Tasks of Meta-World that come before those compared."""

PROBES = {
    'guard': ('≤ 0.05', ('guard', 'reference')),
    'inheritance': ('≤ 0.05', ('inherit', 'adopt')),
    'measured starts': ('', ('start',)),
    'back to the start': ('', ('keep',)),
}

Bar = tuple[str, str, str, bool | None]
"""What, its aim, what was measured, whether that is enough; None: no aim."""


def main() -> None:
    """Print one line per aim."""
    runs = [run for run in read_runs(map(Path, sys.argv[1:])) if run.seed in SEEDS]
    print('| domain | aim | measured | reached |')
    print('|---' * 4 + '|')
    for group in group_runs(runs):
        if not group.pairs(OURS):
            continue
        found = meta_world(group) if group.suite.startswith('mt') else bodies(group)
        for what, aim, measured, reached in [*found, *shares(group)]:
            answer = {None: '', True: 'yes', False: 'no'}[reached]
            if reached is not None and len(group.pairs(OURS)) < len(SEEDS):
                answer = f'({answer}: not all seeds)'
            print(f'| {group.suite} | {what} {aim} | {measured} | {answer} |')


def bodies(group: SuiteRuns) -> Iterator[Bar]:
    """Yield the aims on a MuJoCo body."""
    pairs = group.lifetimes(OURS)
    steps = [run.steps / alone.steps for run, alone in pairs]
    yield 'steps / STL', '≤ 1', each(steps, pairs), max(steps) <= 1.0
    transfer = {run.seed: run for run in group.methods.get('lpg-ftw', ())}
    both = [(run, transfer[run.seed], alone) for run, alone in pairs if run.seed in transfer]
    if both:
        areas = [
            lifetime_area(run, alone.steps) / lifetime_area(other, alone.steps)
            for run, other, alone in both
        ]
        mean = sum(lifetime_area(run, alone.steps) for run, _, alone in both) / sum(
            lifetime_area(other, alone.steps) for _, other, alone in both
        )
        yield 'area / LPG-FTW', '≥ 1.3', f'{mean:.2f}: {each(areas, both)}', mean >= 1.3
    tune = [level(run, TUNE) / level(alone, TUNE) for run, alone in pairs]
    yield 'tune / STL, every seed', '≥ 1', each(tune, pairs), min(tune) >= 1.0
    mean = float(group.tune_ratio(OURS).value)
    yield 'tune / STL, sums', '≥ 1.6', f'{mean:.2f}', mean >= 1.6
    kept = [level(run, FINAL) / level(run, TUNE) for run in group.methods[OURS]]
    yield 'final / tune, every seed', '≥ 0.97', each(kept, pairs), min(kept) >= 0.97
    yield 'tasks below 0.97 of their tune', '', lost(group), None


def meta_world(group: SuiteRuns) -> Iterator[Bar]:
    """Yield the aims on Meta-World."""
    pairs = group.pairs(OURS)
    for first, steps, aim, bar in ((50, 50, '> 0', 0.0), (None, 200, '≥ -0.03', -0.03)):
        found = group.forward_transfer(OURS, AFTER, first)
        lives = group.transfers(OURS, AFTER, first)
        alone = [iqm(np.array([t.forward for t in life])) for life in lives]
        said = f'{found}; by seed {each(alone, pairs)}'
        enough = found.low > bar if aim.startswith('>') else found.low >= bar
        yield f'area gained, {steps} iterations, interval', aim, said, enough
        summed = [sum(t.area for t in x) / sum(t.area_alone for t in x) for x in lives]
        said = f'{group.area_ratio(OURS, AFTER, first)}; by seed {each(summed, pairs)}'
        yield f'areas summed / STL, {steps} iterations', '', said, None
    success = group.success_difference(OURS)
    yield 'success at tune - STL', '≥ -0.02', f'{success}', success.value >= -0.02
    tune = group.tune_ratio(OURS)
    yield 'tune / STL', '≥ 1.03', f'{tune}', tune.value >= 1.03
    kept = group.retention(OURS)
    yield 'final / tune', '≥ 0.99', f'{kept}', kept.value >= 0.99
    half, alone = group.half_success(OURS, AFTER)
    both = [
        '/'.join(f'{np.median([getattr(t, n) for t in life]):g}' for n in ('half', 'half_alone'))
        for life in group.transfers(OURS, AFTER)
    ]
    said = f'{half:g} / {alone:g}; by seed {", ".join(both)}'
    yield 'iteration of half success / STL', '≤ 0.85', said, half <= 0.85 * alone
    yield 'tasks below 0.97 of their tune', '', lost(group), None


def shares(group: SuiteRuns) -> Iterator[Bar]:
    """Yield what guard, inheritance and starts cost, with the runs they compare with."""
    for name, (aim, purposes) in PROBES.items():
        found = [
            sum(s.steps for s in run.samplings if s.purpose in purposes) / run.steps
            for run in group.methods[OURS]
        ]
        what = f'share of the steps: {name}'
        reached = max(found) <= 0.05 if aim else None
        yield what, aim, ', '.join(f'{share:.3f}' for share in found), reached


def lost(group: SuiteRuns) -> str:
    """Return how many tasks end below what they were tuned to, and the worst, mean action."""
    found = [
        (task.scores[FINAL].mean_return / task.scores[TUNE].mean_return, task.task, run.seed)
        for run in group.methods[OURS]
        for task in run.tasks
        if task.scores[TUNE].mean_return > 0.0
    ]
    below = [one for one in found if one[0] < 0.97]
    worst = min(found)
    return f'{len(below)} of {len(found)}; worst {worst[0]:.2f}, {worst[1]} ({worst[2]})'


def level(run: RunData, stage: str) -> float:
    """Return the mean return of a stage."""
    score = stage_score(run, stage)
    return float('nan') if score is None else score.mean_return


def each(values: list[float], runs: tuple | list) -> str:
    """Return one value per seed."""
    return ', '.join(f'{v:.2f} ({r[0].seed})' for v, r in zip(values, runs, strict=True))


if __name__ == '__main__':
    main()
