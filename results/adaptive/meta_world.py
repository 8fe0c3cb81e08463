"""Print a run on Meta-World beside STL, task by task.

    python results/adaptive/meta_world.py results/laptop/mt10/{lpg-ftw-adaptive,stl}/seed-80

Areas are mean returns of the first 50 and of all iterations in thousands, without measured starts
(they change them by 0.5 % at most), half is the first
iteration in which half of the episodes succeed, tune the mean action's return (and success).
"""

from pathlib import Path
import sys

import numpy as np

from lpgftw_ros.experiments.run_data import read_run, RunData, TaskResult
from lpgftw_ros.runs.stages import TUNE


def main() -> None:
    """Print one line per task."""
    ours, alone = (read_run(Path(folder)) for folder in sys.argv[1:])
    theirs = {result.task: result for result in alone.tasks}
    head = ['task', 'area, 50 iterations', 'STL', 'all', 'STL', 'half', 'STL', 'tune', 'STL']
    print('| ' + ' | '.join(head) + ' |\n' + '|---' * len(head) + '|')
    for result in ours.tasks:
        if result.task in theirs:
            own, other = figures(ours, result), figures(alone, theirs[result.task])
            pairs = [cell for both in zip(own, other, strict=True) for cell in both]
            print(f'| {result.task} | ' + ' | '.join(pairs) + ' |')


def figures(run: RunData, result: TaskResult) -> tuple[str, str, str, str]:
    """Return both areas, the iteration of half success and the tune score."""
    rows = run.rows(result.visit)
    returns = np.array([row.return_mean for row in rows]) / 1000
    half = next((str(i) for i, row in enumerate(rows, 1) if row.success >= 0.5), 'never')
    tune = result.scores[TUNE]
    score = f'{tune.mean_return / 1000:.0f} ({tune.success or 0.0:.0%})'
    return f'{returns[:50].mean():.1f}', f'{returns.mean():.0f}', half, score


if __name__ == '__main__':
    main()
