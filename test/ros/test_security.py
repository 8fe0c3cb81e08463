"""The written permissions cover what the nodes of a running graph use."""

from pathlib import Path

import pytest
import rclpy
from rclpy.action import (
    get_action_client_names_and_types_by_node,
    get_action_server_names_and_types_by_node,
)

from lpgftw_ros.commands.security import enclave_nodes, GRAPHS, launch_values
from lpgftw_ros.graph.admission import Endpoints

from .arm_cell import ArmCell, write_limits, write_reach_policy
from .lifelong_graph import GraphClient, options, wait_for, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]


def used(node: rclpy.node.Node, name: str) -> Endpoints:
    """Return what a running node of /lifelong publishes, hears, serves, requests and so on."""

    def names(pairs: list[tuple[str, list[str]]]) -> tuple[str, ...]:
        return tuple(one for one, _ in pairs if '/_action/' not in one)

    where = (name, '/lifelong')
    return Endpoints(
        publishes=names(node.get_publisher_names_and_types_by_node(*where)),
        hears=names(node.get_subscriber_names_and_types_by_node(*where)),
        serves=names(node.get_service_names_and_types_by_node(*where)),
        requests=names(node.get_client_names_and_types_by_node(*where)),
        executes=names(get_action_server_names_and_types_by_node(node, *where)),
        calls=names(get_action_client_names_and_types_by_node(node, *where)),
    )


def permissions(graph: str, words: list[str]) -> dict[str, Endpoints]:
    """Return what each node of a graph may use."""
    enclaves = enclave_nodes(GRAPHS[graph](launch_values(words))).values()
    nodes = {name: allowed for one in enclaves for name, allowed in one.items()}
    return {name: nodes[name] for name in nodes if name not in ('operator', 'arm')}


def missing(until, node: rclpy.node.Node, allowed_to: dict[str, Endpoints]) -> list[str]:
    """Return what running nodes use without a permission; wait `until` all are there."""
    assert until(lambda: set(allowed_to) <= set(node.get_node_names()), 60.0), (
        f'not there: {set(allowed_to) - set(node.get_node_names())}'
    )
    until(lambda: False, 3.0)  # what was opened last is known
    found = []
    for name, allowed in allowed_to.items():
        ends = used(node, name)
        assert ends.publishes, f'{name} is not there'
        for kind in ('publishes', 'hears', 'serves', 'requests', 'executes', 'calls'):
            without = set(getattr(ends, kind)) - set(getattr(allowed, kind))
            found += [f'{name} {kind} {one}' for one in sorted(without)]
    return found


def test_a_lifelong_graph_needs_no_more_than_its_permissions(start, tmp_path: Path) -> None:
    more = ['--scene', '--dashboard', '--dashboard-port', '0', '--publish-clock']
    up = start('--no-autotrain', *more, *options(write_suite(tmp_path), tmp_path / 'run'))
    client = GraphClient()
    try:
        assert wait_for(lambda: up.output.count(': active') == 5, 90.0), up.output
        allowed = permissions('lifelong', ['scene:=true', 'dashboard:=true'])
        assert missing(client.until, client.node, allowed) == []
    finally:
        client.close()
        up.stop()


def test_a_graph_around_an_arm_needs_no_more_than_its_permissions(
    ros_domain: int, tmp_path: Path
) -> None:
    files = {
        'policy_file': write_reach_policy(tmp_path),
        'limits_file': write_limits(tmp_path),
    }
    cell = ArmCell(**files)
    try:
        cell.configure()
        words = ['rehearse:=true', *(f'{key}:={value}' for key, value in files.items())]
        assert missing(cell.until, cell.node, permissions('deploy', words)) == []
    finally:
        cell.stop()
