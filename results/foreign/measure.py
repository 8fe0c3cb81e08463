"""Train suites of foreign environments; print 20 episodes before and after, as a table.

python results/foreign/measure.py results/foreign/pendulum.yaml …
"""

from pathlib import Path
import sys
import time

import lpgftw_ros  # isort: skip
import numpy as np

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.runs.driver import policies_over_time
from lpgftw_ros.runs.visits import evaluation_seed

EPISODES = 20


def measure(suite: str, out: Path) -> str:
    """Return a line of the table: mean-action returns with their standard errors."""
    began = time.perf_counter()
    run = lpgftw_ros.train(suite, out=out, workers=1)
    seconds, task = time.perf_counter() - began, run.tasks[0]
    seed, cells = evaluation_seed(run.config.loop.seed, task), []
    with Sampler(run.config.suite_source, 1) as sampler:
        for policy in (policies_over_time(run.path, task)[0], run.knowledge.policy(task)):
            returns = sampler.collect(task, policy, EPISODES, seed, explore=False).returns
            cells.append((returns.mean(), returns.std(ddof=1) / np.sqrt(EPISODES)))
    (before, before_error), (after, after_error) = cells
    errors = (after - before) / np.hypot(before_error, after_error)
    return (
        f'| `{Path(suite).name}` | {before:.1f} ± {before_error:.1f} | {after:.1f} ± '
        f'{after_error:.1f} | {errors:.1f} | {run.summary["steps"]} | {seconds:.0f} |'
    )


if __name__ == '__main__':
    for path in sys.argv[1:]:
        print(measure(path, Path('runs/foreign') / Path(path).stem), flush=True)
