"""How many losses the guard saw in committed runs, how many it acted on, and how much it ran.

Run `python results/adaptive/guard_seen.py results/laptop`. A task that was below the most it had
is run once more without the update: two guard probes of one task in a row. The guard runs each
earlier task at most once per update; the share is of all such pairs of task and update.
"""

from itertools import pairwise
from pathlib import Path
import sys

from lpgftw_ros.runs.folder import find_runs, read_rows


def main() -> None:
    """Print one line per run and the sum."""
    print('| run | losses seen | acted on | pairs run |')
    print('|---' * 4 + '|')
    seen_all = acted_all = 0
    for run in find_runs([Path(folder) for folder in sys.argv[1:]]):
        if 'lpg-ftw-adaptive' not in run.parts:
            continue
        rows = list(read_rows(run))
        probes = [row for row in rows if row['kind'] == 'probe']
        guards = [(a, b) for a, b in pairwise(probes) if same_guard(a, b)]
        seen, acted = len(guards), sum('kept' in b or 'shortened' in b for _, b in guards)
        ran = len({(r['visit'], r['task']) for r in probes if r['purpose'] == 'guard'})
        n = len({row['visit'] for row in rows if row['kind'] == 'update'})
        pairs = sum(range(2, n + 1))
        print(f'| {"/".join(run.parts[-3:])} | {seen} | {acted} | {ran} of {pairs} |')
        seen_all, acted_all = seen_all + seen, acted_all + acted
    print(f'| all | {seen_all} | {acted_all} | |')


def same_guard(a: dict, b: dict) -> bool:
    """Return whether two probes are of one task, with and without the update."""
    one, other = ((row['purpose'], row['visit'], row['task']) for row in (a, b))
    return one == other and one[0] == 'guard'


if __name__ == '__main__':
    main()
