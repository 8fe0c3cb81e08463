"""A slow control rate: between two commands the guard has just enough patience."""

import pytest

from lpgftw_interfaces.msg import SafetyState

from .arm_cell import ArmCell, PATIENT, write_limits, write_reach_policy, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.alone]
RATE = 1.0  # Hz: one period is well below what the guard waits for, two are above it
WATCHDOG = 2.0  # s, the action_timeout such a rate needs


@pytest.fixture(scope='module')
def cell(ros_domain, tmp_path_factory):
    folder = tmp_path_factory.mktemp('slow')
    cell = ArmCell(
        policy_file=write_reach_policy(folder, rate=RATE),
        suite=write_suite(folder, horizon=45),
        limits_file=write_limits(folder, **PATIENT | {'action_timeout': WATCHDOG}),
        reward='reach',
        rate=RATE,
    )
    cell.ready()
    yield cell
    cell.stop()


def test_a_held_arm_does_not_latch_the_guard(cell):
    cell.states.clear()
    cell.watch(4.0 * WATCHDOG)
    assert {state.level for state in cell.states} == {SafetyState.OK}, cell.states[-1:]


def test_an_episode_and_the_rest_after_it_do_not_either(cell):
    answer = cell.whole_episode()
    assert answer.success, answer.message
    cell.watch(2.0 * WATCHDOG)
    assert cell.level == SafetyState.OK, cell.states[-1:]
