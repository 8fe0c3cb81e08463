"""What the bridge asks of the guard."""

import numpy as np
import pytest

from lpgftw_ros.deploy.controller import ArmController
from lpgftw_ros.deploy.observation import ControlSettings
from lpgftw_ros.deploy.rehearsal import HOME_FRAME


@pytest.fixture
def controller(kinematics, limits, at_reset):
    controller = ArmController(kinematics, limits, HOME_FRAME, ControlSettings(), 'hash')
    controller.start(at_reset)
    return controller


def test_holding_an_arm_that_is_held_asks_for_nothing(controller, at_reset):
    tilted = at_reset + np.array([0.0, 0.0, 0.0, 0.0, 0.2, 0.2, 0.0])
    for _ in range(20):
        command = controller.hold(tilted)
    assert not command.joint_velocities.any()
    np.testing.assert_array_equal(command.joint_positions, tilted)


def test_holding_a_moving_arm_slows_it_down_first(controller, at_reset):
    for _ in range(5):
        controller.command(np.array([0.0, 0.0, 1.0, -1.0]), at_reset)
    speeds = [np.linalg.norm(controller.hold(at_reset).hand_velocity) for _ in range(3)]
    assert speeds[0] < 0.1
    assert speeds[-1] == 0.0


def test_the_controller_asks_for_nothing_a_jam_would_make_too_fast(
    controller, kinematics, limits, at_reset
):
    joints, fastest = at_reset, 0.0
    for _ in range(40):
        command = controller.command(np.array([0.0, 0.0, 1.0, -1.0]), joints)
        fast = kinematics.jam_speed(command.joint_positions, command.joint_velocities)
        fastest = max(fastest, fast)
        joints = joints + command.joint_velocities * 0.05
    assert 0.9 < fastest / (limits.jam_factor * limits.max_speed) < 1.0
    assert np.linalg.norm(command.hand_velocity) > 0.02
