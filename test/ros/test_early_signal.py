from pathlib import Path
import signal
import subprocess
import sysconfig
import time

import pytest

EXECUTABLES = f'{sysconfig.get_path("data")}/lib/lpgftw_ros'


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('node', ['sim_bridge', 'learner'])
def test_a_signal_while_a_node_loads_ends_it_quietly(node, number):
    """The launch tool passes Ctrl-C on; a user may press it before all nodes are there."""
    process = subprocess.Popen(
        [f'{EXECUTABLES}/{node}', '--ros-args', '-r', '__ns:=/early'],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    loaded = Path(f'/proc/{process.pid}/maps')
    deadline = time.monotonic() + 30.0
    while 'numpy' not in loaded.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)  # numpy is one of the first things a node loads
    process.send_signal(number)
    output, _ = process.communicate(timeout=30.0)
    assert (process.returncode, output) == (0, '')
