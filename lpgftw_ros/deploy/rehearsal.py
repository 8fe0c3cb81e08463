"""The whole chain in one process: policy, controller, guard and joint-level arm, without ROS.

It is a vector environment of one row, so whatever samples the mocap tasks samples the arm too: a
policy is rehearsed with `collect`, and a learner can train on it.
"""

import math

import numpy as np

from lpgftw_ros.deploy.arm_env import ArmEnv
from lpgftw_ros.deploy.arm_plant import ArmPlant, PlantSettings
from lpgftw_ros.deploy.arm_scene import ArmScene
from lpgftw_ros.deploy.controller import ArmController
from lpgftw_ros.deploy.kinematics import ArmKinematics
from lpgftw_ros.deploy.observation import ControlSettings, Frame
from lpgftw_ros.deploy.safe_motion import ANCHOR
from lpgftw_ros.deploy.safety import SafetyGuard
from lpgftw_ros.deploy.safety_limits import load_limits, SafetyLimits
from lpgftw_ros.deploy.safety_report import Mode, SafetyReport
from lpgftw_ros.deploy.safety_watch import ArmCommand, Reading
from lpgftw_ros.deploy.sawyer_model import kinematic_model, load_arm
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.learning.arrays import Array

HOME_FRAME = Frame.from_numbers((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
"""Meta-World's frame is the arm's base."""
OPEN = -1.0
"""Where the gripper begins."""


class PlantLink:
    """A guard and a simulated arm in this process; time passes only while waiting."""

    def __init__(
        self,
        plant: ArmPlant,
        kinematics: ArmKinematics,
        limits: SafetyLimits,
        policy_hash: str,
        command_period: float,
    ) -> None:
        self.plant = plant
        self._tick = command_period / math.ceil(command_period / limits.period)
        self._parts = (limits, kinematics, policy_hash, command_period, ANCHOR, self._tick)
        self.guard = SafetyGuard(*self._parts)
        self._reading: Reading | None = None

    def now(self) -> float:
        """Return the simulated time."""
        return self.plant.time

    def begin(self, stream: np.random.Generator) -> None:
        """Start anew: scene, arm, links and guard."""
        variant = int(stream.integers(self.plant.scene.n_variants))
        self.plant.reset(int(stream.integers(2**63)), variant)
        self.guard, self._reading = SafetyGuard(*self._parts), None
        while self._reading is None and self.plant.time < 1.0:  # messages may be lost
            self._listen(self._tick)
        self.guard.activate(self.plant.time)

    def reset_scene(self) -> None:
        """Nothing is left to do: `begin` has placed everything."""

    def send(self, command: ArmCommand) -> None:
        """Hand a command to the guard."""
        self.guard.request(command, self.plant.time)

    def wait(self, until: float) -> None:
        """Let the guard and the arm work."""
        while self.plant.time < until - 1e-6:
            safe = self.guard.tick(self.plant.time)
            grip = OPEN if math.isnan(safe.gripper) else safe.gripper
            self.plant.command(safe.joint_velocities, grip)
            self._listen(self._tick)

    def reading(self) -> Reading | None:
        """Return the newest measurement."""
        return self._reading

    def problem(self) -> str:
        """Return why the guard holds the arm."""
        return self.guard.report.text if self.guard.mode is Mode.LATCHED else ''

    def judge(self, action: Array, hand: Array, target: Array) -> tuple[float, bool]:
        """Return Meta-World's own reward and success, of the true state."""
        return self.plant.scene.judge(action)

    def _listen(self, seconds: float) -> None:
        for reading in self.plant.advance(seconds):
            self._reading = reading
            self.guard.joint_state(reading.joints, self.plant.time)
            self.guard.object_pose(reading.object, self.plant.time)


class RehearsalEnv(ArmEnv):
    """One joint-level arm at one Meta-World task, guarded."""

    def __init__(
        self,
        task: TaskSpec,
        *,
        control: ControlSettings | None = None,
        plant: PlantSettings | None = None,
        limits: SafetyLimits | None = None,
    ) -> None:
        control, arm = control or ControlSettings(), load_arm()
        limits, scene = limits or load_limits(), ArmScene(task, arm)
        limits.require_commands_every(control.period)
        kinematics = ArmKinematics(kinematic_model(scene.xml, arm), arm)
        self.link = PlantLink(
            ArmPlant(scene, arm, plant or PlantSettings()),
            kinematics,
            limits,
            task.name,
            control.period,
        )
        controller = ArmController(kinematics, limits, HOME_FRAME, control, task.name)
        super().__init__(self.link, controller, task.horizon)
        self._names = arm.joints

    @property
    def safety(self) -> SafetyReport:
        """What the guard did in this episode."""
        return self.link.guard.report

    def joint_state(self, row: int = 0) -> tuple[tuple[str, ...], Array, Array]:
        """Return names, positions and velocities of the arm joints."""
        return self._names, self.link.plant.joints, self.link.plant.velocities
