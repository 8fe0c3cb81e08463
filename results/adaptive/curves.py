"""Print what the variants in a log of HalfCheetah curves earn, one line each.

    python results/adaptive/curves.py results/adaptive/first-task-halfcheetah.jsonl

Area is the mean return over all iterations, end that of the last three, tune that of the mean
action afterwards. Seeds are shown apart where a log has them.
"""

import json
from pathlib import Path
import sys

import numpy as np

SHOWN = (10, 15, 20, 30, 40, 50)
"""Iterations whose return is printed."""


def main() -> None:
    """Read a log and print a table."""
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    length = max(len(row['returns']) for row in rows)
    shown = [i for i in SHOWN if i <= length]
    groups = list(dict.fromkeys((row['variant'], row.get('seed')) for row in rows))
    head = ['variant', 'seed', 'curves', 'first', 'area', *map(str, shown), 'end', 'tune']
    print('| ' + ' | '.join(head) + ' |')
    print('|---' * len(head) + '|')
    for variant, seed in groups:
        mine = [r for r in rows if (r['variant'], r.get('seed')) == (variant, seed)]
        curves = np.array([r['returns'] for r in mine])
        mean = curves.mean(axis=0)
        cells = [f'{mean[0]:,.0f}', f'{mean.mean():,.0f}']
        cells += [f'{mean[i - 1]:,.0f}' for i in shown]
        cells += [f'{mean[-3:].mean():,.0f}']
        cells += [f'{np.mean([r["tune"] for r in mine]):,.0f}' if 'tune' in mine[0] else '-']
        print(f'| {variant} | {seed or "-"} | {len(mine)} | ' + ' | '.join(cells) + ' |')


if __name__ == '__main__':
    main()
