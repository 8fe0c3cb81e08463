"""The graph without a learner in plain Python: a bridge and the policies that are there.

`launch/policy.launch.py` starts it with `ros2 launch`, `lpgftw up --policy-from` without. No ROS
import here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpgftw_ros.bringup import assemble, CommonOptions, Graph
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.config import configure, setting
from lpgftw_ros.runs.folder import read_config


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyOptions(CommonOptions):
    """What may be chosen when policies are served without a learner."""

    policy_from: str = setting('', 'run folder, or a policy written by lpgftw export')
    suite: str = setting('', 'suite name or YAML file; empty: that of the run or policy')
    workers: int = setting(1, 'simulation workers, 0: one per core', min=0, max=1024)
    realtime_factor: float = setting(
        1.0, 'simulated seconds per second, 0: as fast as possible', min=0.0, max=1000.0
    )

    def __post_init__(self) -> None:
        """Reject what no graph can be started with; find the suite."""
        CommonOptions.__post_init__(self)
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
    return configure(PolicyOptions, values, 'argument')


def describe_policies(options: PolicyOptions, given: Iterable[str] = ()) -> Graph:
    """Return the graph; `given` names the options that win over the parameter file."""
    nodes = ('sim_bridge', 'policy')
    hosts = {'composed': nodes} if options.composed else {name: (name,) for name in nodes}
    return assemble(options, hosts, {*given, 'policy_from', 'suite', 'realtime_factor'})
