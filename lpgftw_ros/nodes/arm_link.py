"""The ROS end of an arm environment: topics in, commands out.

Callbacks run on the executor, `ArmEnv` in a thread of its own. They share a few attributes that
are only replaced as a whole.
"""

import threading
import time
from typing import Any

from geometry_msgs.msg import PoseStamped
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64
from std_srvs.srv import Trigger

from lpgftw_interfaces import msg
from lpgftw_ros.deploy.arm.env import ArmSide, ArmStopped
from lpgftw_ros.deploy.observation import ArmReward
from lpgftw_ros.deploy.safety.limits import LATENESS
from lpgftw_ros.deploy.safety.watch import ArmCommand, Reading
from lpgftw_ros.graph.admission import RolloutKey
from lpgftw_ros.graph.parameters import ArmBridgeParameters
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.arm_writer import TELL_PERIOD
from lpgftw_ros.nodes.conversions import (
    arm_command_to_msg,
    joints_in_order,
    key_to_msg,
    object_position,
)
from lpgftw_ros.nodes.lifecycle import LifelongNode

RESET_TIME = 10.0  # s for a reset service to answer
GUARD_SILENCE = 3.0 * TELL_PERIOD
"""Seconds without a message of the guard until it counts as gone."""
LOOK_PERIOD = 0.01
"""Seconds between two checks whether the arm must be held."""
LATE = 0.5 * LATENESS
"""Seconds the next step of a rollout may be late before the arm is held instead."""


class RosLink:
    """An arm behind `safety_guard`, seen from the bridge."""

    def __init__(
        self,
        node: LifelongNode,
        config: ArmBridgeParameters,
        side: ArmSide,
        reward: ArmReward | None,
    ) -> None:
        self._node, self._config, self._side, self._reward = node, config, side, reward
        self._joints: tuple[float, Array] | None = None
        self._object: tuple[float, Array] | None = None
        self._paid: tuple[float, float] = (-np.inf, 0.0)
        self._solved, self._state = False, msg.SafetyState(level=msg.SafetyState.INACTIVE)
        self._heard, self._sequence, self._sending = -np.inf, 0, threading.Lock()
        self._fresh_episode = True
        self._reset: _Reset | None = None
        self.stopped = threading.Event()
        """Set when the running rollout is abandoned."""
        self._commands = node.create_publisher(msg.ArmCommand, 'arm_command', qos.LOCK_STEP)
        self._subscriptions = [
            node.create_subscription(JointState, 'joint_states', self._on_joints, qos.MEASUREMENT),
            node.create_subscription(PoseStamped, 'object_pose', self._on_object, qos.MEASUREMENT),
            node.create_subscription(msg.SafetyState, 'safety_state', self._on_state, qos.LATCHED),
        ]
        if config.reward == 'topic':
            self._subscriptions += [
                node.create_subscription(Float64, 'reward', self._on_reward, qos.SENSOR),
                node.create_subscription(Bool, 'success', self._on_success, qos.SENSOR),
            ]
        self._reset_client = node.create_client(Trigger, 'reset_scene')
        self._operator = node.create_service(Trigger, '~/reset_done', self._on_reset_done)
        self._at_rest = RolloutKey(node.config.run_id, config.task, 0, 0, False)
        self.rollout = (self._at_rest, 0)
        """Rollout and step, for the record in each command."""
        self.measured = 0
        """Stamp of the newest joints, ns; for the record, never for time-outs."""
        self.due = -np.inf
        """When the next command to the guard is due."""

    def close(self) -> None:
        """Close topics and services; a waiting rollout ends."""
        self.stopped.set()
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._node.destroy_publisher(self._commands)
        self._node.destroy_client(self._reset_client)
        self._node.destroy_service(self._operator)

    # The interface of `ArmEnv`.

    def now(self) -> float:
        """Return the steady time."""
        return time.monotonic()

    def begin(self, stream: np.random.Generator) -> None:
        """Wait until the guard lets the arm move."""
        while problem := self.problem():
            self._node.get_logger().warning(
                f'waiting: {problem}; activate or reset the guard when it is safe',
                throttle_duration_sec=10.0,
            )
            self.wait(self.now() + 0.1)
        self._fresh_episode = True

    def reset_scene(self) -> None:
        """Get the objects put back, by a service or by a person."""
        if self._config.reset != 'none':
            reset = self._reset = _Reset()
            try:
                self._await_reset(reset)
            finally:
                self._reset = None
            time.sleep(0.1)  # measurements of the new scene are on their way
            self._object = None
        self._solved = False

    def _await_reset(self, reset: '_Reset') -> None:
        patience = np.inf
        if self._config.reset == 'operator':
            self._node.get_logger().warning('put the objects back, then call ~/reset_done')
        else:
            if not self._reset_client.service_is_ready():
                raise ArmStopped('there is no service reset_scene; set reset to operator')
            self._node.executor.create_task(lambda: self._call_reset(reset))
            patience = self.now() + RESET_TIME
        while not reset.done.wait(0.1):
            self._check_stopped()
            if self.now() > patience:
                raise ArmStopped('the service reset_scene did not answer')
        if reset.problem:
            raise ArmStopped(f'the service reset_scene failed: {reset.problem}')

    def hold(self, command: ArmCommand) -> None:
        """Publish a command that belongs to no rollout."""
        self._publish(command, (self._at_rest, 0), self._side.control.period - LOOK_PERIOD)

    def send(self, command: ArmCommand) -> None:
        """Publish a command of the running rollout."""
        self._publish(command, self.rollout, self._side.control.period + LATE)

    def _publish(self, command: ArmCommand, rollout: tuple[RolloutKey, int], lasts: float) -> None:
        """Publish a command; its number follows the order of sending in all threads."""
        stamp = self._node.get_clock().now().to_msg()
        config = self._config
        message = arm_command_to_msg(command, self._side.arm.joints, config.base_frame, stamp)
        message.key, message.step = key_to_msg(rollout[0]), rollout[1]
        with self._sending:
            self._sequence += 1
            message.sequence, self.due = self._sequence, self.now() + lasts
            self._commands.publish(message)

    def wait(self, until: float) -> None:
        """Sleep; raise `ArmStopped` if the rollout is abandoned meanwhile."""
        self.stopped.wait(max(0.0, until - self.now()))
        self._check_stopped()

    def joints(self) -> Array | None:
        """Return the newest joints, if they are not too old."""
        return self._fresh(self._joints, self._side.limits.joints_timeout)

    def reading(self) -> Reading | None:
        """Return the newest joints and object, if neither is too old."""
        joints = self.joints()
        target = self._fresh(self._object, self._side.limits.object_timeout)
        if joints is None or target is None:
            return None
        return Reading(joints, np.zeros(len(joints)), target)

    def problem(self) -> str:
        """Return why the guard holds the arm."""
        level = self._state.level
        if self.now() - self._heard > GUARD_SILENCE:
            return 'the safety guard is not heard'
        if level in (msg.SafetyState.LATCHED, msg.SafetyState.INACTIVE):
            return str(self._state.text)
        return ''

    def judge(self, action: Array, hand: Array, target: Array) -> tuple[float, bool]:
        """Return reward and success of the built-in function, or those of the topics."""
        if self._reward is not None:
            if self._fresh_episode:
                self._reward.reset(hand, target)
                self._fresh_episode = False
            return self._reward.judge(hand, target)
        if self._config.reward != 'topic':
            return 0.0, False
        if self.now() - self._paid[0] > self._side.limits.object_timeout:
            raise ArmStopped('no fresh message on the topic reward')
        return self._paid[1], self._solved

    def _fresh(self, seen: tuple[float, Array] | None, timeout: float) -> Array | None:
        return None if seen is None or self.now() - seen[0] > timeout else seen[1]

    def _check_stopped(self) -> None:
        if self.stopped.is_set():
            raise ArmStopped('the rollout was given up')

    # Callbacks, on the executor.

    def _call_reset(self, reset: '_Reset') -> None:
        asked = self._reset_client.call_async(Trigger.Request())
        asked.add_done_callback(lambda future: reset.end(future.result()))

    def _on_reset_done(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        reset = self._reset
        if reset is None or self._config.reset != 'operator':
            response.message = 'nobody waits for it'
        else:
            reset.done.set()
            response.success, response.message = True, 'going on'
        return response

    def _on_joints(self, message: JointState) -> None:
        joints = joints_in_order(message, self._side.arm.joints)
        if np.isfinite(joints).all():
            self._joints = (self.now(), joints)
            stamp = message.header.stamp
            self.measured = stamp.sec * 1_000_000_000 + stamp.nanosec

    def _on_object(self, message: PoseStamped) -> None:
        position = object_position(message)
        if message.header.frame_id == self._config.base_frame and np.isfinite(position).all():
            self._object = (self.now(), position)

    def _on_reward(self, message: Float64) -> None:
        if np.isfinite(message.data):
            self._paid = (self.now(), message.data)

    def _on_success(self, message: Bool) -> None:
        self._solved = message.data

    def _on_state(self, message: Any) -> None:
        if self._node.is_ours(message.run_id, 'safety_state'):
            self._state, self._heard = message, self.now()


class _Reset:
    """One time the objects are put back."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.problem = ''

    def end(self, answer: Trigger.Response) -> None:
        """Take the answer of the service."""
        if not answer.success:
            self.problem = answer.message or 'it gives no reason'
        self.done.set()
