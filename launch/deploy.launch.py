"""Start the graph around an arm: `ros2 launch lpgftw_ros deploy.launch.py rehearse:=true ...`.

Nothing moves until `arm_bridge` and `safety_guard` are configured and activated by hand:
`ros2 lifecycle set /lifelong/safety_guard configure`, then `activate`. See docs/deploy.md.
"""

from collections.abc import Mapping

from launch import LaunchDescription, LaunchDescriptionEntity

from lpgftw_ros.graph.deployment import (
    deploy_options,
    DeployOptions,
    describe_deployment,
    require_files,
)
from lpgftw_ros.nodes.launching import GraphLaunch

LAUNCH = GraphLaunch(__file__, DeployOptions)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the processes they ask for."""
    return LAUNCH.description(processes)


def processes(values: Mapping[str, str], given: set[str]) -> list[LaunchDescriptionEntity]:
    """Return the processes of the graph; none of them is started again."""
    options = deploy_options(values)
    require_files(options)
    return [node for _, node in LAUNCH.nodes(describe_deployment(options))]
