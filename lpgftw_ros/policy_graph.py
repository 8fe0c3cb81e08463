"""The graph without a learner in plain Python: a bridge and the policies that are there.

`launch/policy.launch.py` starts it with `ros2 launch`, `lpgftw up --policy-from` without. No ROS
import here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lpgftw_ros.bringup import assemble, DISCOVERY, Graph, LOG_LEVELS, require_namespace
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.config import check_settings, configure, setting
from lpgftw_ros.runs.folder import read_config


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyOptions:
    """What may be chosen when policies are served without a learner."""

    policy_from: str = setting('', 'run folder, or a policy written by lpgftw export')
    suite: str = setting('', 'suite name or YAML file; empty: that of the run or policy')
    workers: int = setting(1, 'simulation workers, 0: one per core', min=0, max=1024)
    realtime_factor: float = setting(
        1.0, 'simulated seconds per second, 0: as fast as possible', min=0.0, max=1000.0
    )
    composed: bool = setting(False, 'bridge and policy in one process')
    autostart: bool = setting(True, 'configure and activate the nodes')
    respawn: bool = setting(True, 'start a crashed node again')
    namespace: str = setting('/lifelong', 'namespace of both nodes')
    discovery_range: str = setting(
        'LOCALHOST', 'who can see the graph; SUBNET opens it to other machines', choices=DISCOVERY
    )
    log_level: str = setting('info', 'log level of both nodes', choices=LOG_LEVELS)
    sim_bridge_log_level: str = setting(
        '', 'log level of sim_bridge; empty: log_level', choices=('', *LOG_LEVELS)
    )
    policy_log_level: str = setting(
        '', 'log level of policy; empty: log_level', choices=('', *LOG_LEVELS)
    )
    params_file: str = setting('', 'ROS parameter file; options given here win over it')
    run_id: str = setting('', 'names the graph; empty: a new name')

    def __post_init__(self) -> None:
        """Reject what no graph can be started with; find the suite."""
        check_settings(self)
        require_namespace(self.namespace)
        if not self.policy_from:
            raise InvalidConfig('policy_from is needed: a run folder or an exported policy')
        if not self.suite:
            object.__setattr__(self, 'suite', suite_of(Path(self.policy_from)))


def suite_of(path: Path) -> str:
    """Return the suite a run or an exported policy was made with."""
    if path.is_dir():
        return read_config(path).suite
    from lpgftw_ros.deploy.export import load_policy

    suite = load_policy(path).origin.get('suite')
    if not suite:
        raise InvalidConfig(f'{path} does not say its suite; give suite')
    return str(suite)


def policy_options(values: Mapping[str, Any]) -> PolicyOptions:
    """Build options from texts or values; unknown names and bad values are errors."""
    known = [item.name for item in fields(PolicyOptions)]
    for name in values:
        if name not in known:
            raise UnknownName('argument', name, known)
    return configure(PolicyOptions, values)


def describe_policies(options: PolicyOptions, given: Iterable[str] = ()) -> Graph:
    """Return the graph; `given` names the options that win over the parameter file."""
    nodes = ('sim_bridge', 'policy')
    hosts = {'composed': nodes} if options.composed else {name: (name,) for name in nodes}
    return assemble(options, hosts, {*given, 'policy_from', 'suite', 'realtime_factor'})
