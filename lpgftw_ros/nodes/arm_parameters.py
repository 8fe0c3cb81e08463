"""Parameters of the nodes around an arm. Nothing here starts by itself."""

from dataclasses import dataclass

from lpgftw_ros.deploy.arm_side import ArmSide, build_arm_side
from lpgftw_ros.deploy.observation import ControlSettings
from lpgftw_ros.deploy.rewards import TASKS
from lpgftw_ros.learning.config import setting
from lpgftw_ros.nodes.parameters import NodeConfig

INTERFACES = ('velocity', 'trajectory', 'twist')
REWARDS = ('', 'topic', *TASKS)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmConfig(NodeConfig):
    """What all nodes of the arm side must agree on."""

    autostart: bool = setting(False, 'configure and activate without being asked')
    task: str = setting('reach', 'task the arm is set up for')
    limits_file: str = setting('', 'safety limits, YAML; required')
    policy_file: str = setting('', 'exported policy that may act; empty: one that is learned')
    arm_file: str = setting('', 'arm description, YAML; empty: the Sawyer')
    model_file: str = setting('', 'MJCF of the bare arm; empty: the Sawyer of Meta-World')
    frame_xyz: str = setting('0 0 0', 'training frame in the arm base, m')
    frame_rpy: str = setting('0 0 0', 'training frame in the arm base, roll pitch yaw, rad')
    rate: float = setting(20.0, 'control steps per second, Hz', min=1.0, max=100.0)
    full_speed: float = setting(0.10, 'hand speed of a full action, m/s', min=0.0, max=1.0)
    speed_cap_raised: bool = setting(False, 'allow a full_speed above 0.25 m/s')
    gripper_threshold: float = setting(0.3, 'close above it, open below -it', min=0.0, max=1.0)
    base_frame: str = setting('base', 'frame id of the arm base')

    def arm_side(self) -> ArmSide:
        """Read the files and check that they fit."""
        return build_arm_side(
            task=self.task,
            control=ControlSettings(
                rate=self.rate,
                full_speed=self.full_speed,
                speed_cap_raised=self.speed_cap_raised,
                gripper_threshold=self.gripper_threshold,
            ),
            limits_file=self.limits_file,
            frame_xyz=self.frame_xyz,
            frame_rpy=self.frame_rpy,
            policy_file=self.policy_file,
            arm_file=self.arm_file,
            model_file=self.model_file,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardConfig(ArmConfig):
    """Parameters of `safety_guard`."""

    interface: str = setting(
        'velocity',
        'what the arm takes: joint velocities, a joint trajectory or a twist',
        choices=INTERFACES,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmBridgeConfig(ArmConfig):
    """Parameters of `arm_bridge`."""

    suite: str = setting('demo', 'suite name or YAML file the task is from')
    reward: str = setting(
        '',
        'reach, push, drawer-close (built in) or topic; empty: none, nothing is learned',
        choices=REWARDS,
    )
    goal: str = setting('', "goal in the training frame, x y z; empty: the suite's")
    reset: str = setting(
        'service', 'who puts the objects back', choices=('service', 'operator', 'none')
    )
    go_home: bool = setting(True, 'bring the hand back to where it was activated')
    resend_period: float = setting(
        0.5, 'seconds without an answer until an observation is sent again', min=0.05, max=60.0
    )
    action_timeout: float = setting(
        10.0, 'seconds without an answer until a rollout is given up', min=0.1, max=3600.0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SawyerSimConfig(NodeConfig):
    """Parameters of `sawyer_sim`."""

    autostart: bool = setting(False, 'configure and activate without being asked')
    suite: str = setting('demo', 'suite name or YAML file the task is from')
    task: str = setting('reach', 'task whose objects are on the table')
    seed: int = setting(0, 'seed of noise and losses', min=0, max=2**31 - 1)
    interface: str = setting('velocity', 'which command topic is obeyed', choices=INTERFACES)
    base_frame: str = setting('base', 'frame id of the arm base')
    rate: float = setting(100.0, 'measurements per second, Hz', min=1.0, max=400.0)
    latency: float = setting(0.02, 'delay of commands and of measurements, s', min=0.0, max=1.0)
    joint_noise: float = setting(0.0, 'noise of measured joints, rad', min=0.0, max=0.1)
    object_noise: float = setting(0.0, 'noise of the object position, m', min=0.0, max=0.1)
    drop_rate: float = setting(0.0, 'share of messages lost', min=0.0, max=1.0)
    command_timeout: float = setting(
        0.2, 'silence after which the joints are held, s', min=0.0, max=5.0
    )
