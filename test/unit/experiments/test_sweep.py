"""Cells run a stand-in for the training process; the runner itself is the real one."""

import argparse
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml

from lpgftw_ros.commands import experiment
from lpgftw_ros.experiments import Cell, ExperimentSpec
from lpgftw_ros.experiments.sweep import (
    cell_config,
    CellState,
    is_finished,
    LocalProcesses,
    RayTasks,
    slurm_script,
    Sweep,
)

PROGRAM = """
import json, os, pathlib, sys, time
words = sys.argv[1:]
out = pathlib.Path(words[words.index('--out') + 1])
out.mkdir(parents=True, exist_ok=True)
seed = int(words[words.index('--seed') + 1])
with (out.parent / f'calls-{seed}.txt').open('a') as file:
    file.write(' '.join(words) + '\\n')
if seed == 13:
    sys.exit('unlucky')
if seed == 99 and '--resume' not in words:
    (out / 'pid').write_text(str(os.getpid()))
    time.sleep(60)
if '--source' in words:
    assert (pathlib.Path(words[words.index('--source') + 1]) / 'summary.json').exists()
(out / 'summary.json').write_text(json.dumps({'format': 1, 'state': 'finished'}))
"""


@pytest.fixture
def program(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / 'program.py'
    path.write_text(PROGRAM)
    return (str(path),)


def table(*cells: Cell) -> ExperimentSpec:
    return ExperimentSpec('t', None, 't', '', ('demo',), False, cells)


def cell(label: str = 'stl', seed: int = 50, source: str | None = None) -> Cell:
    return Cell('demo', label, label, seed, source=source)


def sweep(root: Path, program: tuple[str, ...], *cells: Cell, jobs: int = 2) -> dict:
    runner = Sweep(table(*cells), root, LocalProcesses(jobs), program=program)
    return {status.cell.name: status for status in runner.run(poll_seconds=0.02)}


def test_a_cell_that_ends_well_is_finished(tmp_path, program):
    result = sweep(tmp_path, program, cell())
    assert result['demo/stl/seed-50'].state is CellState.FINISHED


def test_a_failed_cell_does_not_stop_the_rest(tmp_path, program):
    result = sweep(tmp_path, program, cell(seed=13), cell(seed=60), jobs=1)
    assert result['demo/stl/seed-13'].state is CellState.FAILED
    assert result['demo/stl/seed-60'].state is CellState.FINISHED


def test_a_failed_cell_tells_its_last_words(tmp_path, program):
    status = sweep(tmp_path, program, cell(seed=13))['demo/stl/seed-13']
    assert status.message == 'exit code 1: unlucky'


def keep_config(root: Path, made_by: Cell, **changes) -> Path:
    """Write the configuration of a cell as its training would, some of it changed."""
    folder = made_by.folder(root)
    content = cell_config(made_by).to_dict()
    (folder / 'config.yaml').write_text(yaml.safe_dump({**content, **changes}))
    return folder


def test_finished_cells_are_skipped(tmp_path, program):
    sweep(tmp_path, program, cell())
    keep_config(tmp_path, cell())
    again = sweep(tmp_path, program, cell())
    assert again['demo/stl/seed-50'].state is CellState.SKIPPED
    assert len((tmp_path / 'demo/stl/calls-50.txt').read_text().splitlines()) == 1


@pytest.mark.parametrize('state', ['finished', 'running'])
def test_a_folder_of_another_configuration_fails_its_cell(tmp_path, program, state):
    folder = cell().folder(tmp_path)
    folder.mkdir(parents=True)
    keep_config(tmp_path, cell(), tasks=['reach'])
    (folder / 'summary.json').write_text(json.dumps({'state': state}))
    status = sweep(tmp_path, program, cell())['demo/stl/seed-50']
    assert status.state is CellState.FOREIGN
    assert "tasks is ['reach'], asked for" in status.message
    assert not (tmp_path / 'demo/stl/calls-50.txt').exists()


def test_a_cell_whose_options_were_edited_fails(tmp_path, program):
    sweep(tmp_path, program, cell())
    keep_config(tmp_path, cell())
    edited = Cell('demo', 'stl', 'stl', 50, options={'iterations': '7'})
    status = sweep(tmp_path, program, edited)['demo/stl/seed-50']
    assert (status.state, 'asked for 7' in status.message) == (CellState.FOREIGN, True)


def test_a_finished_run_without_a_configuration_fails_its_cell(tmp_path, program):
    sweep(tmp_path, program, cell())
    assert sweep(tmp_path, program, cell())['demo/stl/seed-50'].state is CellState.FOREIGN


def test_an_unfinished_folder_is_resumed(tmp_path, program):
    folder = tmp_path / 'demo/stl/seed-50'
    folder.mkdir(parents=True)
    (folder / 'summary.json').write_text('{"state": "running"}')
    sweep(tmp_path, program, cell())
    assert (tmp_path / 'demo/stl/calls-50.txt').read_text().endswith('--resume\n')


def test_a_new_folder_is_not_resumed(tmp_path, program):
    sweep(tmp_path, program, cell())
    assert '--resume' not in (tmp_path / 'demo/stl/calls-50.txt').read_text()


def test_pg_ella_waits_for_its_source(tmp_path, program):
    result = sweep(tmp_path, program, cell('pg-ella', source='stl'), cell())
    assert {status.state for status in result.values()} == {CellState.FINISHED}


def test_pg_ella_is_blocked_by_a_failed_source(tmp_path, program):
    result = sweep(tmp_path, program, cell('pg-ella', 13, source='stl'), cell(seed=13))
    assert result['demo/pg-ella/seed-13'].state is CellState.BLOCKED


def test_a_process_that_ends_without_finishing_failed(tmp_path):
    (tmp_path / 'nothing.py').write_text('')
    status = sweep(tmp_path, (str(tmp_path / 'nothing.py'),), cell())['demo/stl/seed-50']
    assert (status.state, status.message) == (CellState.FAILED, 'ended without finishing')


def wait_for(path: Path) -> str:
    for _ in range(1000):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f'{path} did not appear')


def test_an_interruption_ends_the_children(tmp_path, program):
    backend = LocalProcesses(1)
    runner = Sweep(table(cell(seed=99)), tmp_path, backend, program=program)
    runner.advance()
    pid = int(wait_for(tmp_path / 'demo/stl/seed-99/pid'))
    backend.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def options(root: Path, **other) -> argparse.Namespace:
    values = {'out': root, 'jobs': 1, 'workers': 1, 'ray': None, 'dry_run': False}
    return argparse.Namespace(**(values | other))


def test_the_command_prints_plain_lines_when_not_on_a_terminal(tmp_path, program, capsys):
    experiment.execute(table(cell(), cell(seed=13)), options(tmp_path), program)
    lines = capsys.readouterr().out.splitlines()
    assert 'demo/stl/seed-50: finished' in lines
    assert '1 of 2 cells finished' in lines


def test_a_dry_run_prints_commands_and_runs_nothing(tmp_path, capsys):
    experiment.execute(table(cell()), options(tmp_path, dry_run=True))
    assert capsys.readouterr().out.startswith('lpgftw train --suite demo --learner stl --seed 50')
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_command_and_its_children(tmp_path, program, number):
    script = f"""
import argparse, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
from lpgftw_ros.commands import experiment
from lpgftw_ros.experiments import Cell, ExperimentSpec
spec = ExperimentSpec('t', None, 't', '', ('demo',), False, (Cell('demo', 'stl', 'stl', 99),))
args = argparse.Namespace(out={str(tmp_path)!r}, jobs=1, workers=1, ray=None, dry_run=False)
import pathlib; args.out = pathlib.Path(args.out)
try:
    experiment.execute(spec, args, {program!r})
except KeyboardInterrupt:
    sys.exit(130)
"""
    parent = subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.DEVNULL)
    try:
        pid = int(wait_for(tmp_path / 't/demo/stl/seed-99/pid'))
        parent.send_signal(number)
        assert parent.wait(30) == 130
    finally:
        parent.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ray_runs_the_same_cells_and_resumes_one_whose_worker_was_lost(tmp_path, program):
    backend = RayTasks('local', jobs=2)
    assert (backend.capacity, backend.options) == (2, ())
    cells = (cell(), cell(seed=13), cell(seed=99))
    runner = Sweep(table(*cells), tmp_path, backend, program=program)
    while not (tmp_path / 'demo/stl/seed-99/pid').exists():
        assert runner.advance()
        time.sleep(0.05)
    pid = int(wait_for(tmp_path / 'demo/stl/seed-99/pid'))
    parent = int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])
    for lost in (parent, pid):
        os.kill(lost, signal.SIGKILL)
    states = {status.cell.seed: status.state for status in runner.run(poll_seconds=0.05)}
    finished = CellState.FINISHED
    assert states == {50: finished, 13: CellState.FAILED, 99: finished}
    assert (tmp_path / 'demo/stl/calls-99.txt').read_text().endswith('--resume\n')


SMALL = {'tasks': '1', 'iterations': '1', 'trajectories': '2'}


def small(label: str, source: str | None = None) -> Cell:
    return Cell('hopper-gravity', label, label, 50, options=SMALL, source=source)


def test_a_slurm_script_runs_the_cell_of_its_index_and_goes_on_with_it(tmp_path):
    path = tmp_path / 'cells.sh'
    path.write_text(slurm_script(table(small('stl')), tmp_path / 'runs', 1, None))

    def job(index: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, 'SLURM_ARRAY_TASK_ID': index}
        return subprocess.run(
            ['bash', str(path)], env=environment, capture_output=True, text=True, check=False
        )

    assert job('0').returncode == 0
    assert is_finished(tmp_path / 'runs/hopper-gravity/stl/seed-50')
    again = job('0')
    assert (again.returncode, 'nothing left to learn' in again.stdout) == (0, True)
    assert job('1').returncode == 2


def test_a_slurm_array_has_every_cell_once_and_sources_first(tmp_path):
    cells = (small('pg-ella', source='stl'), small('lpg-ftw'), small('stl'))
    script = slurm_script(table(*cells), tmp_path / 'my runs', 4, 8)
    learners = re.findall(r'^\d+\) .*--learner (\S+)', script, re.M)
    assert learners == ['lpg-ftw', 'stl', 'pg-ella']
    assert '--array=0-1%8' in script
    assert '--array=2-2%8 --dependency="afterany:$first"' in script
    assert '#SBATCH --cpus-per-task=4' in script
