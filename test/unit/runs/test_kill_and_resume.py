"""A run killed at any moment and resumed ends with the bytes of an uninterrupted one."""

import json
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

import pytest

ITERATIONS, TASKS, KILLS = 40, 4, 20


def train_command(suite: str, out: Path, workers: int) -> list[str]:
    options = f'--seed 7 --iterations {ITERATIONS} --trajectories 4 --workers {workers} --resume'
    settings = ['max_columns=2', 'max_kl=0.1', 'evaluation_episodes=2', 'stochastic_episodes=2']
    command = [sys.executable, '-m', 'lpgftw_ros.cli', 'train', '--suite', suite]
    command += ['--learner', 'lpg-ftw', *options.split(), '--out', str(out)]
    for setting in (*settings, 'update_trajectories=3'):
        command += ['--set', setting]
    return command


def rows_without_timing(out: Path) -> list[dict]:
    lines = (out / 'metrics.jsonl').read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != 'timing'} for line in lines]


def kill_once(command: list[str], out: Path, rng: random.Random, *, in_update: bool) -> bool:
    """Start the run and kill it at a random moment; return whether it had ended by itself."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics, checkpoints = out / 'metrics.jsonl', out / 'checkpoints'
    size = metrics.stat().st_size if metrics.exists() else 0
    files = set(checkpoints.glob('task-*')) if checkpoints.exists() else set()
    if in_update:
        # The first new file of the shared knowledge appears in the middle of its update.
        while process.poll() is None and set(checkpoints.glob('task-*')) <= files:
            pass
    else:
        while process.poll() is None and (not metrics.exists() or metrics.stat().st_size <= size):
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.05))
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return ended


@pytest.mark.slow
@pytest.mark.parametrize('workers', [1, 2])
def test_killed_run_ends_with_the_same_metrics(tiny_suite: str, tmp_path: Path, workers: int):
    whole, broken = tmp_path / 'whole', tmp_path / 'broken'
    subprocess.run(train_command(tiny_suite, whole, 1), check=True, capture_output=True)
    rng = random.Random(workers)
    command = train_command(tiny_suite, broken, workers)
    for kill in range(KILLS):
        ended = kill_once(command, broken, rng, in_update=kill % 5 == 4)
        assert not ended, f'the run was over before kill {kill}'
    subprocess.run(command, check=True, capture_output=True)
    assert rows_without_timing(broken) == rows_without_timing(whole)
    summaries = [json.loads((d / 'summary.json').read_text()) for d in (whole, broken)]
    assert summaries[0]['tasks'] == summaries[1]['tasks']
    assert len(rows_without_timing(whole)) == TASKS * (ITERATIONS + 1)
