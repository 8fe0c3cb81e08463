"""Serve learned policies: `ros2 launch lpgftw_ros policy.launch.py policy_from:=runs/demo`.

A bridge and the policy node, no learner. `switch_task` chooses the task, `sim_bridge/run` and
`sim_bridge/stop` start and stop its episodes.
"""

from dataclasses import fields
from pathlib import Path
import sys
import tempfile

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch_ros.actions import Node

from lpgftw_ros.bringup import PACKAGE
from lpgftw_ros.policy_graph import describe_policies, policy_options, PolicyOptions

FILE = Path(__file__).name
ARGUMENTS = {item.name: item for item in fields(PolicyOptions)}
FOLDER = tempfile.TemporaryDirectory(prefix='lpgftw-')  # lives as long as the launch
GIVEN: set[str] = set()


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the processes they ask for."""
    return LaunchDescription(
        [
            OpaqueFunction(function=remember_given),
            *(declared(name) for name in ARGUMENTS),
            OpaqueFunction(function=processes),
        ]
    )


def remember_given(context: LaunchContext) -> None:
    """Note which arguments were given, and refuse unknown ones on the command line."""
    GIVEN.update(name for name in context.launch_configurations if name in ARGUMENTS)
    if any(Path(word).name == FILE for word in sys.argv):
        words = [word.split(':=')[0] for word in sys.argv if ':=' in word]
        if unknown := {word: '' for word in words if word not in ARGUMENTS}:
            policy_options(unknown)


def declared(name: str) -> DeclareLaunchArgument:
    """Return one argument with its description, default and choices."""
    item = ARGUMENTS[name]
    is_flag = isinstance(item.default, bool)
    if name == 'policy_from':
        return DeclareLaunchArgument(name, description=item.metadata['help'])
    return DeclareLaunchArgument(
        name,
        default_value=str(item.default).lower() if is_flag else str(item.default),
        description=item.metadata['help'],
        choices=['true', 'false'] if is_flag else item.metadata['choices'],
    )


def processes(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Return the processes of the graph."""
    options = policy_options({name: context.launch_configurations[name] for name in ARGUMENTS})
    graph = describe_policies(options, GIVEN)
    parameters = graph.write_parameters(Path(FOLDER.name))
    return [
        Node(
            package=PACKAGE,
            executable=process.executable,
            namespace=process.namespace,
            remappings=list(process.remappings),
            ros_arguments=process.ros_arguments(parameters),
            additional_env=dict(process.environment),
            respawn=process.respawn,
            respawn_delay=1.0,
            output='screen',
            emulate_tty=True,
            sigterm_timeout='4',
        )
        for process in graph.processes
    ]
