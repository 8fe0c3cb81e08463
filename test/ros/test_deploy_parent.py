"""The process that started the graph around an arm is gone: the guard ramps, then all end."""

from collections.abc import Iterator
import signal
import subprocess

import pytest

from .arm_cell import ArmCell, write_limits, write_reach_policy

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]
STANDS = 1e-3  # rad/s


@pytest.fixture
def parent() -> Iterator[subprocess.Popen]:
    """Stand in for `ros2 launch`, which names itself to the nodes it starts."""
    process = subprocess.Popen(['sleep', '600'])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def cell(ros_domain, tmp_path, parent) -> Iterator[ArmCell]:
    cell = ArmCell(
        parent=parent.pid,
        limits_file=write_limits(tmp_path),
        policy_file=write_reach_policy(tmp_path),
        reward='reach',
    )
    cell.ready()
    yield cell
    cell.stop()


def test_the_guard_ramps_and_every_node_ends_when_the_parent_is_ended(cell, parent) -> None:
    cell.moving_episode()
    cell.sent.clear()
    parent.send_signal(signal.SIGTERM)
    parent.wait(5.0)
    running = [process for process in cell.processes.values() if process.poll() is None]
    assert cell.until(lambda: all(p.poll() is not None for p in running), 10.0), cell.processes
    codes = {name: process.returncode for name, process in cell.processes.items()}
    assert codes == dict.fromkeys(codes, 128 + signal.SIGTERM)  # asked to end; none was killed
    moving = [speed for speed in cell.sent if speed > STANDS]
    assert len(moving) >= 3, cell.sent  # the arm was not stopped at once
    ramp = moving[moving.index(max(moving)) :]
    assert cell.sent[-1] < STANDS, cell.sent  # but in the end
    assert ramp[-1] < 0.7 * ramp[0], ramp
