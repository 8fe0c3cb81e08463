"""Environments that hang: workers are replaced, rollouts sampled again, or the run fails."""

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite, Suite, TaskSpec
from lpgftw_ros.domains.workers.processes import worker_processes
from lpgftw_ros.errors import InvalidConfig, SimulationFailed
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

SLEEPER = """
from pathlib import Path
import time
import gymnasium
import numpy as np


class Sleeper(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, hangs_at, marker):
        self.hangs_at, self.marker, self.age = hangs_at, Path(marker), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.age += 1
        if self.age == self.hangs_at and not self.marker.exists():
            if self.marker.name == 'once':
                self.marker.touch()
            time.sleep(1e6)
        return self.np_random.normal(size=2).astype(np.float32), float(action[0]), False, False, {}
"""


def write_suite(folder: Path, how: str, hangs_at: int = 4) -> Path:
    """Write a suite with a task that hangs never, once or always."""
    folder.mkdir(exist_ok=True)
    (folder / 'sleeper.py').write_text(SLEEPER)
    if how == 'never':
        (folder / how).touch()
    kwargs = f'{{hangs_at: {hangs_at}, marker: {folder / how}}}'
    task = f'{{name: nap, id: "sleeper:Sleeper-v0", kwargs: {kwargs}}}'
    path = folder / 'suite.yaml'
    path.write_text(f'kind: gymnasium\nhorizon: 8\ntasks:\n  - {task}\nsequence: [nap]\n')
    return path


def still(obs_dim: int, act_dim: int) -> PolicySnapshot:
    spec = PolicySpec(obs_dim, act_dim, ())
    numbers = (spec.n_parameters, spec.head_size, act_dim)
    return PolicySnapshot(spec, *(np.zeros(n) for n in numbers))


def collected(suite: Path) -> tuple[list[bytes], int]:
    with Sampler(str(suite), 2, step_timeout=1.0) as sampler:
        batch = sampler.collect('nap', still(2, 1), 4, seed=3)
        arrays = (batch.observations, batch.actions, batch.rewards)
        return [array.tobytes() for array in arrays], sampler.replaced


def test_a_rollout_that_hung_once_is_sampled_again_with_the_same_bytes(tmp_path, caplog) -> None:
    plain, replaced = collected(write_suite(tmp_path / 'a', 'never'))
    assert replaced == 0
    again, replaced = collected(write_suite(tmp_path / 'b', 'once'))
    assert replaced == 1
    assert again == plain
    assert "task 'nap': simulation worker" in caplog.text
    assert 'did not answer within 1 s' in caplog.text


def test_a_task_that_always_hangs_fails_with_its_name(tmp_path) -> None:
    started = time.monotonic()
    with pytest.raises(SimulationFailed, match=r"task 'nap'.*within 1 s, 3 times in a row"):
        collected(write_suite(tmp_path, 'always'))
    assert time.monotonic() - started < 30.0


def test_a_run_that_hung_once_ends_with_the_same_numbers(tmp_path) -> None:
    rows = []
    for how in ('never', 'once'):
        suite, out = write_suite(tmp_path / how, how), tmp_path / f'run-{how}'
        words = ['--suite', str(suite), '--out', str(out), '--iterations', '2', '--seed', '1']
        words += ['--trajectories', '4', '--step-timeout', '1', '--workers', '2']
        command = [sys.executable, '-m', 'lpgftw_ros.cli', 'train', '--learner', 'stl', *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        rows.append([line.split('"timing"')[0] for line in (out / 'metrics.jsonl').open()])
        assert ('sample the rollout again' in done.stderr) == (how == 'once')
    assert rows[0] == rows[1]


def test_a_task_that_hangs_in_its_first_steps_is_refused_when_the_suite_is_read(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr('lpgftw_ros.domains.gym.settings.FIRST_TIME', 0.5)
    with pytest.raises(InvalidConfig, match=r"'sleeper:Sleeper-v0' hangs.*longer than 0.5 s"):
        load_suite(write_suite(tmp_path, 'always', hangs_at=1))


@pytest.mark.parametrize('number', [signal.SIGSTOP, signal.SIGKILL])
def test_a_stopped_or_killed_worker_is_replaced_too(tmp_path, number: signal.Signals) -> None:
    with Sampler(str(write_suite(tmp_path, 'never')), 2, step_timeout=1.0) as sampler:
        first = sampler.fingerprint('nap')
        struck = worker_processes(sampler._pool).pids[0]
        os.kill(struck, number)
        assert sampler.fingerprint('nap') == first
        assert sampler.replaced == 1
        assert not Path(f'/proc/{struck}').exists()


def test_pictures_of_an_own_task_are_drawn_by_its_worker() -> None:
    suite = Suite('mine', (TaskSpec('only', 'gymnasium', {'id': 'InvertedPendulum-v5'}, 20),), 20)
    with Sampler(suite, 1) as sampler:
        env = sampler.env('only', 1)
        env.reset(seed=0)
        assert type(env._host).__name__ == 'PooledRows'
        frame = env.render_frame()
    assert frame.shape[2] == 3
    assert frame.std() > 1.0
