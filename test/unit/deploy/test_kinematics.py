"""Forward and inverse kinematics of the Sawyer."""

from dataclasses import replace

import numpy as np
import pytest

from lpgftw_ros.deploy.arm.kinematics import ArmKinematics, DifferentialIK, velocity_bounds
from lpgftw_ros.deploy.controller import TOOL_DOWN
from lpgftw_ros.deploy.safety.limits import nearness
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import NonFinite, WrongShape

DT = 0.05


@pytest.fixture
def ik(kinematics, at_reset):
    return DifferentialIK(kinematics, TOOL_DOWN, at_reset, 0.1, 1.0)


def drive(ik, joints, hand_velocity, n_steps):
    velocity, trace = np.zeros(7), []
    for _ in range(n_steps):
        velocity = ik.solve(joints, velocity, hand_velocity, DT)
        joints = joints + velocity * DT
        trace.append(velocity)
    return joints, np.array(trace)


def test_the_hand_is_where_the_policy_of_the_simulator_sees_it(kinematics):
    with Sampler('demo', workers=1) as sampler:
        env = sampler.env('reach', 1)
        env.reset(seed=0)
        rng, differences = np.random.default_rng(0), []
        for _ in range(20):
            seen = env.step(rng.uniform(-1, 1, (1, 4)))[0][0, :3]
            _, positions, _ = env.joint_state(0)
            differences.append(np.abs(kinematics.pose(positions[:7]).position - seen).max())
    assert max(differences) < 1e-9


def test_a_path_is_its_poses(kinematics, at_reset):
    joints = at_reset + np.linspace(0.0, 0.2, 4)[:, None]
    positions, tools = kinematics.path(joints)
    pose = kinematics.pose(joints[2])
    np.testing.assert_array_equal(positions[2], pose.position)
    np.testing.assert_allclose(tools[2], pose.rotation[:, 0])


def test_the_jacobian_is_the_derivative_of_the_pose(kinematics, at_reset):
    step = 1e-6
    slopes = [
        (kinematics.pose(at_reset + step * e).position - kinematics.pose(at_reset).position) / step
        for e in np.eye(7)
    ]
    np.testing.assert_allclose(kinematics.jacobian(at_reset)[:3], np.array(slopes).T, atol=1e-5)


def test_the_hand_moves_as_asked(kinematics, ik, at_reset):
    joints, _ = drive(ik, at_reset, np.array([0.05, 0.05, -0.05]), 20)
    moved = kinematics.pose(joints).position - kinematics.pose(at_reset).position
    np.testing.assert_allclose(moved, [0.05, 0.05, -0.05], atol=4e-3)


def test_the_orientation_is_held(kinematics, ik, at_reset):
    joints, _ = drive(ik, at_reset, np.array([0.08, 0.08, 0.02]), 40)
    np.testing.assert_allclose(kinematics.pose(joints).rotation, TOOL_DOWN, atol=2e-2)


def test_joint_accelerations_keep_their_limit(arm, ik, at_reset):
    _, trace = drive(ik, at_reset, np.array([0.8, -0.8, 0.8]), 20)
    changes = np.abs(np.diff(trace, axis=0, prepend=np.zeros((1, 7)))) / DT
    assert (changes <= arm.joint_acceleration * (1 + 1e-9)).all()


def test_joint_velocities_keep_their_limit(arm, kinematics, at_reset):
    ik = DifferentialIK(kinematics, TOOL_DOWN, at_reset, 0.1, 0.1)
    _, trace = drive(ik, at_reset, np.array([0.8, -0.8, 0.8]), 20)
    assert (np.abs(trace) <= 0.1 * arm.joint_velocity * (1 + 1e-9)).all()


@pytest.mark.parametrize('direction', [(3.0, 0.0, 0.0), (0.0, 3.0, 0.0), (0.0, 0.0, 3.0)])
def test_joints_keep_their_margin_when_the_hand_is_pushed_out_of_reach(
    arm, ik, at_reset, direction
):
    joints, _ = drive(ik, at_reset, np.array(direction), 150)
    assert (joints >= arm.joint_low + 0.1 - 1e-6).all()
    assert (joints <= arm.joint_high - 0.1 + 1e-6).all()


def test_a_joint_at_its_limit_may_only_leave_it(arm):
    low, high = velocity_bounds(arm, arm.joint_high - 0.1, np.zeros(7), DT, 0.1, 1.0)
    assert (high <= 1e-9).all()
    assert (low < 0.0).all()


def test_numbers_that_are_not_finite_are_refused(ik, at_reset):
    with pytest.raises(NonFinite):
        ik.solve(at_reset, np.zeros(7), np.array([np.nan, 0.0, 0.0]), DT)


def test_a_model_with_other_joints_is_refused(arm):
    import mujoco

    with pytest.raises(WrongShape):
        ArmKinematics(mujoco.MjModel.from_xml_string('<mujoco/>'), arm)


def test_nearness_is_one_where_a_limit_is_met_and_names_what_meets_it(
    kinematics, limits, arm, at_reset
):
    still = np.zeros(7)
    _, high = limits.joint_range(arm)
    joints = at_reset.copy()
    joints[4] = high[4]
    found = {n.parameter: n for n in nearness(limits, kinematics, joints, still)}
    assert (found['joint_margin'].what, found['joint_margin'].share) == (arm.joints[4], 1.0)
    assert found['max_speed'].share == found['joint_velocity_scale'].share == 0.0

    hand = kinematics.pose(at_reset).position
    box = replace(limits, box_low=hand - 0.1, box_high=hand + np.array((0.3, 0.3, 0.0)))
    walls = {n.parameter: n for n in nearness(box, kinematics, at_reset, still)}['box']
    assert (walls.what, walls.share) == ('hand z', pytest.approx(1.0))

    forward = np.linalg.pinv(kinematics.jacobian(at_reset)[:3]) @ (0.0, 0.05, 0.0)
    moving = {n.parameter: n for n in nearness(limits, kinematics, at_reset, forward)}
    assert moving['max_speed'].value == pytest.approx(0.05)
    assert moving['max_speed'].share == pytest.approx(0.05 / limits.max_speed)


def test_the_jam_speed_is_that_of_the_worst_joints_to_jam(kinematics, at_reset):
    velocity = np.array([0.1, -0.2, 0.05, 0.3, -0.1, 0.2, 0.4])
    step, worst = 1e-6, 0.0
    here = kinematics.pose(at_reset).position
    for jam in range(2**7):
        free = np.array([(jam >> i) & 1 for i in range(7)])
        there = kinematics.pose(at_reset + step * free * velocity).position
        worst = max(worst, float(np.linalg.norm(there - here)) / step)
    assert kinematics.jam_speed(at_reset, velocity) == pytest.approx(worst, rel=1e-4)


def test_the_least_velocity_moves_the_hand_as_asked_and_does_not_turn_it(kinematics, at_reset):
    wanted = np.array([0.03, -0.05, 0.02])
    moved = kinematics.jacobian(at_reset) @ kinematics.least_velocity(at_reset, wanted)
    np.testing.assert_allclose(moved, [*wanted, 0.0, 0.0, 0.0], atol=2e-3)
