"""An arm as a vector environment of one row, behind a link.

In the rehearsal the link leads to a simulated arm in the same process, in `arm_bridge` to ROS
topics. Both have the same control steps: command, wait for the end of the period, measure, judge.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gymnasium.spaces import Box
import mujoco
import numpy as np

from lpgftw_ros.deploy.arm.kinematics import ArmKinematics
from lpgftw_ros.deploy.arm.sawyer import ArmDescription, kinematic_model, load_arm
from lpgftw_ros.deploy.controller import ArmController
from lpgftw_ros.deploy.export import FRAME, load_policy, PolicyContract, require_match
from lpgftw_ros.deploy.observation import (
    ACT_DIM,
    ControlSettings,
    Frame,
    OBS_DIM,
    three_numbers,
)
from lpgftw_ros.deploy.safety.limits import load_limits, SafetyLimits
from lpgftw_ros.deploy.safety.watch import ArmCommand, Reading
from lpgftw_ros.domains.vector_env import StepOutcome, TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.arrays import Array, Integers

HOME_TOLERANCE = 0.01  # m
HOME_TIME = 60.0  # s


class ArmStopped(LpgftwError):
    """The guard holds the arm, or its measurements are missing: the rollout cannot continue."""


class ArmLink(Protocol):
    """The other end: an arm behind a guard, its measurements and its scene."""

    def now(self) -> float:
        """Return the steady time."""

    def begin(self, stream: np.random.Generator) -> None:
        """Get ready for a new episode."""

    def reset_scene(self) -> None:
        """Put the objects back; return when that is done."""

    def send(self, command: ArmCommand) -> None:
        """Send a command to the guard."""

    def wait(self, until: float) -> None:
        """Return at this time, or when the link is lost."""

    def reading(self) -> Reading | None:
        """Return the newest measurement; None if there is none or it is too old."""

    def problem(self) -> str:
        """Return why the arm is held until a person resets it; empty if it is not."""

    def judge(self, action: Array, hand: Array, target: Array) -> tuple[float, bool]:
        """Return reward and success for positions in the training frame."""


class ArmEnv(TaskVectorEnv):
    """One arm at one task."""

    def __init__(
        self, link: ArmLink, controller: ArmController, sim_horizon: int, home: Array | None = None
    ) -> None:
        """Drive the hand to `home` (arm base frame) before each episode, if it is given."""
        self._link, self._controller, self._home = link, controller, home
        self.control_period, self._due = controller.settings.period, 0.0
        super().__init__(
            1,
            Box(-np.inf, np.inf, (OBS_DIM,), dtype=np.float64),
            Box(-1.0, 1.0, (ACT_DIM,), dtype=np.float64),
            controller.settings.horizon(sim_horizon),
        )

    def _reset_rows(self, rows: Integers) -> Array:
        self._link.begin(self.row_generator(0))
        if self._home is not None:
            self._drive_home(self._home)
        self._link.reset_scene()
        reading = self._hold_until_measured()
        self._controller.start(reading.joints)
        self._due = self._link.now()
        return self._controller.observe(reading.joints, reading.object)[None]

    def _step_rows(self, actions: Array, rows: Integers) -> StepOutcome:
        self._step(self._controller.command(actions[0], self._measured().joints))
        reading, failed = self._measured(), bool(self._link.problem())
        seen, reward, solved = self._observations, 0.0, False
        if not failed:
            seen = self._controller.observe(reading.joints, reading.object)[None]
            reward, solved = self._link.judge(actions[0], seen[0, :3], seen[0, 3:])
        return StepOutcome(
            observations=seen,
            rewards=np.array([reward]),
            terminated=np.zeros(1, dtype=bool),
            success=np.array([solved]),
            failed=np.array([failed]),
        )

    def _measured(self) -> Reading:
        """Return the newest measurement; raise if there is none."""
        if (reading := self._link.reading()) is None:
            raise ArmStopped(self._link.problem() or 'no fresh joint state and object pose')
        return reading

    def _step(self, command: ArmCommand) -> None:
        """Send a command and let its period pass; lost time is not made up."""
        self._link.send(command)
        self._due = max(self._due, self._link.now() - self.control_period) + self.control_period
        self._link.wait(self._due)

    def _hold_until_measured(self) -> Reading:
        """Wait for a measurement, holding still."""
        patience = self._link.now() + 5.0
        while (reading := self._link.reading()) is None:
            if problem := self._link.problem():
                raise ArmStopped(f'the arm is held: {problem}')
            if self._link.now() > patience:
                raise ArmStopped('no measurement of joints and object arrives')
            self._link.wait(self._link.now() + self.control_period)
        return reading

    def _drive_home(self, home: Array) -> None:
        """Bring the hand back: first up to the height of home, then straight there."""
        reading = self._hold_until_measured()
        self._controller.start(reading.joints)
        self._due = self._link.now()
        patience, high = self._due + HOME_TIME, False
        while self._link.now() < patience:
            if problem := self._link.problem():
                raise ArmStopped(f'the arm is held: {problem}')
            joints = self._hold_until_measured().joints
            hand = self._controller.hand_in_base(joints)
            high = high or hand[2] > home[2] - HOME_TOLERANCE
            target = home if high else np.array([hand[0], hand[1], home[2] + HOME_TOLERANCE])
            if high and float(np.linalg.norm(target - hand)) < HOME_TOLERANCE:
                self._step(self._controller.hold(joints))
                return
            self._step(self._controller.approach(target, joints))
        raise ArmStopped(f'the hand did not come home within {HOME_TIME:g} s')


# All parts of the arm side, read from files and settings once.


_SAWYER_XML = 'sawyer_xyz/sawyer_reach_v3.xml'


@dataclass(frozen=True, slots=True)
class ArmSide:
    """One arm: its place, its controller and its limits."""

    kinematics: ArmKinematics
    limits: SafetyLimits
    frame: Frame
    control: ControlSettings
    contract: PolicyContract
    """What the arm expects of a policy; the hash is empty if the policy is being learned."""

    @property
    def arm(self) -> ArmDescription:
        """Names and limits of the arm."""
        return self.kinematics.arm


def build_arm_side(
    *,
    task: str,
    control: ControlSettings,
    limits_file: str,
    frame_xyz: str = '0 0 0',
    frame_rpy: str = '0 0 0',
    policy_file: str = '',
    arm_file: str = '',
    model_file: str = '',
) -> ArmSide:
    """Read files and check that they fit each other.

    Args:
        task: Task the arm is set up for.
        control: Rate and speed.
        limits_file: Safety limits; required.
        frame_xyz: Where the training frame lies in the arm's base, three numbers.
        frame_rpy: Its roll, pitch, yaw.
        policy_file: Exported policy the arm will accept; empty: whatever is being learned.
        arm_file: Arm description; empty: the Sawyer.
        model_file: MJCF of the bare chain; empty: the Sawyer of the Meta-World assets.
    """
    if not limits_file:
        raise InvalidConfig('limits_file is required: no arm moves without limits')
    for name, file in (('limits_file', limits_file), ('arm_file', arm_file)):
        if file and not Path(file).is_file():
            raise InvalidConfig(f'{name}: there is no file {file}')
    arm = load_arm(Path(arm_file) if arm_file else None)
    limits = load_limits(Path(limits_file))
    if control.full_speed > limits.max_speed:
        raise InvalidConfig(
            f"full_speed {control.full_speed} m/s is above the guard's max_speed "
            f'{limits.max_speed} m/s'
        )
    limits.require_commands_every(control.period)
    contract = PolicyContract(
        task, OBS_DIM, ACT_DIM, FRAME, control.rate, control.full_speed / control.rate
    )
    if policy_file:
        found = load_policy(policy_file).contract
        require_match(contract, found)
        contract = found
    xyz, rpy = three_numbers('frame_xyz', frame_xyz), three_numbers('frame_rpy', frame_rpy)
    kinematics = ArmKinematics(load_chain(model_file, arm), arm)
    return ArmSide(kinematics, limits, Frame.from_numbers(xyz, rpy), control, contract)


def load_chain(model_file: str, arm: ArmDescription) -> mujoco.MjModel:
    """Return the bare chain of the arm: a file of one's own, or the Sawyer."""
    if not model_file:
        from metaworld.asset_path_utils import full_V3_path_for

        return kinematic_model(full_V3_path_for(_SAWYER_XML), arm)
    try:
        return mujoco.MjModel.from_xml_path(model_file)
    except ValueError as error:
        raise InvalidConfig(f'model_file {model_file} cannot be read: {error}') from error
