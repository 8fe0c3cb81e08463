"""Start the lifelong-learning graph: `ros2 launch lpgftw_ros lifelong.launch.py suite:=demo`."""

from collections.abc import Mapping
import time

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import RegisterEventHandler, Shutdown
from launch.event_handlers import OnProcessExit
from launch.events.process import ProcessExited

from lpgftw_ros.graph.bringup import describe, GraphOptions, options_from, Process, require_run
from lpgftw_ros.graph.supervisor import MAX_CRASHES, STEADY_TIME, WRONG_SETTINGS
from lpgftw_ros.nodes.launching import GraphLaunch

LAUNCH = GraphLaunch(__file__, GraphOptions, with_rviz=True)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the processes they ask for."""
    return LAUNCH.description(processes)


def processes(values: Mapping[str, str], given: set[str]) -> list[LaunchDescriptionEntity]:
    """Return the processes of the graph, and what happens when one of them ends."""
    options = require_run(options_from(values), given)
    actions: list[LaunchDescriptionEntity] = []
    for process, node in LAUNCH.nodes(describe(options, given)):
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
