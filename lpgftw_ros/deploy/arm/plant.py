"""A joint-level Sawyer at a Meta-World task, with the interface of a real arm's driver.

The scene (placements, reward, success) is the one the mocap simulator uses; only the arm differs.

Commands arrive late. Joint states and object poses go out at a fixed rate: late, noisy, some are
lost. Without fresh commands the driver holds the joints where they are.
"""

from collections import deque
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from lpgftw_ros.deploy.arm.sawyer import ArmDescription, joint_level_model
from lpgftw_ros.deploy.safety.watch import Reading
from lpgftw_ros.domains.metaworld.engine import engine
from lpgftw_ros.domains.metaworld.settings import MetaWorldSettings
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.errors import InvalidConfig, SimulationFailed
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.config import check_settings, setting

STIFFNESS = 25.0
"""Servo gain per unit of effort limit, 1/rad: full effort at 2.3 degrees of error."""
_LEASH = 0.1
"""rad. The servos' set-point stays this near the joint, so that a blocked arm does not wind up."""
_JOINT_DAMPING = 10.0
"""N m s/rad of the arm joints in Meta-World's model."""


class ArmScene:
    """One task's model with joint servos, and upstream's reward of its states."""

    def __init__(self, task: TaskSpec, arm: ArmDescription) -> None:
        if task.kind != 'metaworld':
            raise InvalidConfig(f"'{task.name}' is no Meta-World task: there is no arm in it")
        settings = MetaWorldSettings.from_mapping(task.settings)
        if settings.observation != 'paper6':
            raise InvalidConfig(f"'{task.name}' must use the observation paper6 on an arm")
        self.name = task.name
        self._engine = engine(settings.task)
        self._scenes = [self._engine.build(v, settings.reward) for v in settings.vectors()]
        self.xml: str = self._engine.env.model_name
        self.model = joint_level_model(self.xml, arm, STIFFNESS)
        self.data = mujoco.MjData(self.model)
        self._scene = self._scenes[0]

    @property
    def n_variants(self) -> int:
        """Number of placements a reset draws from."""
        return len(self._scenes)

    def reset(self, variant: int = 0) -> None:
        """Put arm, object and fixtures where Meta-World's reset leaves them, at rest."""
        self._scene = self._scenes[variant]
        self._engine.enter(self._scene)
        self._engine.load(self._scene.state)
        theirs, ours = self._engine.model, self.model
        # The two models differ only by the mocap body and its site.
        ours.body_pos[:] = np.delete(theirs.body_pos, theirs.body('mocap').id, axis=0)
        ours.site_pos[:] = np.delete(theirs.site_pos, theirs.site('mocap').id, axis=0)
        mujoco.mj_resetData(ours, self.data)
        self.data.qpos[:] = self._engine.data.qpos
        mujoco.mj_forward(ours, self.data)

    def reset_objects(self, arm_coordinates: int) -> None:
        """Put everything behind the first coordinates (arm and fingers) back, at rest."""
        self._engine.enter(self._scene)
        self._engine.load(self._scene.state)
        self.data.qpos[arm_coordinates:] = self._engine.data.qpos[arm_coordinates:]
        self.data.qvel[arm_coordinates:] = 0.0
        mujoco.mj_forward(self.model, self.data)

    def object_position(self) -> Array:
        """Return the object point the policy sees. Shape (3,)."""
        self._mirror()
        return np.array(self._engine.env._get_pos_objects()[:3], dtype=np.float64)

    @property
    def goal(self) -> Array:
        """The target of the task. Shape (3,)."""
        self._engine.enter(self._scene)
        return np.array(self._engine.env._target_pos, dtype=np.float64)

    def judge(self, action: Array) -> tuple[float, bool]:
        """Return upstream's reward and whether the task is solved in the current state."""
        self._mirror()
        mujoco.mj_forward(self._engine.model, self._engine.data)
        observation = self._engine.observe(None)
        reward = float(self._engine.env.compute_reward(action, observation)[0])
        return reward, bool(self._engine.criterion(self._engine.env, observation))

    def _mirror(self) -> None:
        """Copy the positions of this model to upstream's."""
        self._engine.enter(self._scene)
        self._engine.data.qpos[:] = self.data.qpos
        mujoco.mj_kinematics(self._engine.model, self._engine.data)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantSettings:
    """How imperfect the arm and its links are."""

    rate: float = setting(
        100.0, 'joint states and object poses per second, Hz', min=1.0, max=400.0
    )
    latency: float = setting(
        0.02, 'delay of commands and again of measurements, s', min=0.0, max=1.0
    )
    joint_noise: float = setting(
        0.0, 'standard deviation of measured joints, rad', min=0.0, max=0.1
    )
    object_noise: float = setting(
        0.0, 'standard deviation of the measured object position, m', min=0.0, max=0.1
    )
    drop_rate: float = setting(0.0, 'share of messages lost, either way', min=0.0, max=1.0)
    command_timeout: float = setting(
        0.2, 'silence after which the driver holds the joints, s', min=0.0, max=5.0
    )

    def __post_init__(self) -> None:
        """Reject settings out of range."""
        check_settings(self)


@dataclass(frozen=True, slots=True)
class _Order:
    """A command on its way to the servos."""

    due: float
    velocities: Array
    gripper: float
    target: Array | None = None
    """Where to stop; None: go on."""
    seconds: float = 0.0


class ArmPlant:
    """The arm, its driver and its links, stepped in simulated time."""

    def __init__(
        self, scene: ArmScene, arm: ArmDescription, settings: PlantSettings, seed: int = 0
    ) -> None:
        self.scene, self.settings, self._arm = scene, settings, arm
        self._model, self._data = scene.model, scene.data
        self._j = len(arm.joints)
        kp = scene.model.actuator_gainprm[: self._j, 0]
        kv = -scene.model.actuator_biasprm[: self._j, 2]
        self._lead = (kv + _JOINT_DAMPING) / kp  # set-point lead that cancels the servo's lag, s
        self.reset(seed)

    def reset(self, seed: int, variant: int = 0) -> None:
        """Begin a new episode; the links are empty and the joints at rest."""
        self.scene.reset(variant)
        self._random = np.random.default_rng(seed)
        self.time, self._next_reading = 0.0, 0.0
        self._orders: deque[_Order] = deque()
        self._readings: deque[tuple[float, Reading]] = deque()
        self._order, self._ordered = _Order(0.0, np.zeros(self._j), -1.0), -np.inf
        self._setpoint = self.joints
        self._data.ctrl[: self._j] = self._setpoint

    @property
    def joints(self) -> Array:
        """True joint positions. Shape (j,)."""
        return np.array(self._data.qpos[: self._j])

    @property
    def velocities(self) -> Array:
        """True joint velocities. Shape (j,)."""
        return np.array(self._data.qvel[: self._j])

    def reset_objects(self) -> None:
        """Put the objects back where the episode began; the arm stays where it is."""
        self.scene.reset_objects(self._j + 2)

    def command(self, velocities: Array, gripper: float, ahead: float = 0.0) -> None:
        """Send joint velocities (rad/s) and a gripper value (-1 open .. 1 closed).

        Like all commands it may be sent `ahead` of the plant's time, s.
        """
        due = self.time + ahead + self.settings.latency
        self._accept(_Order(due, velocities.copy(), gripper))

    def follow(self, positions: Array, seconds: float, gripper: float, ahead: float = 0.0) -> None:
        """Send joint positions to reach in `seconds` and to hold from then on."""
        due, rest = self.time + ahead + self.settings.latency, np.zeros(self._j)
        self._accept(_Order(due, rest, gripper, positions.copy(), max(seconds, 1e-3)))

    def _accept(self, order: _Order) -> None:
        """Send an order, unless it is lost or, as in ros2_control, refused."""
        numbers = order.velocities if order.target is None else order.target
        if not np.isfinite(numbers).all() or not np.isfinite(order.gripper):
            return
        if self._random.random() >= self.settings.drop_rate:
            self._orders.append(order)

    def advance(self, seconds: float) -> list[Reading]:
        """Let time pass; return the measurements that arrive, oldest first."""
        end, dt = self.time + seconds, float(self._model.opt.timestep)
        while self.time < end - 0.5 * dt:
            self._servo(dt)
            mujoco.mj_step(self._model, self._data)
            self.time += dt
            if self.time >= self._next_reading - 0.5 * dt:
                self._next_reading = self.time + 1.0 / self.settings.rate
                self._measure()
        if not np.isfinite(self._data.qpos).all() or self._data.time < 0.5 * self.time:
            raise SimulationFailed(f'the joint-level arm became unstable after {self.time:.2f} s')
        arrived = []
        while self._readings and self._readings[0][0] <= self.time + 0.5 * dt:
            arrived.append(self._readings.popleft()[1])
        return arrived

    def _servo(self, dt: float) -> None:
        """Move the set-points by the newest command that has arrived."""
        while self._orders and self._orders[0].due <= self.time:
            order = self._orders.popleft()
            self._ordered = order.due  # one that comes late counts from when it was sent
            if order.target is not None:
                pace = (order.target - self._setpoint) / order.seconds
                order = replace(order, velocities=pace)
            self._order = order
        velocities = self._order.velocities
        if self.time - self._ordered > self.settings.command_timeout:
            velocities = np.zeros(self._j)
        limit = self._arm.joint_velocity
        velocities = np.clip(velocities, -limit, limit)
        if self._order.target is not None:
            most = np.abs(self._order.target - self._setpoint) / dt
            velocities = np.clip(velocities, -most, most)
        joints = self._data.qpos[: self._j]
        moved = self._setpoint + velocities * dt
        self._setpoint = np.clip(moved, joints - _LEASH, joints + _LEASH)
        self._data.ctrl[: self._j] = self._setpoint + self._lead * velocities
        self._data.ctrl[self._j :] = (self._order.gripper, -self._order.gripper)

    def _measure(self) -> None:
        """Send a measurement, unless it is lost."""
        settings, random = self.settings, self._random
        joint_noise, object_noise = random.standard_normal(self._j), random.standard_normal(3)
        if random.random() < settings.drop_rate:
            return
        reading = Reading(
            self.joints + settings.joint_noise * joint_noise,
            self.velocities,
            self.scene.object_position() + settings.object_noise * object_noise,
        )
        self._readings.append((self.time + settings.latency, reading))
