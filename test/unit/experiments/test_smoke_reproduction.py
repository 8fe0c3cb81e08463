"""The smoke profile of one figure, from the command to its ordering."""

import json
from pathlib import Path
import subprocess
import sys

import pytest

COLUMNS = 2
"""Columns of the basis in the smoke profile; later tasks learn only s."""


def area_after_columns(run: Path) -> float:
    """Return the summed return of all training iterations of the tasks after the last column."""
    rows = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
    later = [r for r in rows if r['kind'] == 'iteration' and r['visit'] >= COLUMNS]
    return sum(r['return_mean'] for r in later)


@pytest.mark.slow
def test_lpg_ftw_learns_faster_than_single_task_learning(tmp_path: Path) -> None:
    command = [sys.executable, '-m', 'lpgftw_ros.cli', 'reproduce', 'halfcheetah-gravity']
    options = ['--profile', 'smoke', '--jobs', '2', '--workers', '1', '--out', str(tmp_path)]
    result = subprocess.run([*command, *options], capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr
    root = tmp_path / 'smoke' / 'halfcheetah-gravity'
    runs = {path.parent.name: path for path in root.glob('*/seed-50')}
    assert runs.keys() == {'lpg-ftw', 'stl'}, list(tmp_path.rglob('*'))
    assert area_after_columns(runs['lpg-ftw']) > area_after_columns(runs['stl'])
    assert 'lpg-ftw' in result.stdout
