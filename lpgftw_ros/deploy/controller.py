"""The arm side of one control step: measurements to observation, action to command.

The controller keeps its own estimate of the joints: it integrates its commands and is drawn
towards the measurements, so that measurement noise does not shake the arm through the inverse
kinematics.
"""

import threading

import numpy as np

from lpgftw_ros.deploy.arm.kinematics import ArmKinematics, DifferentialIK
from lpgftw_ros.deploy.observation import (
    ControlSettings,
    Frame,
    Gripper,
    hand_velocity,
    observation,
)
from lpgftw_ros.deploy.safety.limits import SafetyLimits
from lpgftw_ros.deploy.safety.watch import ArmCommand
from lpgftw_ros.learning.arrays import Array

TOOL_DOWN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
"""Rotation of Meta-World's hand body, training frame."""
_ANCHOR = 0.25
"""Share of the difference to the measured joints that is corrected per control step."""
_INSET = 0.005
"""m. The controller turns back this far inside the guard's box, so that the guard need not act."""
_SHARE = 0.95
"""Share of the guard's speed and acceleration limits the controller uses."""


class ArmController:
    """One arm, one policy."""

    def __init__(
        self,
        kinematics: ArmKinematics,
        limits: SafetyLimits,
        frame: Frame,
        settings: ControlSettings,
        policy_hash: str,
    ) -> None:
        self.frame, self.settings, self._limits = frame, settings, limits
        self._kinematics, self.policy_hash = kinematics, policy_hash
        self._gripper = Gripper(settings.gripper_threshold)
        self._sequence = 0
        # One thread of a bridge moves the arm, another one holds it, and a kinematic model has one
        # workspace.
        self._lock = threading.RLock()
        self._ik: DifferentialIK | None = None
        self.start(0.5 * (kinematics.arm.joint_low + kinematics.arm.joint_high))

    def start(self, joints: Array) -> None:
        """Begin an episode from these measured joints, which are also the preferred posture."""
        rotation = self.frame.rotation @ TOOL_DOWN
        margin = self._limits.joint_margin + 0.02
        scale = _SHARE * self._limits.joint_velocity_scale
        with self._lock:
            self._ik = DifferentialIK(self._kinematics, rotation, joints, margin, scale)
            self._joints: Array = joints.copy()
            self._velocity: Array = np.zeros(len(joints))
            self._hand_velocity: Array = np.zeros(3)
            self._gripper.reset()

    def observe(self, joints: Array, target: Array) -> Array:
        """Return what the policy sees of measured joints and object position. Shape (6,)."""
        return observation(self.frame, self.hand_in_base(joints), target)

    def hand_in_base(self, joints: Array) -> Array:
        """Return the hand position, arm base frame. Shape (3,)."""
        with self._lock:
            return self._kinematics.pose(joints).position

    def command(self, action: Array, measured: Array) -> ArmCommand:
        """Return the motion an action asks for, from where the arm is."""
        wanted = hand_velocity(self.frame, self.settings, action)
        return self._send(wanted, self._gripper.decide(float(action[3])), measured)

    def approach(self, target: Array, measured: Array) -> ArmCommand:
        """Return the motion towards a hand position of the arm base frame, gripper open."""
        gap = target - self.hand_in_base(measured)
        self._gripper.reset()
        speed = min(self.settings.full_speed, 2.0 * float(np.linalg.norm(gap)))
        return self._send(_shortened(gap * 1e3, speed), self._gripper.value, measured)

    def hold(self, measured: Array) -> ArmCommand:
        """Return the command that keeps the arm where it is, once it has slowed down.

        Then nothing is corrected, so that the errors of a held arm do not add up.
        """
        with self._lock:
            if self._hand_velocity.any():
                return self._solved(np.zeros(3), self._gripper.value, measured)
            self._joints, self._velocity = measured.copy(), np.zeros(len(measured))
            return self._next_command(measured, self._gripper.value)

    def _send(self, wanted: Array, gripper: float, measured: Array) -> ArmCommand:
        with self._lock:
            return self._solved(wanted, gripper, measured)

    def _solved(self, wanted: Array, gripper: float, measured: Array) -> ArmCommand:
        assert self._ik is not None
        dt = self.settings.period
        self._joints = self._joints + _ANCHOR * (measured - self._joints)
        self._hand_velocity = self._shaped(wanted)
        joints = self._joints
        self._velocity = self._ik.solve(joints, self._velocity, self._hand_velocity, dt)
        most = _SHARE * self._limits.jam_factor * self._limits.max_speed
        if (fast := self._kinematics.jam_speed(joints, self._velocity)) > most:
            share = most / fast
            self._velocity, self._hand_velocity = (
                share * self._velocity,
                share * self._hand_velocity,
            )
        self._joints = joints + self._velocity * dt
        return self._next_command(joints, gripper)

    def _next_command(self, joints: Array, gripper: float) -> ArmCommand:
        self._sequence += 1
        return ArmCommand(
            sequence=self._sequence,
            policy_hash=self.policy_hash,
            joint_positions=joints,
            joint_velocities=self._velocity,
            hand_velocity=self._hand_velocity,
            gripper=gripper,
            valid_for=self._limits.action_timeout,
        )

    def _shaped(self, wanted: Array) -> Array:
        """Limit a hand velocity to the guard's box, speed and acceleration."""
        limits, dt = self._limits, self.settings.period
        hand = self._kinematics.pose(self._joints).position
        time = dt + limits.stop_time
        slowest = np.minimum(0.0, (limits.box_low + _INSET - hand) / time)
        fastest = np.maximum(0.0, (limits.box_high - _INSET - hand) / time)
        wanted = np.clip(wanted, slowest, fastest)
        wanted = _shortened(wanted, _SHARE * limits.max_speed)
        change = _shortened(wanted - self._hand_velocity, _SHARE * limits.max_acceleration * dt)
        return self._hand_velocity + change


def _shortened(vector: Array, length: float) -> Array:
    """Return the vector, shortened to this length if it is longer."""
    size = float(np.linalg.norm(vector))
    return vector * (length / size) if size > length else vector
