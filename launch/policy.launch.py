"""Serve learned policies: `ros2 launch lpgftw_ros policy.launch.py policy_from:=runs/demo`.

A bridge and the policy node, no learner. `switch_task` chooses the task, `sim_bridge/run` and
`sim_bridge/stop` start and stop its episodes.
"""

from collections.abc import Mapping

from launch import LaunchDescription, LaunchDescriptionEntity

from lpgftw_ros.graph.bringup import describe_policies, policy_options, PolicyOptions
from lpgftw_ros.nodes.launching import GraphLaunch

LAUNCH = GraphLaunch(__file__, PolicyOptions, required=('policy_from',), with_rviz=True)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the processes they ask for."""
    return LAUNCH.description(processes)


def processes(values: Mapping[str, str], given: set[str]) -> list[LaunchDescriptionEntity]:
    """Return the processes of the graph."""
    graph = describe_policies(policy_options(values), given)
    return [node for _, node in LAUNCH.nodes(graph)]
