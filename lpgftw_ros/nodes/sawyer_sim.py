"""`sawyer_sim`: a joint-level Sawyer in MuJoCo with the topics of a real arm's driver.

The arm moves in real time, whatever the machine does: each command counts from when it was sent,
and a turn that comes late moves the arm as far as it had come by then. Only its reports are late.
"""

import sys
import time
from typing import Any

from geometry_msgs.msg import PoseStamped, TwistStamped
import mujoco
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from lpgftw_ros.deploy.arm.plant import ArmPlant, ArmScene, PlantSettings
from lpgftw_ros.deploy.arm.sawyer import load_arm
from lpgftw_ros.deploy.safety.watch import Reading
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.graph.parameters import SawyerSimParameters
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import COMMAND_TOPICS, seconds_of
from lpgftw_ros.nodes.lifecycle import LifelongNode, OK, STEADY
from lpgftw_ros.nodes.process import run

STEP = 0.01
"""s of simulated time per turn."""
MOST = 0.5
"""s a turn may catch up; a machine that is slower than real time slows the arm down."""
ORDERS = qos.FRAMES
"""Deep enough for every command that comes while the simulator is kept waiting."""


class SawyerSim(LifelongNode):
    """Steps the plant in real time and passes messages."""

    config: SawyerSimParameters
    _plant: ArmPlant

    def __init__(self) -> None:
        super().__init__('sawyer_sim', SawyerSimParameters)
        self._behind = 0.0

    def configure(self) -> None:
        """Build the scene of the task, open topics and services."""
        config, self._arm = self.config, load_arm()
        names = PlantSettings.__dataclass_fields__
        settings = PlantSettings(**{name: getattr(config, name) for name in names})
        scene = ArmScene(load_suite(config.suite).task(config.task), self._arm)
        self._plant = ArmPlant(scene, self._arm, settings, config.seed)
        self._grip, self._behind, self._last = -1.0, 0.0, time.monotonic()
        topic, kind = COMMAND_TOPICS[config.interface]
        self._take = getattr(self, f'_on_{config.interface}')
        self._orders = self.create_subscription(kind, topic, self._on_order, ORDERS)
        self._opened = [
            self._orders,
            self.create_subscription(Float64, 'gripper_command', self._on_grip, qos.LOCK_STEP),
        ]
        self._served = [
            self.create_service(Trigger, '~/reset', self._on_reset),
            self.create_service(Trigger, 'reset_scene', self._on_reset_scene),
        ]
        self._joints = self.create_publisher(JointState, 'joint_states', qos.SENSOR)
        self._object = self.create_publisher(PoseStamped, 'object_pose', qos.SENSOR)
        self._reward = self.create_publisher(Float64, 'reward', qos.SENSOR)
        self._success = self.create_publisher(Bool, 'success', qos.SENSOR)
        self._timer = self.create_timer(STEP, self._turn, clock=STEADY)

    def cleanup(self) -> None:
        """Close topics and services."""
        if not hasattr(self, '_plant'):
            return
        for subscription in self._opened:
            self.destroy_subscription(subscription)
        for service in self._served:
            self.destroy_service(service)
        for publisher in (self._joints, self._object, self._reward, self._success):
            self.destroy_publisher(publisher)
        self.destroy_timer(self._timer)
        del self._plant

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return how far the arm lags behind real time."""
        return OK, 'simulating', {'behind_s': round(self._behind, 3)}

    def _turn(self) -> None:
        if not self.active:
            self._last = time.monotonic()
            return
        with self._orders.handle:
            while taken := self._orders.handle.take_message(self._orders.msg_type, False):
                self._on_order(*taken)
        now = time.monotonic()
        steps = min(round((now - self._last) / STEP), round(MOST / STEP))
        if steps == 0:
            return
        self._behind += max(0.0, now - self._last - MOST)
        self._last = max(self._last + steps * STEP, now - MOST)
        if readings := self._plant.advance(steps * STEP):
            self._publish(readings[-1])  # a driver does not tell again what it measured before

    def _publish(self, reading: Reading) -> None:
        stamp = self.get_clock().now().to_msg()
        joints = JointState(
            name=list(self._arm.joints),
            position=reading.joints.tolist(),
            velocity=reading.velocities.tolist(),
        )
        joints.header.stamp = stamp
        self._joints.publish(joints)
        pose = PoseStamped()
        pose.header.stamp, pose.header.frame_id = stamp, self.config.base_frame
        p = pose.pose.position
        p.x, p.y, p.z = reading.object.tolist()
        self._object.publish(pose)
        if not self._reward.get_subscription_count():
            return
        reward, solved = self._plant.scene.judge(np.zeros(4))
        self._reward.publish(Float64(data=reward))
        self._success.publish(Bool(data=solved))

    def _on_grip(self, message: Float64) -> None:
        self._grip = message.data

    def _on_order(self, message: Any, info: dict[str, int]) -> None:
        """Obey a command from the moment it was sent."""
        ago = max(0.0, time.time() - 1e-9 * info['source_timestamp'])
        self._take(message, time.monotonic() - ago - self._last, ago)

    def _on_velocity(self, message: Float64MultiArray, ahead: float, ago: float) -> None:
        if len(message.data) == len(self._arm.joints):
            self._plant.command(np.array(message.data), self._grip, ahead)

    def _on_trajectory(self, message: JointTrajectory, ahead: float, ago: float) -> None:
        if not message.points or tuple(message.joint_names) != self._arm.joints:
            return
        point = message.points[-1]
        seconds = point.time_from_start.sec + 1e-9 * point.time_from_start.nanosec
        self._plant.follow(np.array(point.positions), seconds, self._grip, ahead)

    def _on_twist(self, message: TwistStamped, ahead: float, ago: float) -> None:
        """Do what MoveIt Servo does: hand velocity to joint velocities, damped; nothing old."""
        stamp = message.header.stamp
        sent = self.get_clock().now().nanoseconds * 1e-9 - ago
        if sent - (seconds_of(stamp) or 0.0) > self.config.command_timeout:
            return
        scene, n = self._plant.scene, len(self._arm.joints)
        jacobian = np.empty((6, scene.model.nv))
        hand = scene.model.body(self._arm.hand).id
        mujoco.mj_jacBody(scene.model, scene.data, jacobian[:3], jacobian[3:], hand)
        v, w = message.twist.linear, message.twist.angular
        wanted, own = np.array([v.x, v.y, v.z, w.x, w.y, w.z]), jacobian[:, :n]
        damped = own @ own.T + 1e-4 * np.eye(6)
        self._plant.command(own.T @ np.linalg.solve(damped, wanted), self._grip, ahead)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Put arm and objects back at once; an active guard stops because of the jump."""
        self._plant.reset(self.config.seed)
        response.success, response.message = True, 'arm and objects are where they began'
        return response

    def _on_reset_scene(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        """Put the objects back; the arm stays."""
        self._plant.reset_objects()
        response.success, response.message = True, 'the objects are where they began'
        return response


def main() -> None:
    """Run the node."""
    sys.exit(run([SawyerSim]))


if __name__ == '__main__':
    main()
