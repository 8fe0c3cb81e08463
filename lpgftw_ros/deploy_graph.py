"""The graph around an arm in plain Python: policy, bridge, guard, and in rehearsal the arm itself.

`launch/deploy.launch.py` starts it with `ros2 launch`; the tests and the bench start the same
processes without. No ROS import here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
import secrets
import time
from typing import Any

from lpgftw_ros.bringup import DISCOVERY, Graph, LOG_LEVELS, Process, require_namespace
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.config import check_settings, configure, setting
from lpgftw_ros.nodes.arm_parameters import (
    ArmBridgeConfig,
    GuardConfig,
    INTERFACES,
    REWARDS,
    SawyerSimConfig,
)
from lpgftw_ros.nodes.parameters import AS_PRESET, LearnerConfig, NodeConfig, PolicyConfig
from lpgftw_ros.nodes.transport import UDP_ONLY_VARIABLE
from lpgftw_ros.resources import data_folder

_READ = ('policy_file', 'limits_file', 'arm_file', 'model_file')
_FILES = (*_READ, 'source', 'out')


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployOptions:
    """What may be chosen when the graph around an arm is started."""

    policy_file: str = setting('', 'exported policy (lpgftw export); empty: learn on the arm')
    suite: str = setting('demo', 'suite name or YAML file the task is from')
    task: str = setting('reach', 'task the arm is set up for')
    rehearse: bool = setting(False, 'also start a simulated joint-level Sawyer in place of an arm')
    limits_file: str = setting('', 'safety limits, YAML; required unless rehearse')
    arm_file: str = setting('', 'arm description, YAML; empty: the Sawyer')
    model_file: str = setting('', 'MJCF of the bare arm; empty: the Sawyer of Meta-World')
    interface: str = setting('velocity', 'what the arm takes', choices=INTERFACES)
    frame_xyz: str = setting('0 0 0', 'training frame in the arm base, m')
    frame_rpy: str = setting('0 0 0', 'training frame in the arm base, roll pitch yaw, rad')
    base_frame: str = setting('base', 'frame id of the arm base, of object poses and twists')
    rate: float = setting(20.0, 'control steps per second, Hz', min=1.0, max=100.0)
    full_speed: float = setting(0.10, 'hand speed of a full action, m/s', min=0.0, max=1.0)
    speed_cap_raised: bool = setting(False, 'allow a full_speed above 0.25 m/s')
    reward: str = setting(
        '', 'reach, push, drawer-close or topic; needed to learn', choices=REWARDS
    )
    goal: str = setting('', "goal in the training frame, x y z; empty: the suite's")
    reset: str = setting(
        'service', 'who puts the objects back', choices=('service', 'operator', 'none')
    )
    latency: float = setting(0.02, 'rehearsal: delay either way, s', min=0.0, max=1.0)
    joint_noise: float = setting(0.0, 'rehearsal: noise of joints, rad', min=0.0, max=0.1)
    object_noise: float = setting(0.0, 'rehearsal: noise of the object, m', min=0.0, max=0.1)
    drop_rate: float = setting(0.0, 'rehearsal: share of messages lost', min=0.0, max=1.0)
    learner: str = setting('lpg-ftw', 'method, if the policy is learned on the arm')
    seed: int = setting(
        AS_PRESET, 'root of all random numbers, -1: as the preset says', min=-1, max=2**31 - 1
    )
    iterations: int = setting(
        AS_PRESET, 'policy steps, -1: as the preset says', min=-1, max=100_000
    )
    trajectories: int = setting(
        AS_PRESET, 'episodes per step, -1: as the preset says', min=-1, max=10_000
    )
    preset: str = setting('published', 'published or paper: whose equations')
    settings: str = setting('', 'any setting of the run or learner, KEY=VALUE;KEY=VALUE')
    source: str = setting('', 'finished STL run pg-ella starts from')
    out: str = setting('', 'run folder of what is learned')
    resume: bool = setting(False, 'continue the run in out')
    namespace: str = setting('/lifelong', 'namespace of all nodes')
    discovery_range: str = setting('LOCALHOST', 'who can see the graph', choices=DISCOVERY)
    log_level: str = setting('info', 'log level of all nodes', choices=LOG_LEVELS)

    def __post_init__(self) -> None:
        """Reject values no arm can be driven with."""
        check_settings(self)
        require_namespace(self.namespace)
        if not self.limits_file and not self.rehearse:
            raise InvalidConfig('limits_file is required: no arm moves without limits')
        if not self.policy_file and not self.reward:
            raise InvalidConfig('give a policy_file to act with, or a reward to learn from')
        if self.resume and not self.out:
            raise InvalidConfig('resume needs out, the run folder to continue')


def deploy_options(values: Mapping[str, Any]) -> DeployOptions:
    """Build options from texts or values; unknown names and bad values are errors."""
    return configure(DeployOptions, values, 'argument')


def require_files(options: DeployOptions) -> None:
    """Raise for a file that is not there, before anything starts."""
    for name in _READ:
        path = getattr(options, name)
        if path and not Path(path).is_file():
            raise InvalidConfig(f'{name}: there is no file {Path(path).absolute()}')


def describe_deployment(options: DeployOptions) -> Graph:
    """Return the graph. Nothing that can move an arm starts or restarts by itself."""
    run_id = f'{time.strftime("%Y%m%d-%H%M%S")}-{secrets.token_hex(2)}'
    kinds: dict[str, type[NodeConfig]] = {
        'policy': PolicyConfig,
        'arm_bridge': ArmBridgeConfig,
        'safety_guard': GuardConfig,
    }
    if options.rehearse:
        kinds['sawyer_sim'] = SawyerSimConfig
    if not options.policy_file:
        kinds['learner'] = LearnerConfig
    environment = {
        'ROS_AUTOMATIC_DISCOVERY_RANGE': options.discovery_range,
        UDP_ONLY_VARIABLE: '1',
    }
    processes = tuple(
        Process(
            executable=name,
            nodes=(name,),
            namespace=options.namespace,
            parameters={name: _parameters(name, kind, options) | {'run_id': run_id}},
            respawn=False,
            environment=environment,
            log_levels={name: options.log_level},
        )
        for name, kind in kinds.items()
    )
    return Graph(run_id, options.namespace, processes, environment)


def _parameters(name: str, kind: type[NodeConfig], options: DeployOptions) -> dict[str, Any]:
    ours = {item.name for item in fields(DeployOptions)}
    values = {f.name: getattr(options, f.name) for f in fields(kind) if f.name in ours}
    if 'limits_file' in values and not values['limits_file']:
        values['limits_file'] = str(data_folder('sim/sawyer') / 'safety.yaml')
    if name == 'policy':
        values['policy_from'] = _absolute(options.policy_file)
    if name == 'learner':
        values |= {'tasks': options.task, 'autotrain': False}
    if name == 'sawyer_sim':
        del values['rate'], values['seed']  # its own: of measurements and of their noise
    for file in _FILES:
        if file in values:
            values[file] = _absolute(values[file])
    # The policy, the learner and the simulated arm cannot move a real one.
    return values | {'autostart': name in ('policy', 'learner', 'sawyer_sim')}


def _absolute(path: str) -> str:
    """Return a path that holds in whatever folder a node is started; empty stays empty."""
    return str(Path(path).absolute()) if path else ''
