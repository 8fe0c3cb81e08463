"""A run killed at any moment and resumed ends with the bytes of an uninterrupted one."""

import json
import multiprocessing
from pathlib import Path
import random
import time

import pytest

from lpgftw_ros.cli import main

ITERATIONS, TASKS, KILLS = 40, 4, 20


@pytest.fixture(scope='module')
def processes():
    """Return where runs are started: forks of a process that has imported everything once."""
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['lpgftw_ros.cli', 'lpgftw_ros.commands.train', 'torch'])
    return context


def train_arguments(suite: str, out: Path, workers: int) -> list[str]:
    options = f'--seed 7 --iterations {ITERATIONS} --trajectories 4 --workers {workers} --resume'
    settings = ['max_columns=2', 'max_kl=0.1', 'evaluation_episodes=2', 'stochastic_episodes=2']
    words = ['train', '--suite', suite, '--learner', 'lpg-ftw', *options.split()]
    for setting in (*settings, 'update_trajectories=3'):
        words += ['--set', setting]
    return [*words, '--out', str(out)]


def rows_without_timing(out: Path) -> list[dict]:
    lines = (out / 'metrics.jsonl').read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != 'timing'} for line in lines]


def run_to_its_end(processes, arguments: list[str]) -> None:
    process = processes.Process(target=main, args=(arguments,))
    process.start()
    process.join()
    assert process.exitcode == 0


def kill_once(
    processes, arguments: list[str], out: Path, rng: random.Random, *, in_update: bool
) -> bool:
    """Start the run and kill it at a random moment; return whether it had ended by itself."""
    process = processes.Process(target=main, args=(arguments,))
    process.start()
    metrics, checkpoints = out / 'metrics.jsonl', out / 'checkpoints'
    size = metrics.stat().st_size if metrics.exists() else 0
    files = set(checkpoints.glob('task-*')) if checkpoints.exists() else set()
    if in_update:
        # The first new file of the shared knowledge appears in the middle of its update.
        while process.is_alive() and set(checkpoints.glob('task-*')) <= files:
            pass
    else:
        while process.is_alive() and (not metrics.exists() or metrics.stat().st_size <= size):
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.05))
    ended = not process.is_alive()
    process.kill()
    process.join()
    return ended


@pytest.mark.slow
@pytest.mark.parametrize('workers', [1, 2])
def test_killed_run_ends_with_the_same_metrics(
    tiny_suite: str, tmp_path: Path, processes, workers: int
):
    whole, broken = tmp_path / 'whole', tmp_path / 'broken'
    run_to_its_end(processes, train_arguments(tiny_suite, whole, 1))
    rng = random.Random(workers)
    arguments = train_arguments(tiny_suite, broken, workers)
    for kill in range(KILLS):
        ended = kill_once(processes, arguments, broken, rng, in_update=kill % 5 == 4)
        assert not ended, f'the run was over before kill {kill}'
    run_to_its_end(processes, arguments)
    assert rows_without_timing(broken) == rows_without_timing(whole)
    summaries = [json.loads((d / 'summary.json').read_text()) for d in (whole, broken)]
    assert summaries[0]['tasks'] == summaries[1]['tasks']
    assert len(rows_without_timing(whole)) == TASKS * (ITERATIONS + 1)
