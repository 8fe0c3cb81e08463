"""A graph struck at random ends with the bytes of an undisturbed run."""

import json
import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from .lifelong_graph import metrics, options, train, wait_for, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]


def test_a_small_campaign_against_a_graph(ros_domain: int, tmp_path: Path) -> None:
    words = ['chaos', 'graph', '--count', '5', '--seed', '2', '--learners', 'lpg-ftw', '--json']
    command = [sys.executable, '-m', 'lpgftw_ros.cli', *words]
    alone = {**os.environ, 'TMPDIR': str(tmp_path)}  # arms of other tests do not matter
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    (campaign,) = json.loads(done.stdout)['campaigns']
    assert campaign['faults'] == 5
    assert campaign['runs'] == campaign['equal'] >= 1
    assert sum(campaign['messages'].values()) == 5


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize('node', ['learner', 'sim_bridge'])
def test_a_node_ended_by_a_signal_comes_back(
    start, tmp_path: Path, node: str, number: signal.Signals
) -> None:
    suite, out = write_suite(tmp_path), tmp_path / 'up'
    train(options(suite, tmp_path / 'train'))
    up = start(*options(suite, out))
    assert wait_for(lambda: len(metrics(out)) > 2, 90.0), up.output
    for pid in up.children():
        if f'lpgftw_ros.nodes.{node}' in Path(f'/proc/{pid}/cmdline').read_text():
            os.kill(pid, number)
    assert up.process.wait(120) == 0, up.output
    assert f'ended with {128 + number}: starting again' in up.output
    assert metrics(out) == metrics(tmp_path / 'train')
