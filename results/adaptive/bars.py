"""Say which of its aims adaptive LPG-FTW reaches, from runs of three seeds it was not tuned on.

Run `python results/adaptive/bars.py RUNS...`; RUNS hold lpg-ftw-adaptive, lpg-ftw and stl. The
measures are those of docs/metrics.md.
"""

from collections.abc import Iterator
from pathlib import Path
import sys

from lpgftw_ros.experiments.groups import group_runs, SuiteRuns
from lpgftw_ros.experiments.metrics import lifetime_area, stage_score
from lpgftw_ros.experiments.run_data import read_runs, RunData
from lpgftw_ros.runs.stages import FINAL, TUNE

OURS = 'lpg-ftw-adaptive'
SEEDS = (70, 80, 90)
AFTER = 3
"""Tasks of Meta-World that come before those compared."""

PROBES = {'guard': ('guard', 'reference'), 'inheritance': ('inherit', 'adopt')}

Bar = tuple[str, str, str, bool]


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
            print(f'| {group.suite} | {what} {aim} | {measured} | {"yes" if reached else "no"} |')


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


def meta_world(group: SuiteRuns) -> Iterator[Bar]:
    """Yield the aims on Meta-World."""
    early, whole = (group.forward_transfer(OURS, AFTER, first) for first in (50, None))
    yield 'area gained, 50 iterations, interval', '> 0', f'{early}', early.low > 0.0
    yield 'area gained, 200 iterations, interval', '≥ -0.03', f'{whole}', whole.low >= -0.03
    success = group.success_difference(OURS)
    yield 'success at tune - STL', '≥ -0.02', f'{success}', success.value >= -0.02
    tune = group.tune_ratio(OURS)
    yield 'tune / STL', '≥ 1.03', f'{tune}', tune.value >= 1.03
    kept = group.retention(OURS)
    yield 'final / tune', '≥ 0.99', f'{kept}', kept.value >= 0.99
    half, alone = group.half_success(OURS, AFTER)
    yield 'iteration of half success / STL', '≤ 0.85', f'{half:g} / {alone:g}', half <= 0.85 * alone


def shares(group: SuiteRuns) -> Iterator[Bar]:
    """Yield what guard and inheritance cost, with the runs they compare with."""
    for name, purposes in PROBES.items():
        found = [
            sum(s.steps for s in run.samplings if s.purpose in purposes) / run.steps
            for run in group.methods[OURS]
        ]
        what = f'share of the steps: {name}'
        yield what, '≤ 0.05', ', '.join(f'{share:.3f}' for share in found), max(found) <= 0.05


def level(run: RunData, stage: str) -> float:
    """Return the mean return of a stage."""
    score = stage_score(run, stage)
    return float('nan') if score is None else score.mean_return


def each(values: list[float], runs: tuple | list) -> str:
    """Return one value per seed."""
    return ', '.join(f'{v:.2f} ({r[0].seed})' for v, r in zip(values, runs, strict=True))


if __name__ == '__main__':
    main()
