"""Arm messages to the deploy library's objects and back."""

from typing import Any

from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import PoseStamped, TwistStamped, Vector3
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from lpgftw_interfaces import msg
from lpgftw_ros.deploy.contract import PolicyContract
from lpgftw_ros.deploy.safety_report import SafetyReport
from lpgftw_ros.deploy.safety_watch import ArmCommand, SafeCommand
from lpgftw_ros.learning.arrays import Array

COMMAND_TOPICS = {
    'velocity': ('joint_velocity_command', Float64MultiArray),
    'trajectory': ('joint_trajectory', JointTrajectory),
    'twist': ('twist_command', TwistStamped),
}
"""What the arm takes, by interface: topic and type."""


def joints_in_order(message: JointState, joints: tuple[str, ...]) -> Array:
    """Return the positions of these joints; not a number where one is missing."""
    found = dict(zip(message.name, message.position, strict=False))
    return np.array([found.get(name, np.nan) for name in joints])


def object_position(message: PoseStamped, frame: str) -> Array:
    """Return the position; not a number where it is told in another frame than the arm's base."""
    if message.header.frame_id not in ('', frame):
        return np.full(3, np.nan)
    p = message.pose.position
    return np.array([p.x, p.y, p.z])


def arm_command_to_msg(
    command: ArmCommand, joints: tuple[str, ...], frame: str, stamp: Time
) -> msg.ArmCommand:
    """Return the message of a command; the rollout's own fields are the caller's."""
    message = msg.ArmCommand(
        sequence=command.sequence,
        policy_hash=command.policy_hash,
        linear_velocity=_vector(command.hand_velocity),
        joint_names=list(joints),
        joint_positions=command.joint_positions.tolist(),
        joint_velocities=command.joint_velocities.tolist(),
        gripper=float(command.gripper),
        valid_for=float(command.valid_for),
    )
    message.header.frame_id, message.header.stamp = frame, stamp
    return message


def arm_command_from_msg(message: msg.ArmCommand, joints: tuple[str, ...]) -> ArmCommand:
    """Return the command of a message, joints in our order; the guard checks the numbers."""
    v = message.linear_velocity
    return ArmCommand(
        sequence=message.sequence,
        policy_hash=message.policy_hash,
        joint_positions=_ordered(message.joint_names, message.joint_positions, joints),
        joint_velocities=_ordered(message.joint_names, message.joint_velocities, joints),
        hand_velocity=np.array([v.x, v.y, v.z]),
        gripper=message.gripper,
        valid_for=message.valid_for,
    )


def safe_command_to_msg(
    interface: str,
    command: SafeCommand,
    joints: tuple[str, ...],
    period: float,
    frame: str,
    stamp: Time,
) -> Any:
    """Return the message of what the arm is told, in the type of its interface."""
    if interface == 'velocity':
        return Float64MultiArray(data=command.joint_velocities.tolist())
    if interface == 'trajectory':
        point = JointTrajectoryPoint(
            positions=command.joints.tolist(),
            velocities=command.joint_velocities.tolist(),
            time_from_start=Duration(nanosec=int(period * 1e9)),
        )
        return JointTrajectory(joint_names=list(joints), points=[point])
    twist = TwistStamped()
    twist.header.frame_id, twist.header.stamp = frame, stamp
    twist.twist.linear = _vector(command.hand_velocity)
    return twist


def report_to_msg(report: SafetyReport, since: Time) -> msg.SafetyState:
    """Return the message of the guard's state."""
    return msg.SafetyState(
        level=int(report.level),
        code=report.code,
        text=report.text,
        value=float(report.value),
        limit=float(report.limit),
        unit=report.unit,
        since=since,
        count=report.count,
    )


def contract_from_msg(message: msg.PolicyContract) -> PolicyContract:
    """Return the contract of a message."""
    names = PolicyContract.__dataclass_fields__
    return PolicyContract(**{name: getattr(message, name) for name in names})


def _vector(values: Array) -> Vector3:
    return Vector3(x=float(values[0]), y=float(values[1]), z=float(values[2]))


def _ordered(names: Any, values: Any, joints: tuple[str, ...]) -> Array:
    found = dict(zip(names, values, strict=False))
    return np.array([found.get(name, np.nan) for name in joints])
