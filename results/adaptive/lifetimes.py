"""Compare whole runs: area, tune and final return, steps of everything.

Run `python results/adaptive/lifetimes.py RUN...`. Every task has the budget B of a full visit
(iterations x trajectories x horizon). The area of a run is the mean return over T B steps: every
iteration counts with its steps, those of dropped draws too; probes and what is left of T B count
with the tune return. The area of a task after the first is the mean over its own B.
"""

import json
from pathlib import Path
import sys

import numpy as np
import yaml

from lpgftw_ros.runs.folder import read_rows


def main() -> None:
    """Print one line per run."""
    print('| run | steps | probes | area | area after first | tune | final | final/tune |')
    print('|---' * 8 + '|')
    for folder in map(Path, sys.argv[1:]):
        print(line(folder))


def line(folder: Path) -> str:
    """Return the figures of one run."""
    summary = json.loads((folder / 'summary.json').read_text())
    loop = yaml.safe_load((folder / 'config.yaml').read_text())['loop']
    rows = [row for row in read_rows(folder) if row['kind'] in ('iteration', 'probe')]
    tasks = [task for task in summary['tasks'] if task['tune'] is not None]
    steps = [row['steps'] for row in rows if row['kind'] == 'iteration']
    budget = loop['iterations'] * float(np.median(steps))
    tune = {task['visit']: task['tune']['return'] for task in tasks}
    areas, earned, used = [], 0.0, 0
    for visit, level in tune.items():
        mine = [r for r in rows if r['visit'] == visit and r['kind'] == 'iteration']
        got = sum(r['return_mean'] * r['steps'] for r in mine)
        spent = sum(r['steps'] for r in mine)
        earned, used = earned + got, used + spent
        areas.append((got + max(0.0, budget - spent) * level) / max(budget, spent))
    mean_tune = float(np.mean(list(tune.values())))
    whole = (earned + max(0.0, len(tasks) * budget - used) * mean_tune) / (len(tasks) * budget)
    probes = sum(row['steps'] for row in rows if row['kind'] == 'probe')
    final = [task['final']['return'] for task in tasks if task['final'] is not None]
    last = f'{np.mean(final):.0f} | {np.mean(final) / mean_tune:.3f}' if final else '- | -'
    return (
        f'| {folder.name} | {summary["steps"]:,} | {probes / summary["steps"]:.1%} | {whole:.0f} '
        f'| {np.mean(areas[1:]):.0f} | {mean_tune:.0f} | {last} |'
    )


if __name__ == '__main__':
    main()
