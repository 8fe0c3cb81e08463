"""Both drivers, composed or not, also through crashes, give the same bytes."""

import json
from pathlib import Path
import random
import time

import pytest

from .lifelong_graph import (
    kill,
    kill_at_random,
    metrics,
    options,
    scores,
    train,
    wait_for,
    write_suite,
)

pytestmark = [pytest.mark.ros, pytest.mark.slow]


def physics(out: Path) -> dict[str, str]:
    found = json.loads((out / 'fingerprint.json').read_text())['physics']
    assert sorted(found) == ['g-06', 'g-08', 'g-10', 'g-12']
    return found


@pytest.mark.parametrize('learner', ['lpg-ftw', 'ewc'])
def test_graph_equals_in_process(start, tmp_path: Path, learner: str) -> None:
    suite = write_suite(tmp_path)
    train(options(suite, tmp_path / 'train', learner))
    for form in ('--no-composed', '--composed'):
        out = tmp_path / f'up{form}'
        up = start(form, *options(suite, out, learner))
        assert up.process.wait(180) == 0, up.output
        assert metrics(out) == metrics(tmp_path / 'train')
        assert scores(out) == scores(tmp_path / 'train')
        assert physics(out) == physics(tmp_path / 'train')


OWN = """
horizon: 30
hidden: []
tasks:
  - {name: hopper, id: Hopper-v5}
"""


def test_two_parts_that_take_turns_equal_one_in_process(start, tmp_path: Path) -> None:
    """With one worker and seven rows the bridge steps five of them, then two, where it can."""
    suite = tmp_path / 'own.yaml'
    suite.write_text(OWN)
    more = ['--trajectories', '7']
    train([*options(str(suite), tmp_path / 'train'), *more])
    out = tmp_path / 'up'
    up = start(*options(str(suite), out), *more)
    assert up.process.wait(180) == 0, up.output
    assert metrics(out) == metrics(tmp_path / 'train')


def test_a_policy_killed_in_the_middle_of_a_rollout_changes_nothing(start, tmp_path: Path) -> None:
    suite = write_suite(tmp_path, horizon=400)
    train(options(suite, tmp_path / 'train', iterations=2))
    out = tmp_path / 'up'
    up = start(*options(suite, out, iterations=2))
    assert wait_for(lambda: len(metrics(out)) >= 1, 60.0), up.output
    time.sleep(0.1)
    assert kill(up, 'policy')
    assert up.process.wait(240) == 0, up.output
    assert metrics(out) == metrics(tmp_path / 'train')


def test_random_kills_of_every_node_end_in_the_same_metrics(start, tmp_path: Path) -> None:
    suite = write_suite(tmp_path, horizon=60)
    train(options(suite, tmp_path / 'train', iterations=6))
    out = tmp_path / 'up'
    up = start(*options(suite, out, iterations=6))
    nodes = ['sim_bridge', 'policy', 'learner']
    killed = kill_at_random(up, out, nodes, 10, random.Random(1))
    assert up.process.wait(300) == 0, up.output
    assert killed == 10
    assert metrics(out) == metrics(tmp_path / 'train')
    assert scores(out) == scores(tmp_path / 'train')
