"""The guard's output: commands to the arm, and its state and reasons for people."""

import importlib
import math
import time
from typing import Any

import numpy as np
from rclpy.action import ActionClient
from rclpy.serialization import serialize_message
from rclpy.time import Time
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64, UInt64

from lpgftw_interfaces.msg import SafetyState
from lpgftw_ros.deploy.arm.env import ArmSide
from lpgftw_ros.deploy.safety.report import Level, SafetyRefused, SafetyReport
from lpgftw_ros.deploy.safety.watch import SafeCommand
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.graph.parameters import GRIPPER_ACTION, GripperOptions, GuardParameters
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import COMMAND_TOPICS, report_to_msg, safe_command_to_msg
from lpgftw_ros.nodes.lifecycle import LifelongNode

# Output to a gripper: a number on a topic, or an action of control_msgs.


TOPIC = 'gripper_command'


def open_gripper(node: LifelongNode, options: GripperOptions) -> 'TopicGripper | ActionGripper':
    """Open what the options ask for; raises `InvalidConfig` where its messages are missing."""
    if options.gripper == 'topic':
        return TopicGripper(node)
    return ActionGripper(node, options)


class TopicGripper:
    """Sends -1 (open) to 1 (closed) in every period."""

    def __init__(self, node: LifelongNode) -> None:
        self._node = node
        self._publisher = node.create_publisher(Float64, TOPIC, qos.LOCK_STEP)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that no other node may write to."""
        return (str(self._publisher.topic_name),)

    def send(self, value: float) -> None:
        """Publish how far to close the gripper; nothing before the first command."""
        if math.isfinite(value):
            self._publisher.publish(Float64(data=float(value)))

    def close(self) -> None:
        """Close the topic."""
        self._node.destroy_publisher(self._publisher)


class ActionGripper:
    """Sends a goal only when the gripper has to open or close."""

    topics: tuple[str, ...] = ()

    def __init__(self, node: LifelongNode, options: GripperOptions) -> None:
        try:
            actions = importlib.import_module('control_msgs.action')
        except ImportError:
            raise InvalidConfig(
                f'gripper {options.gripper} needs the package control_msgs: install it, '
                'or set gripper to topic'
            ) from None
        self._node, self._options = node, options
        parallel = options.gripper == 'parallel_gripper_command'
        self._kind = actions.ParallelGripperCommand if parallel else actions.GripperCommand
        self._name = options.gripper_name or GRIPPER_ACTION
        self._client = ActionClient(node, self._kind, self._name)
        self._asked: bool | None = None

    def send(self, value: float) -> None:
        """Ask for another state of the gripper; zero changes nothing."""
        if not math.isfinite(value) or value == 0.0:
            return
        closed = value > 0.0
        if closed == self._asked:
            return
        if not self._client.server_is_ready():
            self._node.get_logger().warning(
                f'no gripper answers at {self._name}', throttle_duration_sec=5.0
            )
            return
        self._asked = closed
        self._client.send_goal_async(self._goal(closed))

    def _goal(self, closed: bool) -> Any:
        options, goal = self._options, self._kind.Goal()
        position = options.gripper_closed if closed else options.gripper_open
        if options.gripper == 'parallel_gripper_command':
            goal.command = JointState(
                name=[options.gripper_joint], position=[position], effort=[options.gripper_effort]
            )
        else:
            goal.command.position, goal.command.max_effort = position, options.gripper_effort
        return goal

    def close(self) -> None:
        """Close the action; the gripper finishes a running goal."""
        self._client.destroy()


TELL_PERIOD = 0.5
"""Seconds between two messages of the state; silence means that the guard is gone."""


def require_real_time(node: LifelongNode) -> None:
    """Raise `SafetyRefused` where simulated time would stamp and pace an arm."""
    if node.get_parameter('use_sim_time').value:
        raise SafetyRefused('use_sim_time is on: an arm runs in real time, start without it')


def boot_time() -> float:
    """Return the seconds since this machine started, those it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ArmWriter:
    """The only publisher of commands."""

    def __init__(self, node: LifelongNode, config: GuardParameters, side: ArmSide) -> None:
        self._node, self._config, self._side = node, config, side
        topic, kind = COMMAND_TOPICS[config.interface]
        how = qos.short_lived(side.limits.longest_gap)
        self._command = node.create_publisher(kind, topic, how)
        self._gripper = open_gripper(node, config)
        self._answered = node.create_publisher(UInt64, 'answered_command', qos.LOCK_STEP)
        self._state = node.create_publisher(SafetyState, 'safety_state', qos.LATCHED)
        self._told = ('', -1)
        self._since = (math.nan, Time())

    @property
    def topic(self) -> str:
        """Name of the topic of the arm's commands."""
        return str(self._command.topic_name)

    def require_alone(self) -> None:
        """Raise `SafetyRefused` if another node writes to the arm or its gripper."""
        for topic in (self.topic, *self._gripper.topics):
            if others := int(self._node.count_publishers(topic)) - 1:
                raise SafetyRefused(f'{others} other node(s) write to {topic}')

    def close(self) -> None:
        """Close the topics."""
        self._gripper.close()
        for publisher in (self._command, self._answered, self._state):
            self._node.destroy_publisher(publisher)

    def send(self, command: SafeCommand, request: int, before: float = math.inf) -> bool:
        """Send the arm its command of this period; nothing before the guard was first placed.

        Observers get the number of the request it answers. Returns False and sends nothing after
        `before` (`boot_time`): a process that was stopped since its decision must decide again.
        """
        if not np.isfinite(command.joints).all():
            return True
        if not command.silent:
            message = safe_command_to_msg(
                self._config.interface,
                command,
                self._side.arm.joints,
                self._config.base_frame,
                self._node.get_clock().now().to_msg(),
            )
            ready = serialize_message(message)  # so that little can come between look and send
            if boot_time() > before:
                return False
            self._command.publish(ready)
        self._gripper.send(command.gripper)
        if request >= 0 and self._answered.get_subscription_count():
            self._answered.publish(UInt64(data=request))
        return True

    def tell(self, report: SafetyReport, again: bool = False) -> None:
        """Publish and log the state where it has changed, or publish it `again`."""
        told = (report.code, report.count)
        if told == self._told and not again:
            return
        if report.code != self._told[0]:
            self._log(report)
        self._told = told
        now = self._node.get_clock().now()
        if report.since != self._since[0]:  # one state, one stamp, however often it is told
            ago = max(0.0, time.monotonic() - report.since)
            since = Time(nanoseconds=max(0, now.nanoseconds - int(ago * 1e9)))
            self._since = (report.since, since)
        stamps = now.to_msg(), self._since[1].to_msg()
        message = report_to_msg(report, self._config.run_id, *stamps)
        self._state.publish(message)

    def _log(self, report: SafetyReport) -> None:
        """Log an intervention; limits come and go many times a second."""
        text = f'{report.level.name.lower()}: {report.text}'
        if not math.isnan(report.value):
            text += f' ({report.value:.4g}, limit {report.limit:.4g} {report.unit})'
        if report.level in (Level.STOPPED, Level.LATCHED):
            self._node.get_logger().warning(text)
        elif report.level is Level.LIMITED:
            self._node.get_logger().info(text, throttle_duration_sec=1.0)
