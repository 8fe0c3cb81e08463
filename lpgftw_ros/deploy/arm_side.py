"""Everything the arm side consists of, read from files and settings once."""

from dataclasses import dataclass
from pathlib import Path

import mujoco

from lpgftw_ros.deploy.contract import FRAME, PolicyContract, require_match
from lpgftw_ros.deploy.export import load_policy
from lpgftw_ros.deploy.kinematics import ArmKinematics
from lpgftw_ros.deploy.observation import (
    ACT_DIM,
    ControlSettings,
    Frame,
    OBS_DIM,
    three_numbers,
)
from lpgftw_ros.deploy.safety_limits import load_limits, SafetyLimits
from lpgftw_ros.deploy.sawyer_model import ArmDescription, kinematic_model, load_arm
from lpgftw_ros.errors import InvalidConfig

_SAWYER_XML = 'sawyer_xyz/sawyer_reach_v3.xml'


@dataclass(frozen=True, slots=True)
class ArmSide:
    """One arm, where it stands, how it is driven and what it must not do."""

    kinematics: ArmKinematics
    limits: SafetyLimits
    frame: Frame
    control: ControlSettings
    contract: PolicyContract
    """What the arm expects of a policy; its hash is empty where a policy is learned."""

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
