"""Print the tables of a branching log: area and first iteration with 50 % success.

    python results/adaptive/tables.py results/adaptive/branches.jsonl [ITERATIONS]

Below, every variant beside `stl`, pair by pair of task and draw: how often its area is larger, and
the mean difference over pairs with its standard error.
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
    areas = {(r['variant'], r['task'], r['draw']): np.mean(r['returns'][:n]) / 1000 for r in rows}
    for variant in variants:
        gaps = [
            area - areas['stl', task, draw]
            for (other, task, draw), area in areas.items()
            if other == variant != 'stl' and ('stl', task, draw) in areas
        ]
        if len(gaps) > 1:
            error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
            ahead = f'ahead in {sum(gap > 0.0 for gap in gaps)} of {len(gaps)}'
            print(f'{variant}: {ahead}, {np.mean(gaps):+.1f} ± {error:.1f}')


def _first(success: list[float], n: int) -> int:
    above = [i for i, value in enumerate(success) if value >= 0.5]
    return above[0] if above else n


if __name__ == '__main__':
    main()
