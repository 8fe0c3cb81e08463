"""The launch file, read by the real launch_ros where there is one."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from lpgftw_ros.graph.bringup import describe, GraphOptions

pytestmark = pytest.mark.ros
FILE = Path(__file__).resolve().parents[2] / 'launch' / 'lifelong.launch.py'


@pytest.mark.skipif(
    importlib.util.find_spec('launch_ros') is None,
    reason='launch_ros comes with a ROS installation, there is no wheel of it; source ROS first',
)
def test_the_launch_file_starts_the_described_processes(ros_domain):
    from launch import LaunchContext
    from launch.actions import DeclareLaunchArgument
    from launch.launch_description_sources import get_launch_description_from_python_launch_file
    from launch_ros.actions import Node

    context = LaunchContext()
    context._set_asyncio_loop(asyncio.new_event_loop())
    entities, nodes, declared = (
        [*get_launch_description_from_python_launch_file(str(FILE)).entities],
        [],
        [],
    )
    while entities:
        entity = entities.pop(0)
        if isinstance(entity, Node):
            nodes.append((entity.node_package, entity.node_executable))
            continue
        if isinstance(entity, DeclareLaunchArgument):
            declared.append(entity.name)
            assert entity.description
        entities = [*(entity.visit(context) or []), *entities]
    graph = describe(GraphOptions())
    assert nodes == [('lpgftw_ros', process.executable) for process in graph.processes]
    assert {'suite', 'learner', 'composed', 'namespace', 'params_file'} <= set(declared)
