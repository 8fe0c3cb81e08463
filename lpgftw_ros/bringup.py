"""The graph in plain Python: which processes, with which nodes, names and parameters.

Two thin readers start it: `launch/lifelong.launch.py` with `ros2 launch`, and `lpgftw up` where
there is no `ros2` command. No ROS import here.
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
from lpgftw_ros.learning.config import check_settings, configure, setting
from lpgftw_ros.nodes.parameters import AS_PRESET, LearnerConfig, NODES

PACKAGE = 'lpgftw_ros'
LOG_LEVELS = ('debug', 'info', 'warn', 'error', 'fatal')
DISCOVERY = ('LOCALHOST', 'SUBNET', 'OFF', 'SYSTEM_DEFAULT')


def require_namespace(namespace: str) -> None:
    """Raise `InvalidConfig` for a namespace ROS would not take."""
    if not re.fullmatch(r'(/[A-Za-z_]\w*)+', namespace):
        raise InvalidConfig(f"namespace must be like /lifelong or /cell_1/arm, got '{namespace}'")


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonOptions:
    """What may be chosen for every graph around the simulator."""

    composed: bool = setting(False, 'bridge and policy in one process')
    autostart: bool = setting(True, 'configure and activate the nodes')
    respawn: bool = setting(True, 'start a crashed node again')
    namespace: str = setting('/lifelong', 'namespace of all nodes')
    discovery_range: str = setting(
        'LOCALHOST', 'who can see the graph; SUBNET opens it to other machines', choices=DISCOVERY
    )
    log_level: str = setting('info', 'log level of all nodes', choices=LOG_LEVELS)
    sim_bridge_log_level: str = setting(
        '', 'log level of sim_bridge; empty: log_level', choices=('', *LOG_LEVELS)
    )
    policy_log_level: str = setting(
        '', 'log level of policy; empty: log_level', choices=('', *LOG_LEVELS)
    )
    params_file: str = setting('', 'ROS parameter file; options given here win over it')
    run_id: str = setting('', 'names the graph; empty: a new name')

    def __post_init__(self) -> None:
        """Reject values no graph can be started with."""
        check_settings(self)
        require_namespace(self.namespace)


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphOptions(CommonOptions):
    """What may be chosen when the graph is started."""

    suite: str = setting('demo', 'suite name or YAML file (see lpgftw tasks)')
    learner: str = setting('lpg-ftw', 'lpg-ftw, stl, ewc, ewc-h, er or pg-ella')
    seed: int = setting(
        AS_PRESET, 'root of all random numbers, -1: as the preset says', min=-1, max=2**31 - 1
    )
    tasks: str = setting('', 'how many tasks, or their names separated by commas; empty: all')
    iterations: int = setting(
        AS_PRESET, 'policy steps per task, -1: as the preset says', min=-1, max=100_000
    )
    trajectories: int = setting(
        AS_PRESET, 'trajectories per policy step, -1: as the preset says', min=-1, max=10_000
    )
    workers: int = setting(0, 'simulation workers, 0: one per core', min=0, max=1024)
    preset: str = setting('published', 'published or paper: whose equations')
    settings: str = setting('', 'any setting of the run or learner, KEY=VALUE;KEY=VALUE')
    source: str = setting('', 'finished STL run pg-ella starts from')
    out: str = setting('', 'run folder; empty: runs/<suite>-<learner>-<seed>')
    resume: bool = setting(False, 'continue the run in out')
    autotrain: bool = setting(True, 'learn the tasks in sequence without being asked')
    exit_when_done: bool = setting(False, 'end when all tasks are learned')
    realtime_factor: float = setting(
        0.0, 'simulated seconds per second, 0: as fast as possible', min=0.0, max=1000.0
    )
    learner_log_level: str = setting(
        '', 'log level of learner; empty: log_level', choices=('', *LOG_LEVELS)
    )


@dataclass(frozen=True, slots=True)
class Process:
    """One operating-system process of the graph and how to start it."""

    executable: str
    """Entry point of the package; also the module `lpgftw_ros.nodes.<executable>`."""
    nodes: tuple[str, ...]
    """Names of the nodes it hosts."""
    namespace: str
    parameters: Mapping[str, Mapping[str, Any]]
    """Node name -> parameter -> value; only what was asked for, the rest has its default."""
    respawn: bool
    environment: Mapping[str, str]
    log_levels: Mapping[str, str]
    """Node name -> log level."""
    parameter_files: tuple[str, ...] = ()
    remappings: tuple[tuple[str, str], ...] = ()

    def ros_arguments(self, *parameter_files: str) -> list[str]:
        """Return the words after --ros-args, namespace and remappings aside."""
        words = []
        for path in (*self.parameter_files, *parameter_files):  # the last one wins
            words += ['--params-file', path]
        for node, level in self.log_levels.items():
            logger = f'{self.namespace}/{node}'.strip('/').replace('/', '.')
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
        return tuple(f'{self.namespace}/{n}' for p in self.processes for n in p.nodes)

    def write_parameters(self, folder: Path) -> str:
        """Write the parameters of all nodes as a ROS parameter file and return its path."""
        content = {
            f'{self.namespace}/{node}': {'ros__parameters': dict(values)}
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
    """Raise for a suite, task or setting no run can be made with, before anything starts.

    Return the options with the suite of the run: one that is resumed brings its own. `given`
    names the options that were said. What a parameter file says is left to the nodes.
    """
    from lpgftw_ros.nodes.run_settings import run_settings  # slow to import, not always needed

    if options.params_file:
        return options
    names = [item.name for item in fields(LearnerConfig)]
    config = LearnerConfig(**{name: getattr(options, name) for name in names})
    return replace(options, suite=run_settings(config, given)[0].suite)


def describe(options: GraphOptions, given: Iterable[str] = ()) -> Graph:
    """Return the graph; `given` names the options that win over the parameter file."""
    hosts = (
        {'composed': ('sim_bridge', 'policy'), 'learner': ('learner',)}
        if options.composed
        else {name: (name,) for name in NODES}
    )
    return assemble(options, hosts, given)


def assemble(
    options: CommonOptions, hosts: Mapping[str, tuple[str, ...]], given: Iterable[str]
) -> Graph:
    """Return the graph whose executables host these nodes."""
    run_id = options.run_id or f'{time.strftime("%Y%m%d-%H%M%S")}-{secrets.token_hex(2)}'
    files = _parameter_files(options.params_file)
    chosen = set(given) if files else {item.name for item in fields(options)}
    environment = {'ROS_AUTOMATIC_DISCOVERY_RANGE': options.discovery_range}
    processes = tuple(
        Process(
            executable=executable,
            nodes=nodes,
            namespace=options.namespace,
            parameters={node: _parameters(node, options, chosen, run_id) for node in nodes},
            respawn=options.respawn,
            environment=environment,
            log_levels={
                node: getattr(options, f'{node}_log_level') or options.log_level for node in nodes
            },
            parameter_files=files,
        )
        for executable, nodes in hosts.items()
    )
    return Graph(run_id, options.namespace, processes, environment)


def _parameters(
    node: str, options: CommonOptions, chosen: set[str], run_id: str
) -> dict[str, Any]:
    names = [item.name for item in fields(NODES[node])]
    values = {name: getattr(options, name) for name in names if name in chosen}
    for name in ('out', 'source', 'policy_from'):
        if values.get(name):  # nodes may be started in another folder
            values[name] = str(Path(values[name]).absolute())
    return values | {'run_id': run_id}


def _parameter_files(path: str) -> tuple[str, ...]:
    if not path:
        return ()
    try:
        content = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise InvalidConfig(f'params_file {path} cannot be read: {error.strerror}') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f'params_file {path} is not valid YAML') from error
    nodes = content.values() if isinstance(content, dict) else [None]
    if not all(isinstance(n, dict) and isinstance(n.get('ros__parameters'), dict) for n in nodes):
        raise InvalidConfig(f'params_file {path} must map node names to ros__parameters')
    return (str(Path(path).absolute()),)
