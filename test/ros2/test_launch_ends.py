"""What is left of a graph when the real `ros2 launch` is ended as systemd or Docker end it."""

from pathlib import Path
import signal
import time

import pytest

from .shell import needs_ros2, PATIENCE, Shell

pytestmark = needs_ros2
GRAPH = 'ros2 launch lpgftw_ros lifelong.launch.py suite:=halfcheetah-gravity namespace:=/ended'
SOON = 8.0  # s; a node is told to end, ramps or writes what it has, and ends


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_no_node_outlives_its_launch(tmp_path, number):
    launch = Shell(tmp_path).start(f'{GRAPH} out:={tmp_path}/run')
    try:
        assert launch.until('iteration 1', PATIENCE), launch.output
        nodes = launch.descendants()
        assert len(nodes) >= 3, launch.output
        launch.process.send_signal(number)  # to it alone, as systemd's KillMode=mixed does
        launch.process.wait(PATIENCE)
        end = time.monotonic() + SOON
        while (left := [pid for pid in nodes if alive(pid)]) and time.monotonic() < end:
            time.sleep(0.1)
        assert left == [], launch.output
    finally:
        launch.interrupt()
    assert 'did not end in time' not in launch.output
    assert list(Path(tmp_path, 'run').glob('*.tmp')) == []


def alive(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False
