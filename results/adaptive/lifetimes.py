"""Compare whole runs: area, tune and final return, steps of everything.

Run `python results/adaptive/lifetimes.py RUN...`. Every task has the budget B of a full visit
(its iterations and the batch of its local model), so the areas are means over T B steps as
docs/metrics.md defines them: every batch counts with its steps, what is left with the tuned
policies, what a run takes beyond T B steps not at all. The area of a task after the first is the
mean over its own B. Probes are all batches but those of iterations and local models; of these,
measured starts are given apart.
"""

from pathlib import Path
import sys

import lpgftw_ros  # noqa: F401  (pins the arithmetic)

# isort: split
import numpy as np

from lpgftw_ros.experiments.metrics import area, held, lifetime_area, stage_score
from lpgftw_ros.experiments.run_data import read_run, RunData, TaskResult
from lpgftw_ros.runs.stages import FINAL, TUNE


def main() -> None:
    """Print one line per run."""
    print(
        '| seed | learner | steps | probes, starts | area | after first | tune | final | kept |'
    )
    print('|---' * 9 + '|')
    for folder in map(Path, sys.argv[1:]):
        print(line(read_run(folder)))


def line(run: RunData) -> str:
    """Return the figures of one run."""
    loop, batch = run.config['loop'], float(np.median([r.steps for r in run.iterations]))
    visit = batch * (loop['iterations'] + loop['update_trajectories'] / loop['trajectories'])
    ended = [result for result in run.tasks if TUNE in result.scores]
    probes = [s for s in run.samplings if s.purpose not in ('iteration', 'update')]
    spent = sum(s.steps for s in probes) / run.steps
    starts = sum(s.steps for s in probes if s.purpose == 'start') / run.steps
    tune, final = stage_score(run, TUNE), stage_score(run, FINAL)
    assert tune is not None
    last = (
        f'{final.mean_return:,.0f} | {final.mean_return / tune.mean_return:.3f}'
        if final
        else '- | -'
    )
    return (
        f'| {run.seed} | {run.learner} | {run.steps:,} | {spent:.1%} ({starts:.1%}) '
        f'| {lifetime_area(run, len(ended) * visit):,.0f} '
        f'| {np.mean([own_area(run, result, visit) for result in ended[1:]]):,.0f} '
        f'| {tune.mean_return:,.0f} | {last} |'
    )


def own_area(run: RunData, result: TaskResult, budget: float) -> float:
    """Return the area of one task over the budget of its visit."""
    course = run.course(result.visit)
    values, steps = (np.array([getattr(s, n) for s in course]) for n in ('return_mean', 'steps'))
    return area(values, steps, budget, held(run, result).mean_return)


if __name__ == '__main__':
    main()
