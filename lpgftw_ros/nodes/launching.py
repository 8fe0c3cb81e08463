"""The common part of the launch files: options become launch arguments, processes actions.

Only the launch files import this: it needs `launch` and `launch_ros`, which come with ROS.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
import os
from pathlib import Path
import sys
import tempfile

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch_ros.actions import Node

from lpgftw_ros.errors import UnknownName
from lpgftw_ros.graph.admission import require_free
from lpgftw_ros.graph.bringup import full_name, Graph, PACKAGE, Process
from lpgftw_ros.learning.config import setting
from lpgftw_ros.resources import data_folder
from lpgftw_ros.runs.settings import typed_help

Start = Callable[[Mapping[str, str], set[str]], list[LaunchDescriptionEntity]]
"""From the value of every argument, and the names of those that were given, to actions."""


@dataclass(frozen=True)
class RvizOption:
    """What only `ros2 launch` can start."""

    rviz: bool = setting(False, 'also start RViz and the node scene')


class GraphLaunch:
    """The arguments and processes of one launch file."""

    def __init__(
        self, file: str, options: type, required: Iterable[str] = (), *, with_rviz: bool = False
    ) -> None:
        self._file, self._required = Path(file).name, set(required)
        offered = (*fields(options), *(fields(RvizOption) if with_rviz else ()))
        self._arguments = {item.name: item for item in offered}
        self._given: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix='lpgftw-')  # as long as the launch

    def description(self, start: Start) -> LaunchDescription:
        """Declare the arguments and start the graph they describe."""

        def begin(context: LaunchContext) -> list[LaunchDescriptionEntity]:
            values = {name: context.launch_configurations[name] for name in self._arguments}
            if values.pop('rviz', 'false') != 'true':
                return start(values, self._given)
            actions = start(values | {'scene': 'true'}, self._given | {'scene'})
            return [*actions, self._rviz(values['namespace'])]

        return LaunchDescription(
            [
                OpaqueFunction(function=self._remember_given),
                *(self._declared(name) for name in self._arguments),
                OpaqueFunction(function=begin),
            ]
        )

    def nodes(self, graph: Graph) -> list[tuple[Process, Node]]:
        """Return the processes of a graph and the actions that start them."""
        require_free(graph.nodes)
        parameters = graph.write_parameters(Path(self._folder.name))
        return [(process, _action(process, parameters)) for process in graph.processes]

    def _rviz(self, namespace: str) -> Node:
        """Return the action that opens RViz on the topics of a namespace."""
        text = (data_folder('config') / 'lifelong.rviz').read_text()
        path = Path(self._folder.name) / 'lifelong.rviz'
        path.write_text(text.replace('/lifelong/', full_name(namespace, '')))
        return Node(package='rviz2', executable='rviz2', arguments=['-d', str(path)])

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
            description=typed_help(item),
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
        additional_env={**process.environment, 'LPGFTW_PARENT': str(os.getpid())},
        output='screen',
        emulate_tty=True,
        sigterm_timeout='4',
        respawn=process.respawn,
        respawn_delay=1.0,
    )
