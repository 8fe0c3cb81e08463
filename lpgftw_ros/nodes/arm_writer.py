"""The guard's voice: commands to the arm, and to people what it does and why."""

import math
import time

import numpy as np
from rclpy.time import Time
from std_msgs.msg import Float64, UInt64

from lpgftw_interfaces.msg import SafetyState
from lpgftw_ros.deploy.arm_side import ArmSide
from lpgftw_ros.deploy.safety_report import Level, SafetyRefused, SafetyReport
from lpgftw_ros.deploy.safety_watch import SafeCommand
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.arm_conversions import COMMAND_TOPICS, report_to_msg, safe_command_to_msg
from lpgftw_ros.nodes.arm_parameters import GuardConfig
from lpgftw_ros.nodes.lifecycle import LifelongNode

TELL_PERIOD = 0.5
"""Seconds between two tellings of the state: silence means that the guard is gone."""


class ArmWriter:
    """The only publisher of commands."""

    def __init__(self, node: LifelongNode, config: GuardConfig, side: ArmSide) -> None:
        self._node, self._config, self._side = node, config, side
        topic, kind = COMMAND_TOPICS[config.interface]
        self._command = node.create_publisher(kind, topic, qos.LOCK_STEP)
        self._gripper = node.create_publisher(Float64, 'gripper_command', qos.LOCK_STEP)
        self._answered = node.create_publisher(UInt64, 'answered_command', qos.LOCK_STEP)
        self._state = node.create_publisher(SafetyState, 'safety_state', qos.LATCHED)
        self._told = ('', -1)

    @property
    def topic(self) -> str:
        """Name of the topic the arm obeys."""
        return str(self._command.topic_name)

    def require_alone(self) -> None:
        """Raise `SafetyRefused` if another node writes to the arm or its gripper."""
        for topic in (self.topic, str(self._gripper.topic_name)):
            if others := int(self._node.count_publishers(topic)) - 1:
                raise SafetyRefused(f'{others} other node(s) write to {topic}')

    def close(self) -> None:
        """Close the topics."""
        for publisher in (self._command, self._gripper, self._answered, self._state):
            self._node.destroy_publisher(publisher)

    def send(self, command: SafeCommand, request: int) -> None:
        """Tell the arm what to do in this period; nothing before it was ever placed.

        Whoever listens is told the number of the request it answers.
        """
        if not np.isfinite(command.joints).all():
            return
        message = safe_command_to_msg(
            self._config.interface,
            command,
            self._side.arm.joints,
            self._side.limits.period,
            self._config.base_frame,
            self._node.get_clock().now().to_msg(),
        )
        self._command.publish(message)
        if math.isfinite(command.gripper):
            self._gripper.publish(Float64(data=float(command.gripper)))
        if request >= 0 and self._answered.get_subscription_count():
            self._answered.publish(UInt64(data=request))

    def tell(self, report: SafetyReport, again: bool = False) -> None:
        """Publish and log the state where it has changed, or publish it `again`."""
        told = (report.code, report.count)
        if told == self._told and not again:
            return
        if report.code != self._told[0]:
            self._log(report)
        self._told = told
        ago = max(0.0, time.monotonic() - report.since)
        since = Time(nanoseconds=max(0, self._node.get_clock().now().nanoseconds - int(ago * 1e9)))
        self._state.publish(report_to_msg(report, since.to_msg()))

    def _log(self, report: SafetyReport) -> None:
        """Log an intervention; limits come and go many times a second."""
        text = f'{report.level.name.lower()}: {report.text}'
        if not math.isnan(report.value):
            text += f' ({report.value:.4g}, limit {report.limit:.4g} {report.unit})'
        if report.level in (Level.STOPPED, Level.LATCHED):
            self._node.get_logger().warning(text)
        elif report.level is Level.LIMITED:
            self._node.get_logger().info(text, throttle_duration_sec=1.0)
