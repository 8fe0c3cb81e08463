"""Start the lifelong-learning graph: `ros2 launch lpgftw_ros lifelong.launch.py suite:=demo`."""

from dataclasses import fields
from pathlib import Path
import sys
import tempfile
import time

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, OpaqueFunction, RegisterEventHandler, Shutdown
from launch.event_handlers import OnProcessExit
from launch.events.process import ProcessExited
from launch_ros.actions import Node

from lpgftw_ros.bringup import (
    describe,
    GraphOptions,
    options_from,
    PACKAGE,
    Process,
    require_run,
)
from lpgftw_ros.supervisor import MAX_CRASHES, STEADY_TIME, WRONG_SETTINGS

FILE = Path(__file__).name
ARGUMENTS = {item.name: item for item in fields(GraphOptions)}
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


def declared(name: str) -> DeclareLaunchArgument:
    """Return one argument with its description, default and choices."""
    item = ARGUMENTS[name]
    default = str(item.default).lower() if isinstance(item.default, bool) else str(item.default)
    choices = ['true', 'false'] if isinstance(item.default, bool) else item.metadata['choices']
    return DeclareLaunchArgument(
        name, default_value=default, description=item.metadata['help'], choices=choices
    )


def remember_given(context: LaunchContext) -> None:
    """Note which arguments were given, before defaults fill in, and refuse unknown ones.

    `ros2 launch` itself ignores unknown arguments. Only its own command line is checked: a
    launch file that includes this one may have arguments of its own.
    """
    GIVEN.update(name for name in context.launch_configurations if name in ARGUMENTS)
    if any(Path(word).name == FILE for word in sys.argv):
        words = [word.split(':=')[0] for word in sys.argv if ':=' in word]
        options_from({word: '' for word in words if word not in ARGUMENTS})


def processes(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Return the processes of the graph, and what happens when one of them ends."""
    values = {name: context.launch_configurations[name] for name in ARGUMENTS}
    options = options_from(values)
    require_run(options)
    graph = describe(options, GIVEN)
    parameters = graph.write_parameters(Path(FOLDER.name))
    actions: list[LaunchDescriptionEntity] = []
    for process in graph.processes:
        node = action(process, parameters)
        ends_all = options.autotrain and 'learner' in process.nodes
        handler = OnProcessExit(target_action=node, on_exit=Ended(process, ends_all))
        actions += [node, RegisterEventHandler(handler)]
    return actions


class Ended:
    """Decides what the end of a process means; launch itself starts crashed ones again."""

    def __init__(self, process: Process, ends_all: bool) -> None:
        self._process, self._ends_all = process, ends_all
        self._crashes: list[float] = []

    def __call__(self, event: ProcessExited, context: LaunchContext) -> list[Shutdown]:
        """Shut down when the last task is learned; fail when a restart cannot help."""
        name, code = self._process.executable, event.returncode
        if context.is_shutdown:
            return []
        if code == 0:
            reason = f'{name} is done' if self._ends_all else f'{name} has ended'
            return [Shutdown(reason=reason)]
        now = time.monotonic()
        self._crashes = [then for then in self._crashes if now - then < STEADY_TIME] + [now]
        if code == WRONG_SETTINGS or not self._process.respawn or len(self._crashes) > MAX_CRASHES:
            raise RuntimeError(f'{name} ended with {code} and is not started again')
        return []


def action(process: Process, parameters: str) -> Node:
    """Return the launch action of one process."""
    return Node(
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
