"""Parameters of the nodes as plain dataclasses; ROS parameters are declared from them.

Options of a run are declared in `runs.settings` and inherited here. Bring-up gives a node every
option that has the name of one of its fields.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TYPE_CHECKING

from lpgftw_ros.deploy.observation import ControlSettings, TASKS
from lpgftw_ros.deploy.safety.motion import INTERFACES
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.config import check_settings, Items, setting, typed
from lpgftw_ros.runs.settings import (
    again,
    AS_PRESET,
    KEY_VALUES,
    LearningOptions,
    SamplingOptions,
    SuiteOption,
)

# Names used by an arm's own software: topics as options, and profiles for common controllers.
#
# Inside the graph every name is relative to its namespace. Names that face other software are
# remapped here, so an arm is connected without changing our files or the controller's.


COMMAND_NAMES = {
    'velocity': 'joint_velocity_command',
    'trajectory': 'joint_trajectory',
    'twist': 'twist_command',
}
"""Topic the guard writes to, by interface; see `nodes/arm_conversions.py` for the types."""
GRIPPERS = ('topic', 'gripper_command', 'parallel_gripper_command')
"""std_msgs/Float64, or the actions GripperCommand and ParallelGripperCommand of control_msgs."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The input of a controller, with the default names of its package."""

    interface: str
    command: str
    joint_states: str = '/joint_states'


PROFILES: Mapping[str, Profile] = {
    'moveit_servo': Profile('twist', '/servo_node/delta_twist_cmds'),
    'forward_velocity': Profile('velocity', '/forward_velocity_controller/commands'),
    'joint_trajectory': Profile('trajectory', '/joint_trajectory_controller/joint_trajectory'),
}
GRIPPER_ACTION = '/gripper_controller/gripper_cmd'


@dataclass(frozen=True, kw_only=True)
class GripperOptions:
    """How the guard commands the gripper."""

    gripper: str = setting(
        'topic',
        'interface of the gripper: Float64 on a topic, or an action of control_msgs',
        choices=GRIPPERS,
    )
    gripper_open: float = setting(0.04, 'action: position when open, m', min=-10.0, max=10.0)
    gripper_closed: float = setting(0.0, 'action: position when closed, m', min=-10.0, max=10.0)
    gripper_effort: float = setting(20.0, 'action: largest effort, N', min=0.0, max=1000.0)
    gripper_joint: str = setting('gripper', 'parallel_gripper_command: name of the joint')
    gripper_name: str = setting(
        '', f'topic or action of the gripper; empty: gripper_command or {GRIPPER_ACTION}'
    )


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """Names that face other software; empty: ours, or the profile's."""

    controller: str = setting(
        '',
        'profile of the controller: sets interface, command_topic and joint_states_topic',
        choices=('', *PROFILES),
    )
    joint_states_topic: str = setting('', 'topic of measured joints; empty: joint_states')
    object_pose_topic: str = setting('', 'topic of the object; empty: object_pose')
    command_topic: str = setting('', 'topic of commands to the arm; empty: that of the interface')


def interface_of(options: TopicOptions, interface: str) -> str:
    """Return the interface of the arm: the profile's, or the given one."""
    return PROFILES[options.controller].interface if options.controller else interface


def remappings(
    options: TopicOptions, interface: str, gripper: GripperOptions
) -> tuple[tuple[str, str], ...]:
    """Return the rules (our name, theirs) of a graph around an arm.

    ROS 2 does not remap an action by its name, so the guard gets the gripper's as a parameter.
    """
    profile = PROFILES.get(options.controller)
    names = {
        'joint_states': options.joint_states_topic or (profile.joint_states if profile else ''),
        'object_pose': options.object_pose_topic,
        COMMAND_NAMES[interface]: options.command_topic or (profile.command if profile else ''),
        'gripper_command': gripper.gripper_name if gripper.gripper == 'topic' else '',
    }
    return tuple((ours, theirs) for ours, theirs in names.items() if theirs)


if TYPE_CHECKING:
    from lpgftw_ros.deploy.arm.env import ArmSide
    from lpgftw_ros.runs.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class NodeParameters:
    """Parameters of every node of the graph."""

    autostart: bool = setting(True, 'configure and activate at the start')
    run_id: str = setting('', 'names this run; a restarted node finds its own run by it')

    def __post_init__(self) -> None:
        """Reject values outside their range."""
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class PacingOptions:
    """How fast a simulation runs."""

    realtime_factor: float = setting(
        0.0, 'simulated seconds per second; 0: as fast as possible', min=0.0, max=1000.0
    )
    publish_clock: bool = setting(False, 'publish simulated time on /clock, at most 80 Hz')


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Where the page in the browser is served."""

    dashboard_host: str = setting(
        '127.0.0.1',
        'address of the page; there is no login: on any other than 127.0.0.1 everyone who reaches '
        'it can watch and steer',
    )
    dashboard_port: int = setting(8080, 'port of the page; 0: any', min=0, max=65535)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(LearningOptions):
    """What the learner of a graph does, and when it ends."""

    autotrain: bool = setting(True, 'learn the tasks in sequence without being asked')
    exit_when_done: bool = setting(False, 'end when all tasks are learned')


@dataclass(frozen=True, kw_only=True)
class BridgeParameters(NodeParameters, SamplingOptions, PacingOptions):
    """Parameters of `sim_bridge`."""

    resend_period: float = setting(
        0.5, 'seconds without an answer until an observation is sent again', min=0.05, max=60.0
    )
    action_timeout: float = setting(
        30.0, 'seconds without an answer until a rollout is abandoned', min=0.1, max=3600.0
    )
    image_period: float = setting(
        0.0, 'seconds between pictures of row 0; 0: none', min=0.0, max=3600.0
    )
    pose_rate: float = setting(
        16.0, 'poses of row 0 per second, while there is a subscriber', min=0.0, max=200.0
    )


@dataclass(frozen=True, kw_only=True)
class PolicyParameters(NodeParameters):
    """Parameters of `policy`."""

    policy_from: str = setting('', 'run folder or exported policy to serve without a learner')
    patience: float = setting(
        1.0, 'seconds a policy may be on its way before this is reported', min=0.0, max=3600.0
    )


@dataclass(frozen=True, kw_only=True)
class LearnerParameters(NodeParameters, TrainingOptions):
    """Parameters of `learner`."""

    limits_file: str = setting('', 'safety limits of the arm, YAML; empty: there is no arm')


@dataclass(frozen=True, kw_only=True)
class SceneParameters(NodeParameters):
    """Parameters of `scene`."""

    frame_prefix: str = setting('', 'prefix of every frame id, as in robot_state_publisher')
    trail: int = setting(200, 'points of the hand path that are shown', min=1, max=10_000)


NODES: dict[str, type[NodeParameters]] = {
    'sim_bridge': BridgeParameters,
    'policy': PolicyParameters,
    'learner': LearnerParameters,
    'scene': SceneParameters,
}


def run_settings(
    parameters: LearnerParameters, given: Container[str] | None = None
) -> tuple['RunConfig', Path]:
    """Return the run's configuration and folder from the learner's parameters.

    A resumed run keeps its configuration; parameters that were `given` may not differ from it. If
    `given` is None, every non-default parameter counts as given.
    """
    from lpgftw_ros.runs.folder import read_config  # slow to import, not always needed
    from lpgftw_ros.runs.options import default_out, RunOptions

    out = Path(parameters.out)
    values = {item.name: getattr(parameters, item.name) for item in fields(parameters)}
    if parameters.resume and parameters.out and (out / 'config.yaml').exists():
        said = {
            item.name: values[item.name]
            for item in fields(parameters)
            if (values[item.name] != item.default if given is None else item.name in given)
        }
        return RunOptions.from_options(said).continued(read_config(out)), out
    config = RunOptions.from_options(values).new_run()
    return config, out if parameters.out else default_out(config)


def setting_defaults(parameters: LearnerParameters) -> tuple[str, dict[str, Any]]:
    """Return the learner, and what each of its settings is unless it is said otherwise.

    That is what the preset says, or the run that is continued. Left out are those that are
    options of their own.
    """
    from lpgftw_ros.runs.config import resolve
    from lpgftw_ros.runs.folder import read_config

    out = Path(parameters.out)
    if parameters.resume and parameters.out and (out / 'config.yaml').exists():
        config = read_config(out)
    else:
        config = resolve(parameters.suite, parameters.learner, preset=parameters.preset)
    own = {item.name for item in fields(parameters)}
    settings = {name: value for name, value in config.settings().items() if name not in own}
    return config.learner, settings


def parameter_values(kind: type[NodeParameters], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as ROS has them: lists as arrays, settings as parameters `settings.NAME`."""
    found: dict[str, Any] = {}
    for item in fields(kind):
        if item.name not in values:
            continue
        value, items = values[item.name], item.metadata.get('items')
        if item.metadata.get('reads') == KEY_VALUES:
            for name, member in _settings_said(value).items():
                # an option of the same name wins, as it does on the command line
                is_option = name in {other.name for other in fields(kind)}
                if not is_option:
                    found[f'{item.name}.{name}'] = member
                elif values.get(name, AS_PRESET) == AS_PRESET:
                    found[name] = member
        elif items is None:
            found.setdefault(item.name, value)
        else:
            found[item.name] = items.read(value) or ([''] if items.kind is str else [])
    return {name: value for name, value in found.items() if value != []}


def _settings_said(text: str) -> dict[str, Any]:
    """Return settings that were typed as KEY=VALUE, each as the type it is declared with."""
    from lpgftw_ros.runs.config import learner_names, setting_fields
    from lpgftw_ros.runs.options import key_value

    known = {
        name: item for learner in learner_names() for name, item in setting_fields(learner).items()
    }
    said: dict[str, Any] = {}
    for part in text.split(';'):
        if part.strip():
            name, value = key_value(part)
            if name not in known:
                raise UnknownName('setting', name, known)
            items = known[name].metadata.get('items')
            said[name] = items.read(value) if items else typed(known[name], value)
    return said


# Parameters of the nodes around an arm. Nothing here starts by itself.


REWARDS = ('', 'topic', *TASKS)
NUMBERS = Items(float, ' ')


@dataclass(frozen=True, kw_only=True)
class ArmOptions:
    """Parameters that all nodes of the arm side share."""

    task: str = setting('reach', 'task the arm is set up for')
    limits_file: str = setting('', 'safety limits, YAML; required unless rehearse')
    policy_file: str = setting('', 'exported policy (lpgftw export); empty: learn on the arm')
    arm_file: str = setting('', 'arm description, YAML; empty: the Sawyer')
    model_file: str = setting('', 'MJCF of the bare arm; empty: the Sawyer of Meta-World')
    frame_xyz: str = setting('0 0 0', 'training frame in the arm base, m', items=NUMBERS)
    frame_rpy: str = setting(
        '0 0 0', 'training frame in the arm base, roll pitch yaw, rad', items=NUMBERS
    )
    rate: float = setting(20.0, 'control steps per second, Hz', min=1.0, max=100.0)
    full_speed: float = setting(0.10, 'hand speed of a full action, m/s', min=0.0, max=1.0)
    speed_cap_raised: bool = setting(False, 'allow a full_speed above 0.25 m/s')
    base_frame: str = setting('base', 'frame id of the arm base, of object poses and twists')


@dataclass(frozen=True, kw_only=True)
class DashboardParameters(NodeParameters, SuiteOption, ArmOptions, PageOptions):
    """Parameters of `dashboard`; without a `limits_file` there is no arm to show."""


@dataclass(frozen=True, kw_only=True)
class InterfaceOption:
    """How the arm is driven."""

    interface: str = setting(
        'velocity',
        'interface of the arm: joint velocities, a joint trajectory or a twist',
        choices=INTERFACES,
    )


@dataclass(frozen=True, kw_only=True)
class GuardOptions:
    """Who may stop the arm."""

    stop_topics: str = setting(
        'emergency_stop',
        'topics of the stop buttons, one button each',
        items=Items(str, ' '),
    )


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions:
    """Reward and start of an episode on the arm."""

    reward: str = setting(
        '',
        'reach, push, drawer-close (built in) or topic; empty: none, nothing is learned',
        choices=REWARDS,
    )
    goal: str = setting('', "goal in the training frame, x y z; empty: the suite's", items=NUMBERS)
    reset: str = setting(
        'service', 'who puts the objects back', choices=('service', 'operator', 'none')
    )


@dataclass(frozen=True, kw_only=True)
class RehearsalOptions:
    """How imperfect the simulated arm is."""

    latency: float = setting(0.02, 'delay of commands and of measurements, s', min=0.0, max=1.0)
    joint_noise: float = setting(0.0, 'noise of measured joints, rad', min=0.0, max=0.1)
    object_noise: float = setting(0.0, 'noise of the object position, m', min=0.0, max=0.1)
    drop_rate: float = setting(0.0, 'share of messages lost', min=0.0, max=1.0)


@dataclass(frozen=True, kw_only=True)
class ArmParameters(NodeParameters, ArmOptions):
    """Parameters of every node of the arm side."""

    autostart: bool = again(NodeParameters, 'autostart', False)
    gripper_threshold: float = setting(0.3, 'close above it, open below -it', min=0.0, max=1.0)

    def arm_side(self) -> 'ArmSide':
        """Read the files and check that they fit."""
        if not self.base_frame:
            raise InvalidConfig('base_frame must name the frame of the arm base')
        from lpgftw_ros.deploy.arm.env import build_arm_side  # slow to import, not always needed

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


@dataclass(frozen=True, kw_only=True)
class GuardParameters(ArmParameters, InterfaceOption, GuardOptions, GripperOptions):
    """Parameters of `safety_guard`."""


@dataclass(frozen=True, kw_only=True)
class ArmBridgeParameters(ArmParameters, SuiteOption, EpisodeOptions):
    """Parameters of `arm_bridge`."""

    go_home: bool = setting(True, 'bring the hand back to where it was activated')
    resend_period: float = again(BridgeParameters, 'resend_period', 0.5)
    action_timeout: float = again(BridgeParameters, 'action_timeout', 10.0)


@dataclass(frozen=True, kw_only=True)
class SawyerSimParameters(NodeParameters, SuiteOption, InterfaceOption, RehearsalOptions):
    """Parameters of `sawyer_sim`."""

    autostart: bool = again(NodeParameters, 'autostart', False)
    task: str = setting('reach', 'task whose objects are on the table')
    seed: int = setting(0, 'seed of noise and losses', min=0, max=2**31 - 1)
    base_frame: str = again(ArmOptions, 'base_frame', 'base')
    rate: float = setting(100.0, 'measurements per second, Hz', min=1.0, max=400.0)
    command_timeout: float = setting(
        0.2, 'silence after which the joints are held, s', min=0.0, max=5.0
    )
