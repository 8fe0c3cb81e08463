"""What the arm does when its guard is stopped or killed in motion, on every interface.

A guard that is gone can say nothing: the arm's own command time-out ends the motion.
"""

import signal
import time

import pytest

from lpgftw_interfaces.msg import SafetyState
from lpgftw_ros.nodes.conversions import COMMAND_TOPICS

from .arm_cell import (
    ArmCell,
    CONFIGURE,
    LIMITS,
    PATIENCE,
    write_limits,
    write_reach_policy,
    write_suite,
)

pytestmark = [pytest.mark.ros, pytest.mark.alone]
COMMAND_TIMEOUT = 0.2  # of sawyer_sim
PAUSE = 1.0  # s a guard is stopped: longer than it may be away and than the arm waits


@pytest.fixture(scope='module', params=['velocity', 'trajectory', 'twist'])
def cell(request, ros_domain, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    cell = ArmCell(
        policy_file=write_reach_policy(folder),
        suite=write_suite(folder, horizon=45),
        limits_file=write_limits(folder),
        reward='reach',
        interface=request.param,
    )
    cell.ready()
    yield cell
    cell.stop()


def stands_soon(cell, since):
    """Wait until the arm stands and return how long it went on."""
    assert cell.until(cell.stands, 10.0)
    return cell.last_motion() - since


def test_a_command_that_was_not_delivered_in_time_never_is(cell):
    (end,) = [
        end
        for topic, _ in COMMAND_TOPICS.values()
        for end in cell.node.get_publishers_info_by_topic(topic)
    ]
    assert end.qos_profile.lifespan.nanoseconds == pytest.approx(1e9 * LIMITS.longest_gap)


def test_an_arm_whose_guard_is_stopped_stands_and_the_guard_latches_when_it_goes_on(cell):
    result = cell.moving_episode()
    guard, began = cell.processes['safety_guard'], time.monotonic()
    guard.send_signal(signal.SIGSTOP)
    try:
        assert stands_soon(cell, began) < COMMAND_TIMEOUT + PATIENCE
        cell.watch(max(0.0, began + PAUSE - time.monotonic()))
    finally:
        continued = time.time()
        guard.send_signal(signal.SIGCONT)
    assert cell.until(lambda: cell.level == SafetyState.LATCHED, 20.0), cell.states[-1:]
    cell.expect_still(1.0)
    late = [
        speed
        for sent, arrived, speed in cell.arrivals
        if arrived >= continued and arrived - sent < LIMITS.longest_gap
    ]
    assert not any(late), late[:20]
    assert cell.until(result.done, 30.0)


def test_an_arm_whose_guard_is_killed_stands(cell):
    cell.moving_episode()
    killed = time.monotonic()
    cell.processes['safety_guard'].send_signal(signal.SIGKILL)
    assert stands_soon(cell, killed) < COMMAND_TIMEOUT + PATIENCE
    cell.expect_still(1.0)
    cell.start_again('safety_guard')
    assert cell.change('safety_guard', CONFIGURE)
    cell.expect_still(1.0)
