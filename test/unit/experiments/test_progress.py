import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lpgftw_ros.commands.experiment import describe, last_iteration, LiveProgress, status_table
from lpgftw_ros.experiments import Cell
from lpgftw_ros.experiments.sweep import CellState, CellStatus


@pytest.fixture
def running(tmp_path: Path) -> CellStatus:
    row = {'visit': 1, 'task': 'push', 'iteration': 7, 'return_mean': 12.34567}
    (tmp_path / 'metrics.jsonl').write_text(json.dumps(row) + '\n{"visit": 1, "ta')
    return CellStatus(Cell('demo', 'stl', 'stl', 50), tmp_path, CellState.RUNNING)


def test_a_running_cell_tells_its_last_complete_iteration(running):
    assert describe(running) == 'task 2 (push), iteration 7, return 12.35'


def test_a_cell_without_metrics_is_starting(running):
    (running.folder / 'metrics.jsonl').unlink()
    assert describe(running) == 'starting'


def test_long_metrics_are_read_from_their_end(tmp_path):
    lines = [json.dumps({'iteration': i, 'padding': 'x' * 90}) for i in range(1000)]
    (tmp_path / 'metrics.jsonl').write_text('\n'.join(lines) + '\n')
    assert last_iteration(tmp_path)['iteration'] == 999


def test_the_table_has_a_row_per_cell(running):
    statuses = {'a': running, 'b': running}
    assert status_table(statuses).row_count == 2


def test_a_terminal_shows_the_live_table(running):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with LiveProgress(console) as progress:
        progress.watch({'demo/stl/seed-50': running})
        progress.change(running)
    assert 'iteration 7' in screen.getvalue()
