"""The guard's commands reach stand-ins with the names, types and QoS of common controllers."""

import importlib.util
import os

from geometry_msgs.msg import TwistStamped
import numpy as np
import pytest
from rclpy.action import ActionServer
from rclpy.qos import qos_profile_system_default
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from lpgftw_interfaces.msg import SafetyState

from .arm_cell import (
    ACTIVATE,
    ArmCell,
    CONFIGURE,
    PATIENT,
    TRIES,
    write_limits,
    write_reach_policy,
    write_suite,
)

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]
CONTROLLERS = {
    'moveit_servo': ('/servo_node/delta_twist_cmds', TwistStamped),
    'forward_velocity': ('/forward_velocity_controller/commands', Float64MultiArray),
    'joint_trajectory': ('/joint_trajectory_controller/joint_trajectory', JointTrajectory),
}
GRIPPERS = ('gripper_command', 'parallel_gripper_command')


def cell_of(tmp_path, **options):
    return ArmCell(
        suite=write_suite(tmp_path, 40),
        limits_file=write_limits(tmp_path, **PATIENT),
        policy_file=write_reach_policy(tmp_path),
        reward='reach',
        **options,
    )


def bring_to_life(cell):
    for transition in (CONFIGURE, ACTIVATE):
        for node in ('safety_guard', 'arm_bridge'):
            cell.insist(node, transition)


@pytest.mark.parametrize('controller', CONTROLLERS)
def test_a_profile_connects_a_controller(ros_domain, tmp_path, controller):
    topic, kind = CONTROLLERS[controller]
    cell = cell_of(tmp_path, controller=controller)
    commands, joints = [], []
    subscribe = cell.node.create_subscription
    subscribe(kind, topic, commands.append, qos_profile_system_default)
    subscribe(JointState, '/joint_states', joints.append, qos_profile_system_default)
    try:
        assert cell.until(lambda: joints, 60.0), 'nothing on /joint_states'
        bring_to_life(cell)
        for _ in range(TRIES):
            if controller == 'joint_trajectory':  # silent while the arm stands
                cell.collect()
            told = cell.until(  # a busy machine may latch the guard, which is not asked here
                lambda: len(commands) > 20 or cell.level == SafetyState.LATCHED, 60.0
            )
            if not told or len(commands) > 20:
                break
            cell.reset()
        assert len(commands) > 20, f'nothing on {topic}'
    finally:
        cell.stop()
    last = commands[-1]
    numbers = {
        'moveit_servo': lambda: [last.twist.linear.x, last.twist.linear.y, last.twist.linear.z],
        'forward_velocity': lambda: list(last.data),
        'joint_trajectory': lambda: list(last.points[0].positions),
    }[controller]()
    assert np.isfinite(numbers).all()
    if controller == 'moveit_servo':
        assert last.header.frame_id == 'base'
        assert last.header.stamp.sec > 0


@pytest.mark.skipif(
    importlib.util.find_spec('control_msgs') is None,
    reason='control_msgs comes with a ROS installation, there is no wheel of it; source ROS first',
)
@pytest.mark.parametrize('gripper', GRIPPERS)
def test_a_gripper_is_commanded_by_its_action(ros_domain, tmp_path, gripper):
    from control_msgs import action

    parallel = gripper == 'parallel_gripper_command'
    kind = action.ParallelGripperCommand if parallel else action.GripperCommand
    cell = cell_of(tmp_path, gripper=gripper, gripper_open=0.05)
    goals = []

    def execute(handle):
        goals.append(handle.request.command)
        handle.succeed()
        return kind.Result(reached_goal=True)

    server = ActionServer(cell.node, kind, '/gripper_controller/gripper_cmd', execute)
    try:
        bring_to_life(cell)
        assert cell.until(lambda: goals, 60.0), 'no goal'
    finally:
        server.destroy()
        cell.stop()
    first = goals[0]
    assert (first.position[0] if parallel else first.position) == 0.05


def test_the_gripper_action_is_off_with_one_line_without_its_messages(
    ros_domain, tmp_path, monkeypatch
):
    """Where the package is installed, an empty one of its name stands before it."""
    (tmp_path / 'hidden' / 'control_msgs').mkdir(parents=True)
    (tmp_path / 'hidden' / 'control_msgs' / '__init__.py').touch()
    monkeypatch.setenv('PYTHONPATH', str(tmp_path / 'hidden'), prepend=os.pathsep)
    cell = cell_of(tmp_path, gripper='gripper_command')
    try:
        assert not cell.change('safety_guard', CONFIGURE)
    finally:
        cell.stop()


def test_an_arm_refuses_simulated_time(ros_domain, tmp_path):
    cell = ArmCell(
        words={'safety_guard': ['-p', 'use_sim_time:=true']},
        suite=write_suite(tmp_path, 40),
        limits_file=write_limits(tmp_path, **PATIENT),
        policy_file=write_reach_policy(tmp_path),
        reward='reach',
    )
    try:
        assert not cell.change('safety_guard', CONFIGURE)
    finally:
        cell.stop()
