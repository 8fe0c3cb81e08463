"""What a schedule of draws costs and finds, from the curves of committed single-task runs.

Run `python results/adaptive/draw_schedules.py [--seeds 50,60]`. D curves are picked at random out
of those of HalfCheetah gravity (STL, 20 a seed) and dropped as the schedule says; the score of a
curve is the mean of its last three iterations, as `learning/adaptive/start.py` has it.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
import gzip
import json
from pathlib import Path

import lpgftw_ros  # noqa: F401  (pins the arithmetic)

# isort: split
import numpy as np

from lpgftw_ros.learning.adaptive.config import AdaptiveConfig
from lpgftw_ros.learning.adaptive.start import kept, rung_end, total_iterations

RUNS = Path(__file__).parents[1] / 'laptop' / 'halfcheetah-gravity' / 'stl'
ASKED, TRIALS = 50, 4000
SCHEDULES = [
    (draws, m, share)
    for draws in (1, 8, 12, 16, 20)
    for m, share in ((30, 0.25), (20, 0.3), (20, 0.5), (15, 0.5), (10, 0.5))
]


def main() -> None:
    """Print one line per schedule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', default='50,60')
    curves = read_curves(parser.parse_args().seeds.split(','))
    print(f'{len(curves)} curves')
    print('| draws | draw_iterations | draw_keep | iterations | return at 50 | above 1,500 |')
    print('|---|---|---|---|---|---|')
    for draws, m, share in SCHEDULES:
        if draws == 1 and m != 30:
            continue
        config = AdaptiveConfig(draws=draws, draw_iterations=m, draw_keep=share)
        rng = np.random.default_rng(0)
        found = np.array([winner(curves, config, rng) for _ in range(TRIALS)])
        total = total_iterations(draws, ASKED, config)
        print(
            f'| {draws} | {m} | {share} | {total} | {found.mean():.0f} '
            f'| {np.mean(found > 1500.0):.2f} |'
        )


def read_curves(seeds: Sequence[str]) -> list[list[float]]:
    """Return the mean return of every iteration, one list per task."""
    curves = []
    for path in (RUNS / f'seed-{seed}' / 'metrics.jsonl.gz' for seed in seeds):
        tasks: dict[int, list[float]] = defaultdict(list)
        with gzip.open(path, 'rt') as file:
            for row in map(json.loads, file):
                if row['kind'] == 'iteration':
                    tasks[row['visit']].append(row['return_mean'])
        curves += tasks.values()
    return curves


def score(curve: list[float], n: int) -> float:
    """Return the mean of the last three iterations up to the n-th."""
    return float(np.mean(curve[max(0, n - 3) : n]))


def winner(curves: list[list[float]], config: AdaptiveConfig, rng: np.random.Generator) -> float:
    """Return what the draw that is left reaches."""
    alive = [curves[i] for i in rng.choice(len(curves), config.draws, replace=False)]
    rung = 0
    while len(alive) > 1:
        end = rung_end(rung, ASKED, config)
        alive = sorted(alive, key=lambda curve: -score(curve, end))[
            : kept(len(alive), end, ASKED, config)
        ]
        rung += 1
    return score(alive[0], ASKED)


if __name__ == '__main__':
    main()
