"""Start the graph around an arm: `ros2 launch lpgftw_ros deploy.launch.py rehearse:=true ...`.

Nothing moves until `arm_bridge` and `safety_guard` are configured and activated by hand:
`ros2 lifecycle set /lifelong/safety_guard configure`, then `activate`. See docs/deploy.md.
"""

from dataclasses import fields
from pathlib import Path
import sys
import tempfile

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch_ros.actions import Node

from lpgftw_ros.bringup import PACKAGE
from lpgftw_ros.deploy_graph import (
    deploy_options,
    DeployOptions,
    describe_deployment,
    require_files,
)

FILE = Path(__file__).name
ARGUMENTS = {item.name: item for item in fields(DeployOptions)}
RIGHT = {'rehearse': True, 'reward': 'topic'}  # settings nothing can be said against
FOLDER = tempfile.TemporaryDirectory(prefix='lpgftw-')  # lives as long as the launch


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the processes they ask for."""
    return LaunchDescription(
        [*(declared(name) for name in ARGUMENTS), OpaqueFunction(function=processes)]
    )


def declared(name: str) -> DeclareLaunchArgument:
    """Return one argument with its description, default and choices."""
    item = ARGUMENTS[name]
    is_flag = isinstance(item.default, bool)
    return DeclareLaunchArgument(
        name,
        default_value=str(item.default).lower() if is_flag else str(item.default),
        description=item.metadata['help'],
        choices=['true', 'false'] if is_flag else item.metadata['choices'],
    )


def processes(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Return the processes of the graph; none of them is started again."""
    if any(Path(word).name == FILE for word in sys.argv):  # ros2 launch ignores unknown ones
        words = [word.split(':=')[0] for word in sys.argv if ':=' in word]
        deploy_options({word: '' for word in words if word not in ARGUMENTS} or RIGHT)
    values = {name: context.launch_configurations[name] for name in ARGUMENTS}
    options = deploy_options(values)
    require_files(options)
    graph = describe_deployment(options)
    parameters = graph.write_parameters(Path(FOLDER.name))
    return [
        Node(
            package=PACKAGE,
            executable=process.executable,
            namespace=process.namespace,
            ros_arguments=process.ros_arguments(parameters),
            additional_env=dict(process.environment),
            respawn=False,
            output='screen',
            emulate_tty=True,
            sigterm_timeout='4',
        )
        for process in graph.processes
    ]
