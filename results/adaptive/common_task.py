"""Adaptive LPG-FTW with one part removed at a time, from a common first task, several draws each.

    python results/adaptive/common_task.py --out runs/common [--seeds 50,60] [--variants no-start]

First gaits differ by more than parts do, so here all variants have the same one: that of the
settings as they are. From there each learns the next tasks of HalfCheetah gravity, once per draw.
Runs that are there are continued or left as they are; then one line per variant and a table of the
draws' differences are printed, and --log writes all figures.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
import json
from pathlib import Path

from ablate import go_on
from ablation import LEARNER, SUITE
from ablation import VARIANTS as WHOLE_RUNS

from lpgftw_ros.cli import main as lpgftw

# isort: split
import numpy as np

from lpgftw_ros.experiments.run_data import read_run
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.options import key_value
from lpgftw_ros.runs.stages import FINAL, TUNE

AFTER_FIRST = 2
"""Checkpoint after the first task, when its reference has been measured."""
VARIANTS: dict[str, Sequence[str]] = WHOLE_RUNS | {
    'plain-step-0.2': ('step=npg', 'max_kl=0.2'),
    'fresh-sigma': ('std_start=one',),
    'mean-policy': ('policy_start=mean',),
    'fresh-values': ('value_start=fresh',),
}


def main() -> None:
    """Learn what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--seeds', default='50,60')
    parser.add_argument('--draws', default='1,2,3,4')
    parser.add_argument('--variants', default=','.join(VARIANTS))
    parser.add_argument('--tasks', type=int, default=3)
    parser.add_argument('--iterations', type=int, default=30)
    parser.add_argument('--log', type=Path)
    args = parser.parse_args()
    seeds, variants = args.seeds.split(','), args.variants.split(',')
    rows = []
    for draw in args.draws.split(','):
        for seed in seeds:
            first = args.out / 'first' / f'seed-{seed}'
            if not (first / 'summary.json').is_file() or not read_run(first).finished:
                words = ['--suite', SUITE, '--learner', LEARNER, '--seed', seed, '--tasks', '1']
                assert lpgftw(['train', *words, '--out', str(first), '--workers', '1']) == 0
            for variant in variants:
                out = args.out / variant / f'seed-{seed}' / f'draw-{draw}'
                learn(first, out, variant, seed, draw, args)
                rows.append({'variant': variant, 'seed': seed, 'draw': draw, **figures(out)})
    if args.log is not None:
        args.log.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    table(rows, variants)


def learn(
    first: Path, out: Path, variant: str, seed: str, draw: str, args: argparse.Namespace
) -> None:
    """Learn the tasks after the first one, unless that is done."""
    if (out / 'summary.json').is_file() and read_run(out).finished:
        return
    order = resolve(SUITE, LEARNER, overrides={'seed': seed}).tasks
    settings = {'seed': f'{seed}{draw}', 'iterations': args.iterations}
    settings |= dict(map(key_value, VARIANTS[variant]))
    config = resolve(SUITE, LEARNER, overrides=settings)
    go_on(first, AFTER_FIRST, replace(config, tasks=order[1 : 1 + args.tasks]), out)


def figures(out: Path) -> dict[str, float | list[float]]:
    """Return the area, the tuned and the final returns and the steps of one run."""
    run = read_run(out)
    areas = [float(np.mean([r.return_mean for r in run.rows(t.visit)])) for t in run.tasks]
    tune, final = ([t.scores[s].mean_return for t in run.tasks] for s in (TUNE, FINAL))
    return {'steps': run.steps, 'areas': areas, 'tune': tune, 'final': final}


def table(rows: Sequence[Mapping[str, object]], variants: Sequence[str]) -> None:
    """Print means over all draws and tasks, and the paired difference to all parts."""
    head = ['variant', 'draws', 'steps', 'area', 'area - all', 'tune', 'tune - all', 'worst tune']
    print('| ' + ' | '.join([*head, 'final / tune']) + ' |\n' + '|---' * 9 + '|')
    every = {(r['variant'], r['seed'], r['draw']): r for r in rows}
    for variant in variants:
        mine = [row for row in rows if row['variant'] == variant]
        beside = [every.get(('all', row['seed'], row['draw'])) for row in mine]
        area, tune = (np.array([np.mean(row[n]) for row in mine]) for n in ('areas', 'tune'))
        cells = [variant, str(len(mine)), f'{np.mean([row["steps"] for row in mine]):,.0f}']
        for values, name in ((area, 'areas'), (tune, 'tune')):
            cells.append(f'{np.mean(values):,.0f}')
            if variant == 'all' or None in beside:
                cells.append('-')
                continue
            gap = values - [np.mean(row[name]) for row in beside if row is not None]
            error = np.std(gap, ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
            cells.append(f'{np.mean(gap):+,.0f} ± {error:,.0f}')
        cells.append(f'{min(np.min(row["tune"]) for row in mine):,.0f}')
        final = sum(np.sum(row['final']) for row in mine)
        cells.append(f'{final / sum(np.sum(row["tune"]) for row in mine):.3f}')
        print('| ' + ' | '.join(cells) + ' |')


if __name__ == '__main__':
    main()
