"""What the launch files share: options become launch arguments, processes become actions.

Only the launch files import this: it needs `launch` and `launch_ros`, which come with ROS.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
import sys
import tempfile

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch_ros.actions import Node

from lpgftw_ros.bringup import Graph, PACKAGE, Process
from lpgftw_ros.errors import UnknownName

Start = Callable[[Mapping[str, str], set[str]], list[LaunchDescriptionEntity]]
"""From the value of every argument, and the names of those that were given, to actions."""


class GraphLaunch:
    """The arguments and processes of one launch file."""

    def __init__(self, file: str, options: type, required: Iterable[str] = ()) -> None:
        self._file, self._required = Path(file).name, set(required)
        self._arguments = {item.name: item for item in fields(options)}
        self._given: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix='lpgftw-')  # as long as the launch

    def description(self, start: Start) -> LaunchDescription:
        """Declare the arguments and start what they ask for."""

        def begin(context: LaunchContext) -> list[LaunchDescriptionEntity]:
            values = {name: context.launch_configurations[name] for name in self._arguments}
            return start(values, self._given)

        return LaunchDescription(
            [
                OpaqueFunction(function=self._remember_given),
                *(self._declared(name) for name in self._arguments),
                OpaqueFunction(function=begin),
            ]
        )

    def nodes(self, graph: Graph) -> list[tuple[Process, Node]]:
        """Return the processes of a graph and the actions that start them."""
        parameters = graph.write_parameters(Path(self._folder.name))
        return [(process, _action(process, parameters)) for process in graph.processes]

    def _remember_given(self, context: LaunchContext) -> None:
        """Note which arguments were given, before defaults fill in, and refuse unknown ones.

        `ros2 launch` itself ignores unknown arguments. Only its own command line is checked: a
        launch file that includes this one may have arguments of its own.
        """
        known = self._arguments
        self._given.update(name for name in context.launch_configurations if name in known)
        if any(Path(word).name == self._file for word in sys.argv):
            for word in (word.split(':=')[0] for word in sys.argv if ':=' in word):
                if word not in known:
                    raise UnknownName('argument', word, known)

    def _declared(self, name: str) -> DeclareLaunchArgument:
        """Return one argument with its description, default and choices."""
        item = self._arguments[name]
        is_flag = isinstance(item.default, bool)
        default = str(item.default).lower() if is_flag else str(item.default)
        return DeclareLaunchArgument(
            name,
            default_value=None if name in self._required else default,
            description=item.metadata['help'],
            choices=['true', 'false'] if is_flag else item.metadata['choices'],
        )


def _action(process: Process, parameters: str) -> Node:
    """Return the launch action of one process."""
    return Node(
        package=PACKAGE,
        executable=process.executable,
        namespace=process.namespace,
        remappings=list(process.remappings),
        ros_arguments=process.ros_arguments(parameters),
        additional_env=dict(process.environment),
        output='screen',
        emulate_tty=True,
        sigterm_timeout='4',
        respawn=process.respawn,
        respawn_delay=1.0,
    )
