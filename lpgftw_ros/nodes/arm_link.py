"""The ROS end of an arm environment: topics in, commands out, waiting in the rollout's thread.

Callbacks run on the executor, `ArmEnv` in a thread of its own; they meet at a few attributes
that are replaced as a whole.
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
from lpgftw_ros.deploy.arm_env import ArmStopped
from lpgftw_ros.deploy.arm_side import ArmSide
from lpgftw_ros.deploy.rewards import ArmReward
from lpgftw_ros.deploy.safety_watch import ArmCommand, Reading
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.arm_conversions import arm_command_to_msg, joints_in_order
from lpgftw_ros.nodes.arm_parameters import ArmBridgeConfig
from lpgftw_ros.nodes.lifecycle import LifelongNode

RESET_TIME = 10.0  # s for a reset service to answer


class RosLink:
    """An arm behind `safety_guard`, seen from the bridge."""

    def __init__(
        self,
        node: LifelongNode,
        config: ArmBridgeConfig,
        side: ArmSide,
        reward: ArmReward | None,
    ) -> None:
        self._node, self._config, self._side, self._reward = node, config, side, reward
        self._joints: tuple[float, Array] | None = None
        self._object: tuple[float, Array] | None = None
        self._paid: tuple[float, float] = (-np.inf, 0.0)
        self._solved, self._state = False, msg.SafetyState(level=msg.SafetyState.INACTIVE)
        self._fresh_episode, self._done = True, threading.Event()
        self.stopped = threading.Event()
        """Set when the running rollout is given up."""
        self._commands = node.create_publisher(msg.ArmCommand, 'arm_command', qos.LOCK_STEP)
        self._subscriptions = [
            node.create_subscription(JointState, 'joint_states', self._on_joints, qos.SENSOR),
            node.create_subscription(PoseStamped, 'object_pose', self._on_object, qos.SENSOR),
            node.create_subscription(msg.SafetyState, 'safety_state', self._on_state, qos.LATCHED),
        ]
        if config.reward == 'topic':
            self._subscriptions += [
                node.create_subscription(Float64, 'reward', self._on_reward, qos.SENSOR),
                node.create_subscription(Bool, 'success', self._on_success, qos.SENSOR),
            ]
        self._reset_client = node.create_client(Trigger, 'reset_scene')
        self._operator = node.create_service(Trigger, '~/reset_done', self._on_reset_done)
        self.rollout = (0, 0)
        """Rollout id and step, for the record in each command."""
        self.sent = -np.inf
        """When the last command was sent."""

    def close(self) -> None:
        """Close topics and services; a waiting rollout ends."""
        self.stopped.set()
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._node.destroy_publisher(self._commands)
        self._node.destroy_client(self._reset_client)
        self._node.destroy_service(self._operator)

    # What `ArmEnv` asks for.

    def now(self) -> float:
        """Return the steady time."""
        return time.monotonic()

    def begin(self, stream: np.random.Generator) -> None:
        """Wait until the guard lets the arm move."""
        while problem := self.problem():
            self._node.get_logger().warning(
                f'waiting: {problem}; reset the guard when it is safe', throttle_duration_sec=10.0
            )
            self.wait(self.now() + 0.1)
        self._fresh_episode = True

    def reset_scene(self) -> None:
        """Have the objects put back, by a service or by a person."""
        how = self._config.reset
        if how == 'none':
            return
        self._done.clear()
        patience = np.inf
        if how == 'operator':
            self._node.get_logger().warning('put the objects back, then call ~/reset_done')
        else:
            if not self._reset_client.service_is_ready():
                raise ArmStopped('there is no service reset_scene; set reset to operator')
            self._node.executor.create_task(self._call_reset)
            patience = self.now() + RESET_TIME
        while not self._done.wait(0.1):
            self._check_stopped()
            if self.now() > patience:
                raise ArmStopped('the service reset_scene did not answer')
        time.sleep(0.1)  # measurements of the new scene are on their way
        self._joints = self._object = None

    def send(self, command: ArmCommand) -> None:
        """Publish a command."""
        stamp = self._node.get_clock().now().to_msg()
        config = self._config
        message = arm_command_to_msg(command, self._side.arm.joints, config.base_frame, stamp)
        message.task, (message.rollout_id, message.step) = config.task, self.rollout
        self.sent = self.now()
        self._commands.publish(message)

    def wait(self, until: float) -> None:
        """Sleep; raise `ArmStopped` when the rollout is given up meanwhile."""
        self.stopped.wait(max(0.0, until - self.now()))
        self._check_stopped()

    def reading(self) -> Reading | None:
        """Return the newest joints and object, if neither is too old."""
        joints, target, now = self._joints, self._object, self.now()
        limits = self._side.limits
        if joints is None or now - joints[0] > limits.joints_timeout:
            return None
        if target is None or now - target[0] > limits.object_timeout:
            return None
        return Reading(joints[1], np.zeros(len(joints[1])), target[1])

    def problem(self) -> str:
        """Return why the guard holds the arm."""
        level = self._state.level
        if level in (msg.SafetyState.LATCHED, msg.SafetyState.INACTIVE):
            return self._state.text or 'the safety guard is not heard'
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

    def _check_stopped(self) -> None:
        if self.stopped.is_set():
            raise ArmStopped('the rollout was given up')

    # Callbacks, on the executor.

    def _call_reset(self) -> None:
        self._reset_client.call_async(Trigger.Request()).add_done_callback(
            lambda future: self._done.set()
        )

    def _on_reset_done(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        self._done.set()
        response.success, response.message = True, 'going on'
        return response

    def _on_joints(self, message: JointState) -> None:
        joints = joints_in_order(message, self._side.arm.joints)
        if np.isfinite(joints).all():
            self._joints = (self.now(), joints)

    def _on_object(self, message: PoseStamped) -> None:
        p = message.pose.position
        position = np.array([p.x, p.y, p.z])
        if np.isfinite(position).all():
            self._object = (self.now(), position)

    def _on_reward(self, message: Float64) -> None:
        if np.isfinite(message.data):
            self._paid = (self.now(), message.data)

    def _on_success(self, message: Bool) -> None:
        self._solved = message.data

    def _on_state(self, message: Any) -> None:
        self._state = message
