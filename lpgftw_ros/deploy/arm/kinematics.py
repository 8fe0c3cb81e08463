"""Forward kinematics of the hand, and joint velocities for a hand velocity.

Forward kinematics runs on the bare chain of the arm, so that one configuration costs a few
microseconds. Inverse kinematics is differential: mink poses one quadratic programme per control
step, daqp solves it, and the joints' position, velocity and acceleration limits are its bounds.
"""

from dataclasses import dataclass
from itertools import product
import math
from typing import Any

import mink
import mujoco
import numpy as np

from lpgftw_ros.deploy.arm.sawyer import ArmDescription
from lpgftw_ros.errors import InvalidConfig, WrongShape
from lpgftw_ros.learning.arrays import Array, require_finite

_DAMPING = 1e-4


@dataclass(frozen=True, slots=True)
class HandPose:
    """Pose of the hand body in the arm's base frame."""

    position: Array
    """Shape (3,)."""
    rotation: Array
    """Rotation matrix. Shape (3, 3)."""


class ArmKinematics:
    """Forward kinematics of the bare chain."""

    def __init__(self, model: mujoco.MjModel, arm: ArmDescription) -> None:
        if model.nq != len(arm.joints) or model.nv != len(arm.joints):
            raise WrongShape(f'the model has {model.nq} coordinates for {len(arm.joints)} joints')
        names = tuple(model.joint(i).name for i in range(model.njnt))
        if names != arm.joints:
            raise WrongShape(f'the model has the joints {names}, expected {arm.joints}')
        if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, arm.hand) < 0:
            raise InvalidConfig(f"the model has no body '{arm.hand}', the hand of the arm")
        self.arm, self.model = arm, model
        self._data = mujoco.MjData(model)
        self._hand = model.body(arm.hand).id
        # Views into MuJoCo's memory: reading them after mj_kinematics costs no look-up.
        self._qpos = self._data.qpos
        self._position = self._data.xpos[self._hand]
        self._rotation = self._data.xmat[self._hand].reshape(3, 3)
        self._jams = np.array(list(product((0.0, 1.0), repeat=model.nv))).T  # (j, 2^j)

    def pose(self, joints: Array) -> HandPose:
        """Return the pose of the hand."""
        self._qpos[:] = joints
        mujoco.mj_kinematics(self.model, self._data)
        return HandPose(self._position.copy(), self._rotation.copy())

    def path(self, joints: Array) -> tuple[Array, Array]:
        """Return hand positions (n, 3) and tool directions (n, 3) along joints (n, j)."""
        positions, rotations = np.empty((len(joints), 3)), np.empty((len(joints), 3, 3))
        qpos, position, rotation = self._qpos, self._position, self._rotation
        model, data, forward = self.model, self._data, mujoco.mj_kinematics
        for i, q in enumerate(joints):
            qpos[:] = q
            forward(model, data)
            positions[i] = position
            rotations[i] = rotation
        return positions, rotations @ self.arm.tool_axis

    def jacobian(self, joints: Array) -> Array:
        """Return the derivative of hand position and rotation by the joints. Shape (6, j)."""
        self._qpos[:] = joints
        mujoco.mj_kinematics(self.model, self._data)
        mujoco.mj_comPos(self.model, self._data)
        jacobian = np.empty((6, self.model.nv))
        mujoco.mj_jacBody(self.model, self._data, jacobian[:3], jacobian[3:], self._hand)
        return jacobian

    def jam_speed(self, joints: Array, velocity: Array) -> float:
        """Return how fast the hand is at most if some joints jam and the others go on, m/s.

        In most motions the joints take back part of what others do, so it may be much faster
        than what was meant.
        """
        parts = self.jacobian(joints)[:3] * velocity  # (3, j)
        return math.sqrt(np.square(parts @ self._jams).sum(axis=0).max())

    def least_velocity(self, joints: Array, hand_velocity: Array) -> Array:
        """Return the smallest joint velocities that move the hand so, not turning it.

        What an arm that takes twists is expected to choose, as MoveIt Servo does. Shape (j,).
        """
        jacobian = self.jacobian(joints)
        damped = jacobian @ jacobian.T + _DAMPING * np.eye(6)
        twist = np.concatenate([hand_velocity, np.zeros(3)])
        return np.asarray(jacobian.T @ np.linalg.solve(damped, twist))


def velocity_bounds(
    arm: ArmDescription, joints: Array, velocity: Array, dt: float, margin: float, scale: float
) -> tuple[Array, Array]:
    r"""Return the lowest and highest joint velocities allowed for the next dt seconds.

    In steps of dt a joint at v needs at most :math:`v^2/2a + v\,dt/2 + a\,dt^2/8` to stop. With d
    the distance left to its limit less the last term, :math:`v \le \sqrt{(a\,dt/2)^2 + 2 a d} -
    a\,dt/2`; beside it :math:`|v| \le v_{max}` and :math:`|v - v_{old}| \le a\,dt`. Where they
    cannot all hold, acceleration wins: the joint brakes as hard as it may.
    """
    a, limit = arm.joint_acceleration, scale * arm.joint_velocity
    half = 0.5 * a * dt
    kept = margin + 0.25 * half * dt
    below = np.maximum(joints - arm.joint_low - kept, 0.0)
    above = np.maximum(arm.joint_high - joints - kept, 0.0)
    to_low = np.sqrt(half**2 + 2.0 * a * below) - half
    to_high = np.sqrt(half**2 + 2.0 * a * above) - half
    low, high = -np.minimum(limit, to_low), np.minimum(limit, to_high)
    slowest, fastest = velocity - a * dt, velocity + a * dt
    return np.clip(low, slowest, fastest), np.clip(high, slowest, fastest)


class _VelocityBox(mink.Limit):  # type: ignore[misc]
    """low dt <= delta q <= high dt, set before each solve."""

    def __init__(self, n_joints: int) -> None:
        self.low: Array = np.zeros(n_joints)
        self.high: Array = np.zeros(n_joints)
        self._sides = np.vstack([np.eye(n_joints), -np.eye(n_joints)])

    def compute_qp_inequalities(self, configuration: Any, dt: float) -> mink.Constraint:
        """Return the bounds as G delta q <= h."""
        return mink.Constraint(G=self._sides, h=np.hstack([self.high, -self.low]) * dt)


class DifferentialIK:
    """From a hand velocity to joint velocities, at fixed orientation."""

    def __init__(
        self,
        kinematics: ArmKinematics,
        rotation: Array,
        posture: Array,
        margin: float,
        velocity_scale: float,
    ) -> None:
        """Hold `rotation` (3, 3); among equivalent motions prefer joints near `posture`."""
        self._kinematics, self._margin, self._scale = kinematics, margin, velocity_scale
        self._configuration = mink.Configuration(kinematics.model)
        self._rotation = mink.SO3.from_matrix(rotation)
        self._hand = mink.FrameTask(
            kinematics.arm.hand, 'body', position_cost=1.0, orientation_cost=0.3, lm_damping=1e-4
        )
        self._posture = mink.PostureTask(kinematics.model, cost=1e-3, gain=0.05)
        self._posture.set_target(posture)
        self._box = _VelocityBox(kinematics.model.nv)

    def solve(self, joints: Array, velocity: Array, hand_velocity: Array, dt: float) -> Array:
        """Return joint velocities for the next dt seconds.

        Args:
            joints: Where the arm is. Shape (j,).
            velocity: Joint velocities now, which the acceleration limit starts from. Shape (j,).
            hand_velocity: What the hand should do. Shape (3,).
            dt: Time until the next solve.
        """
        for name, value in (('joints', joints), ('velocity', velocity), ('hand', hand_velocity)):
            require_finite(name, value)
        self._configuration.update(joints)
        position = self._kinematics.pose(joints).position
        self._hand.set_target(
            mink.SE3.from_rotation_and_translation(self._rotation, position + hand_velocity * dt)
        )
        self._box.low, self._box.high = velocity_bounds(
            self._kinematics.arm, joints, velocity, dt, self._margin, self._scale
        )
        try:
            solution: Array = mink.solve_ik(
                self._configuration,
                [self._hand, self._posture],
                dt,
                'daqp',
                damping=1e-6,
                limits=[self._box],
            )
        except mink.NoSolutionFound:
            solution = np.zeros(len(joints))
        return np.clip(solution, self._box.low, self._box.high)
