"""The graph around an arm in plain Python: policy, bridge, guard, in rehearsal also an arm.

`launch/deploy.launch.py` starts it with `ros2 launch`; the tests and the bench start the same
processes without it. No ROS import here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
import secrets
import time
from typing import Any

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.graph.admission import new_secret, SECRET_VARIABLE
from lpgftw_ros.graph.bringup import DASHBOARD, Graph, PlaceOptions, Process
from lpgftw_ros.graph.parameters import (
    ArmBridgeParameters,
    ArmOptions,
    DashboardParameters,
    EpisodeOptions,
    GripperOptions,
    GuardOptions,
    GuardParameters,
    interface_of,
    InterfaceOption,
    LearnerParameters,
    NodeParameters,
    parameter_values,
    PolicyParameters,
    RehearsalOptions,
    remappings,
    SawyerSimParameters,
    TopicOptions,
)
from lpgftw_ros.graph.supervisor import PRIORITY_VARIABLE, UDP_ONLY_VARIABLE
from lpgftw_ros.learning.config import configure, setting
from lpgftw_ros.resources import data_folder
from lpgftw_ros.runs.settings import MethodOptions, SuiteOption

_READ = ('policy_file', 'limits_file', 'arm_file', 'model_file')
_FILES = (*_READ, 'source', 'knowledge', 'out')


@dataclass(frozen=True, kw_only=True)
class DeployOptions(
    PlaceOptions,
    SuiteOption,
    MethodOptions,
    ArmOptions,
    InterfaceOption,
    GuardOptions,
    EpisodeOptions,
    RehearsalOptions,
    TopicOptions,
    GripperOptions,
):
    """Options of the graph around an arm."""

    rehearse: bool = setting(False, 'also start a simulated joint-level Sawyer in place of an arm')
    realtime_priority: int = setting(
        50,
        'real-time priority of the guard and of the simulated arm, where the system allows one; '
        'policy and bridge have one less; 0: none',
        min=0,
        max=99,
    )

    def __post_init__(self) -> None:
        """Reject values that no arm can be driven with."""
        PlaceOptions.__post_init__(self)
        object.__setattr__(self, 'interface', interface_of(self, self.interface))
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
    kinds: dict[str, type[NodeParameters]] = {
        'policy': PolicyParameters,
        'arm_bridge': ArmBridgeParameters,
        'safety_guard': GuardParameters,
    }
    if options.rehearse:
        kinds['sawyer_sim'] = SawyerSimParameters
    if not options.policy_file:
        kinds['learner'] = LearnerParameters
    if options.dashboard:
        kinds[DASHBOARD] = DashboardParameters
    environment = {
        'ROS_AUTOMATIC_DISCOVERY_RANGE': options.discovery_range,
        UDP_ONLY_VARIABLE: '1',
        SECRET_VARIABLE: new_secret(),
    }
    processes = tuple(
        Process(
            executable=name,
            nodes=(name,),
            namespace=options.namespace,
            parameters={name: _parameters(name, kind, options) | {'run_id': run_id}},
            respawn=False,
            environment=environment | {PRIORITY_VARIABLE: str(_priority(name, options))},
            log_levels={name: options.log_level},
            remappings=remappings(options, options.interface, options),
        )
        for name, kind in kinds.items()
    )
    return Graph(run_id, options.namespace, processes, environment)


def _priority(name: str, options: DeployOptions) -> int:
    """Return the real-time priority of a node; learning and looking wait for what moves an arm.

    The simulated arm has the guard's: a real one does not wait for the policy's processor.
    """
    if name in ('learner', DASHBOARD):
        return 0
    return max(0, options.realtime_priority - (name in ('policy', 'arm_bridge')))


def _parameters(name: str, kind: type[NodeParameters], options: DeployOptions) -> dict[str, Any]:
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
    # The policy, the learner, the simulated arm and the page cannot move a real one.
    values = parameter_values(kind, values)
    return values | {'autostart': name in ('policy', 'learner', 'sawyer_sim', DASHBOARD)}


def _absolute(path: str) -> str:
    """Return an absolute path, valid in the folder of any node; empty stays empty."""
    return str(Path(path).absolute()) if path else ''
