"""The graphs around the simulator in plain Python: processes, nodes, names and parameters.

One graph has a learner (`launch/lifelong.launch.py`, `lpgftw up`), the other serves finished
policies (`launch/policy.launch.py`, `lpgftw up --policy-from`). No ROS import here.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
import re
import secrets
import time
from typing import Any

import yaml

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.graph.admission import new_secret, SECRET_VARIABLE
from lpgftw_ros.graph.parameters import (
    DashboardParameters,
    LearnerParameters,
    NODES,
    PacingOptions,
    PageOptions,
    parameter_values,
    run_settings,
    TrainingOptions,
)
from lpgftw_ros.learning.config import check_settings, configure, setting
from lpgftw_ros.resources import read_yaml
from lpgftw_ros.runs.settings import again, SamplingOptions

PACKAGE = 'lpgftw_ros'
DASHBOARD = 'dashboard'
"""Name of the node that serves the page."""
LOG_LEVELS = ('debug', 'info', 'warn', 'error', 'fatal')
DISCOVERY = ('LOCALHOST', 'SUBNET', 'OFF', 'SYSTEM_DEFAULT')


def require_namespace(namespace: str) -> None:
    """Raise `InvalidConfig` for a namespace that ROS refuses."""
    if not re.fullmatch(r'/|(/[A-Za-z_]\w*)+', namespace):
        raise InvalidConfig(
            f"namespace must be like /lifelong, /cell_1/arm or /, got '{namespace}'"
        )


def full_name(namespace: str, node: str) -> str:
    """Return the name of a node in any namespace, the root too."""
    return f'{namespace.rstrip("/")}/{node}'


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(PageOptions):
    """Where a graph runs, and who can see it."""

    namespace: str = setting('/lifelong', 'namespace of all nodes')
    discovery_range: str = setting(
        'LOCALHOST', 'who can see the graph; SUBNET opens it to other machines', choices=DISCOVERY
    )
    log_level: str = setting('info', 'log level of all nodes', choices=LOG_LEVELS)
    dashboard: bool = setting(False, 'show the graph in the browser')

    def __post_init__(self) -> None:
        """Reject values that no graph can start with."""
        check_settings(self)
        require_namespace(self.namespace)


def own_log_level(node: str) -> Any:
    """Declare the log level of one node."""
    return setting('', f'log level of {node}; empty: log_level', choices=('', *LOG_LEVELS))


@dataclass(frozen=True, kw_only=True)
class CommonOptions(PlaceOptions):
    """Options of every graph around the simulator."""

    composed: bool = setting(False, 'host bridge and policy in one process')
    autostart: bool = setting(True, 'configure and activate the nodes')
    respawn: bool = setting(True, 'start a crashed node again')
    sim_bridge_log_level: str = own_log_level('sim_bridge')
    policy_log_level: str = own_log_level('policy')
    params_file: str = setting('', 'ROS parameter file; options given here win over it')
    run_id: str = setting('', 'names the graph; empty: a new name')
    scene: bool = setting(False, 'also start the node scene, for RViz and Foxglove')
    use_sim_time: bool = setting(False, 'stamp with /clock; see publish_clock')
    joint_states_topic: str = setting('', 'topic of the joints of row 0; empty: joint_states')


@dataclass(frozen=True, kw_only=True)
class GraphOptions(CommonOptions, TrainingOptions, SamplingOptions, PacingOptions):
    """Options of the graph with a learner."""

    learner_log_level: str = own_log_level('learner')


@dataclass(frozen=True, slots=True)
class Process:
    """One operating-system process of the graph and how to start it."""

    executable: str
    """Entry point of the package; also the module `lpgftw_ros.nodes.<executable>`."""
    nodes: tuple[str, ...]
    """Names of the nodes it hosts."""
    namespace: str
    parameters: Mapping[str, Mapping[str, Any]]
    """Node name -> parameter -> value, of the given ones; the rest have their defaults."""
    respawn: bool
    environment: Mapping[str, str]
    log_levels: Mapping[str, str]
    """Node name -> log level."""
    parameter_files: tuple[str, ...] = ()
    remappings: tuple[tuple[str, str], ...] = ()

    @property
    def enclave(self) -> str:
        """SROS2 enclave of the process; has no effect without security."""
        return full_name(self.namespace, self.executable)

    def ros_arguments(self, *parameter_files: str) -> list[str]:
        """Return the words after --ros-args, without namespace and remappings."""
        words = ['--enclave', self.enclave]
        for path in (*self.parameter_files, *parameter_files):  # the last one wins
            words += ['--params-file', path]
        for node, level in self.log_levels.items():
            logger = full_name(self.namespace, node).strip('/').replace('/', '.')
            words += ['--log-level', f'{logger}:={level}']
        return words

    def name_arguments(self) -> list[str]:
        """Return namespace and remappings as words after --ros-args."""
        rules = [('__ns', self.namespace), *self.remappings]
        return [word for old, new in rules for word in ('-r', f'{old}:={new}')]


@dataclass(frozen=True, slots=True)
class Graph:
    """All processes of one run."""

    run_id: str
    namespace: str
    processes: tuple[Process, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Full names of all nodes."""
        return tuple(full_name(self.namespace, n) for p in self.processes for n in p.nodes)

    def write_parameters(self, folder: Path) -> str:
        """Write the parameters of all nodes as a ROS parameter file and return its path."""
        content = {
            full_name(self.namespace, node): {'ros__parameters': dict(values)}
            for process in self.processes
            for node, values in process.parameters.items()
        }
        path = folder / 'parameters.yaml'
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return str(path)


def options_from(values: Mapping[str, Any]) -> GraphOptions:
    """Build options from texts or values; unknown names and bad values are errors."""
    return configure(GraphOptions, values, 'argument')


def require_run(options: GraphOptions, given: Container[str] | None = None) -> GraphOptions:
    """Raise for an impossible suite, task or setting, before anything starts.

    Returns the options with the suite of the run: a resumed run has its own. `given` names the
    options that were given. The nodes check what comes from a parameter file.
    """
    if options.params_file:
        return options
    names = {item.name for item in fields(LearnerParameters)} & {f.name for f in fields(options)}
    config = LearnerParameters(**{name: getattr(options, name) for name in names})
    return replace(options, suite=run_settings(config, given)[0].suite_source)


def describe(options: GraphOptions, given: Iterable[str] = ()) -> Graph:
    """Return the graph; `given` names the options that win over the parameter file."""
    hosts = (
        {'composed': ('sim_bridge', 'policy'), 'learner': ('learner',)}
        if options.composed
        else {name: (name,) for name in ('sim_bridge', 'policy', 'learner')}
    )
    return assemble(options, hosts, given)


def assemble(
    options: CommonOptions, hosts: Mapping[str, tuple[str, ...]], given: Iterable[str]
) -> Graph:
    """Return the graph whose executables host these nodes, and the page if requested."""
    hosts = {**hosts, DASHBOARD: (DASHBOARD,)} if options.dashboard else hosts
    run_id = options.run_id or f'{time.strftime("%Y%m%d-%H%M%S")}-{secrets.token_hex(2)}'
    files = _parameter_files(options.params_file)
    hosts = {**hosts, 'scene': ('scene',)} if options.scene else hosts
    topic = options.joint_states_topic
    chosen = set(given) if files else {item.name for item in fields(options)}
    environment = {
        'ROS_AUTOMATIC_DISCOVERY_RANGE': options.discovery_range,
        SECRET_VARIABLE: new_secret(),
    }
    processes = tuple(
        Process(
            executable=executable,
            nodes=nodes,
            namespace=options.namespace,
            parameters={node: _parameters(node, options, chosen, run_id) for node in nodes},
            respawn=options.respawn,
            environment=environment,
            log_levels={
                node: getattr(options, f'{node}_log_level', '') or options.log_level
                for node in nodes
            },
            parameter_files=files,
            remappings=(('joint_states', topic),) if topic else (),
        )
        for executable, nodes in hosts.items()
    )
    return Graph(run_id, options.namespace, processes, environment)


def _parameters(
    node: str, options: CommonOptions, chosen: set[str], run_id: str
) -> dict[str, Any]:
    kind = DashboardParameters if node == DASHBOARD else NODES[node]
    names = [item.name for item in fields(kind)]
    values = {name: getattr(options, name) for name in names if name in chosen}
    for name in ('out', 'source', 'policy_from'):
        if values.get(name):  # nodes may be started in another folder
            values[name] = str(Path(values[name]).absolute())
    found = parameter_values(kind, values) | {'run_id': run_id}
    if options.use_sim_time and node != 'sim_bridge':  # the bridge makes the time
        found['use_sim_time'] = True
    return found


def _parameter_files(path: str) -> tuple[str, ...]:
    if not path:
        return ()
    try:
        content = read_yaml(Path(path))
    except OSError as error:
        raise InvalidConfig(f'params_file {path} cannot be read: {error.strerror}') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f'params_file {path} is not valid YAML') from error
    nodes = content.values() if isinstance(content, dict) else [None]
    if not all(isinstance(n, dict) and isinstance(n.get('ros__parameters'), dict) for n in nodes):
        raise InvalidConfig(f'params_file {path} must map node names to ros__parameters')
    return (str(Path(path).absolute()),)


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(CommonOptions, SamplingOptions):
    """Options of a graph that serves policies without a learner."""

    policy_from: str = setting('', 'run folder, or a policy written by lpgftw export')
    suite: str = setting('', 'suite name or YAML file; empty: that of the run or policy')
    workers: int = again(SamplingOptions, 'workers', 1)
    realtime_factor: float = again(PacingOptions, 'realtime_factor', 1.0)
    publish_clock: bool = again(PacingOptions, 'publish_clock', False)

    def __post_init__(self) -> None:
        """Reject values that no graph can start with; find the suite."""
        CommonOptions.__post_init__(self)
        if not self.policy_from:
            raise InvalidConfig('policy_from is needed: a run folder or an exported policy')
        if not self.suite:
            object.__setattr__(self, 'suite', suite_of(Path(self.policy_from)))


def suite_of(path: Path) -> str:
    """Return the suite of a run or an exported policy."""
    if path.is_dir():
        from lpgftw_ros.runs.folder import read_config  # slow to import, not always needed

        return read_config(path).suite_source
    from lpgftw_ros.deploy.export import load_policy

    suite = load_policy(path).origin.get('suite')
    if not suite:
        raise InvalidConfig(f'{path} does not say its suite; give suite')
    return str(suite)


def policy_options(values: Mapping[str, Any]) -> PolicyOptions:
    """Build options from texts or values; unknown names and bad values are errors."""
    return configure(PolicyOptions, values, 'argument')


def describe_policies(options: PolicyOptions, given: Iterable[str] = ()) -> Graph:
    """Return the graph; `given` names the options that win over the parameter file."""
    nodes = ('sim_bridge', 'policy')
    hosts = {'composed': nodes} if options.composed else {name: (name,) for name in nodes}
    return assemble(options, hosts, {*given, 'policy_from', 'suite', 'realtime_factor'})
