"""Print the tables of a branching log: area and first iteration with 50 % success.

python results/adaptive/tables.py results/adaptive/branching-mt10-seed50.jsonl
"""

import json
from pathlib import Path
import sys

import numpy as np


def main() -> None:
    """Read a log and print one line per variant."""
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    tasks = list(dict.fromkeys(row['task'] for row in rows))
    variants = list(dict.fromkeys(row['variant'] for row in rows))
    print(f'area over {n} iterations in thousands (median iteration of 50 % success), draws')
    print('| variant | ' + ' | '.join(tasks) + ' | sum |')
    print('|---' * (len(tasks) + 2) + '|')
    for variant in variants:
        cells, total = [], 0.0
        for task in tasks:
            mine = [r for r in rows if (r['variant'], r['task']) == (variant, task)]
            areas = [float(np.mean(r['returns'][:n])) / 1000 for r in mine]
            firsts = [_first(r['success'][:n], n) for r in mine]
            if not areas:
                cells.append('-')
                total = float('nan')
                continue
            each = ', '.join(f'{a:.1f}' for a in areas)
            cells.append(f'{np.mean(areas):.1f} ({np.median(firsts):.0f}) [{each}]')
            total += float(np.mean(areas))
        print(f'| {variant} | ' + ' | '.join(cells) + f' | {total:.1f} |')


def _first(success: list[float], n: int) -> int:
    above = [i for i, value in enumerate(success) if value >= 0.5]
    return above[0] if above else n


if __name__ == '__main__':
    main()
