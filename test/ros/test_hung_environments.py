"""An environment that hangs in the graph: its worker is replaced, or the run fails by its name."""

from pathlib import Path

import pytest

from .lifelong_graph import metrics, train

pytestmark = [pytest.mark.ros, pytest.mark.slow]
SLEEPER = """
from pathlib import Path
import time
import gymnasium
import numpy as np


class Sleeper(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, marker):
        self.marker, self.age = Path(marker), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.age += 1
        if self.age == 15 and not self.marker.exists():
            if self.marker.name == 'once':
                self.marker.touch()
            time.sleep(1e6)
        return self.np_random.normal(size=2).astype(np.float32), float(action[0]), False, False, {}
"""


def options(folder: Path, how: str, out: Path) -> list[str]:
    """Return a run of a task that hangs never, once or always."""
    folder.mkdir()
    (folder / 'sleeper.py').write_text(SLEEPER)
    if how == 'never':
        (folder / how).touch()
    task = f'{{name: nap, id: "sleeper:Sleeper-v0", kwargs: {{marker: {folder / how}}}}}'
    suite = folder / 'suite.yaml'
    suite.write_text(f'kind: gymnasium\nhorizon: 30\ntasks:\n  - {task}\nsequence: [nap]\n')
    words = ['--suite', str(suite), '--learner', 'stl', '--seed', '1', '--out', str(out)]
    words += ['--iterations', '2', '--trajectories', '4', '--workers', '2']
    return [*words, '--step-timeout', '2']


@pytest.mark.parametrize('composed', ['--no-composed', '--composed'])
def test_a_rollout_that_hung_is_sampled_again(start, tmp_path: Path, composed: str) -> None:
    train(options(tmp_path / 'a', 'never', tmp_path / 'train'))
    up = start(composed, *options(tmp_path / 'b', 'once', tmp_path / 'up'))
    assert up.process.wait(120) == 0, up.output
    assert 'did not answer within 2 s' in up.output
    assert metrics(tmp_path / 'up') == metrics(tmp_path / 'train')


def test_a_task_that_always_hangs_ends_the_run_by_its_name(start, tmp_path: Path) -> None:
    up = start(*options(tmp_path / 'a', 'always', tmp_path / 'up'))
    assert up.process.wait(180) == 1, up.output
    assert "task 'nap': simulation worker" in up.output
    assert '3 times in a row' in up.output
