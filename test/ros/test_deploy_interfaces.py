"""The other two things an arm may take: joint trajectories and twists."""

import pytest

from .arm_cell import ArmCell, write_limits, write_reach_policy, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.alone]


@pytest.mark.parametrize('interface', ['trajectory', 'twist'])
def test_an_episode_reaches_its_goal(ros_domain, tmp_path, interface):
    cell = ArmCell(
        policy_file=write_reach_policy(tmp_path),
        suite=write_suite(tmp_path, horizon=45),
        limits_file=write_limits(tmp_path),
        reward='reach',
        interface=interface,
    )
    try:
        cell.ready()
        answer = cell.whole_episode()
        assert (answer.success, answer.success_rate) == (True, 1.0), answer.message
    finally:
        cell.stop()
