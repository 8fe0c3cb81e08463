"""Tasks of a user in the graph: a class beside the suite, and one of another package."""

from pathlib import Path
import subprocess
import sys

import pytest

from .lifelong_graph import kill, metrics, options, scores, train, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.slow]

SLED = """
import gymnasium
from gymnasium.spaces import Box
import numpy as np


class Sled(gymnasium.Env):
    metadata = {'render_modes': ['rgb_array'], 'render_fps': 20}
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Box(-1.0, 1.0, (1,))

    def __init__(self, goal=1.0, render_mode=None):
        self.goal, self.render_mode = goal, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-0.1, 0.1), 0.0])
        return self._seen(), {}

    def step(self, action):
        where, speed = self.state
        speed = 0.9 * speed + 0.1 * float(action[0])
        self.state = np.array([where + 0.1 * speed, speed])
        distance = abs(self.state[0] - self.goal)
        return self._seen(), -distance, False, False, {'success': distance < 0.1}

    def _seen(self):
        return (100.0 + self.state).astype(np.float32)  # far from zero: to be normalised

    def render(self):
        picture = np.full((64, 96, 3), 255, dtype=np.uint8)
        column = int(np.clip(48 + 20 * self.state[0], 0, 90))
        picture[30:40, column : column + 6] = 0
        return picture
"""
OWN = """
horizon: 30
settings: {normalise: true}
defaults: {id: "sleds:Sled"}
tasks:
  - {name: right}
  - {name: left, kwargs: {goal: -1.0}}
sequence: [right, left]
"""
FOREIGN = """
horizon: 15
settings: {normalise: true}
tasks:
  - {name: reach, id: "gymnasium_robotics:FetchReachDense-v4"}
"""


def lpgftw(*words: str) -> None:
    command = [sys.executable, '-m', 'lpgftw_ros.cli', *words]
    subprocess.run(command, check=True, capture_output=True, cwd='/')


def test_a_class_beside_the_suite_learns_in_the_graph(start, tmp_path: Path) -> None:
    (tmp_path / 'sleds.py').write_text(SLED)
    suite, out = tmp_path / 'sleds.yaml', tmp_path / 'up'
    suite.write_text(OWN)
    train(options(str(suite), tmp_path / 'train'))
    up = start('--no-composed', *options(str(suite), out))
    assert wait_for(lambda: len(metrics(out)) >= 2, 60.0), up.output
    assert kill(up, 'learner')  # it is started again and resumes
    assert up.process.wait(180) == 0, up.output
    assert metrics(out)[0]['purpose'] == 'observations'
    assert metrics(out) == metrics(tmp_path / 'train')
    assert scores(out) == scores(tmp_path / 'train')
    lpgftw('evaluate', str(out), '--render', str(tmp_path / 'sled.mp4'))
    assert (tmp_path / 'sled.mp4').stat().st_size > 1000


def test_an_environment_of_another_package_learns_in_the_graph(start, tmp_path: Path) -> None:
    suite, out = tmp_path / 'fetch.yaml', tmp_path / 'up'
    suite.write_text(FOREIGN)
    train(options(str(suite), tmp_path / 'train', iterations=2))
    up = start('--composed', *options(str(suite), out, iterations=2))
    assert up.process.wait(180) == 0, up.output
    assert metrics(out) == metrics(tmp_path / 'train')
    lpgftw('evaluate', str(out), '--render', str(tmp_path / 'fetch.mp4'))
    assert (tmp_path / 'fetch.mp4').stat().st_size > 1000
