"""`lpgftw security`: SROS2 permissions for the nodes of a graph, from its description.

Each process gets an enclave and may use the topics, services and actions of its nodes, no other.
People and their tools share the enclave `operator`. Around an arm only `safety_guard` may publish
on the topics of commands; what drives the arm has the enclave `arm`.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any
from xml.etree import ElementTree

from lpgftw_ros import arguments
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.graph.admission import ENDPOINTS, Endpoints, EVERY_NODE, INTERNAL
from lpgftw_ros.graph.bringup import (
    describe,
    describe_policies,
    full_name,
    Graph,
    options_from,
    policy_options,
    Process,
)
from lpgftw_ros.graph.deployment import deploy_options, describe_deployment
from lpgftw_ros.graph.parameters import COMMAND_NAMES, GRIPPER_ACTION

GRAPHS: dict[str, Callable[[Mapping[str, str]], Graph]] = {
    'lifelong': lambda values: describe(options_from(values)),
    'policy': lambda values: describe_policies(policy_options(values)),
    'deploy': lambda values: describe_deployment(deploy_options(values)),
}
"""The launch files and what each of them starts."""
VERSION = '0.2.0'
"""Version of SROS2's policy format."""
OPERATOR, ARM = 'operator', 'arm'
RULES = {
    'publishes': ('topics', 'topic', 'publish'),
    'hears': ('topics', 'topic', 'subscribe'),
    'serves': ('services', 'service', 'reply'),
    'requests': ('services', 'service', 'request'),
    'executes': ('actions', 'action', 'execute'),
    'calls': ('actions', 'action', 'call'),
}
"""Kind of endpoint -> list, entry and right in SROS2's words."""
NEXT = """\
wrote {path}: {count} enclaves. On a machine with ROS 2 and its security (docs/security.md):
  ros2 security create_keystore KEYS
  ros2 security generate_artifacts -k KEYS -p {path}
  export ROS_SECURITY_KEYSTORE=KEYS ROS_SECURITY_ENABLE=true ROS_SECURITY_STRATEGY=Enforce
  ros2 launch lpgftw_ros {graph}.launch.py {words}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('out', type=arguments.new_folder, metavar='OUT', help='folder to write to')
    parser.add_argument(
        'graph', choices=GRAPHS, nargs='?', default='lifelong', help='launch file (lifelong)'
    )
    parser.add_argument(
        'words', nargs='*', metavar='NAME:=VALUE', help='the arguments of the launch file'
    )


def run(args: argparse.Namespace) -> int:
    """Write the policy file and say what to do with it."""
    root = policy(GRAPHS[args.graph](launch_values(args.words)))
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / 'policy.xml'
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding='utf-8', xml_declaration=True)
    words = {'path': path, 'graph': args.graph, 'words': ' '.join(args.words)}
    print(NEXT.format(count=len(root[0]), **words).rstrip())
    return 0


def launch_values(words: list[str]) -> dict[str, str]:
    """Read NAME:=VALUE as `ros2 launch` does."""
    values = {}
    for word in words:
        name, found, value = word.partition(':=')
        if not found or not name:
            raise InvalidConfig(f"arguments are NAME:=VALUE as for ros2 launch, got '{word}'")
        values[name] = value
    return values


def policy(graph: Graph) -> ElementTree.Element:
    """Return SROS2's policy of a graph."""
    root = ElementTree.Element('policy', version=VERSION)
    enclaves = ElementTree.SubElement(root, 'enclaves')
    for path, nodes in enclave_nodes(graph).items():
        enclave = ElementTree.SubElement(enclaves, 'enclave', path=path)
        profiles = ElementTree.SubElement(enclave, 'profiles')
        for node, ends in nodes.items():
            profile = ElementTree.SubElement(profiles, 'profile', ns=graph.namespace, node=node)
            for kind, (several, one, right) in RULES.items():
                names = sorted(set(getattr(ends, kind)))
                if names:
                    rule = ElementTree.SubElement(profile, several, {right: 'ALLOW'})
                    for name in names:
                        ElementTree.SubElement(rule, one).text = name
    return root


def enclave_nodes(graph: Graph) -> dict[str, dict[str, Endpoints]]:
    """Return the nodes of each enclave with their endpoints, all names in full."""
    found = {
        process.enclave: {node: _resolved(process, node) for node in process.nodes}
        for process in graph.processes
    }
    for name, ends in _outside(graph).items():
        found[full_name(graph.namespace, name)] = {name: ends}
    return found


def _resolved(process: Process, node: str) -> Endpoints:
    """Return the endpoints of a node by their full names."""
    ends = EVERY_NODE + ENDPOINTS[node] + named_by_parameters(node, process.parameters[node])
    return _in_full(ends, process.namespace, node, dict(process.remappings))


def named_by_parameters(node: str, parameters: Mapping[str, Any]) -> Endpoints:
    """Return the endpoints whose names are parameters: what meets an arm's own software."""
    if node not in ('safety_guard', 'sawyer_sim'):
        return Endpoints()
    command = COMMAND_NAMES[parameters['interface']]
    if node == 'sawyer_sim':
        return Endpoints(hears=(command, 'gripper_command'))
    buttons = Endpoints(hears=tuple(parameters['stop_topics']))
    if parameters['gripper'] == 'topic':
        return buttons + Endpoints(publishes=(command, 'gripper_command'))
    action = parameters['gripper_name'] or GRIPPER_ACTION
    return buttons + Endpoints(publishes=(command,), calls=(action,))


def _in_full(ends: Endpoints, namespace: str, node: str, renamed: Mapping[str, str]) -> Endpoints:
    def full(name: str) -> str:
        name = renamed.get(name, name)
        if name.startswith('/'):
            return name
        return full_name(namespace, f'{node}/{name[2:]}' if name.startswith('~/') else name)

    return Endpoints(
        **{item.name: tuple(map(full, getattr(ends, item.name))) for item in fields(ends)}
    )


def _outside(graph: Graph) -> dict[str, Endpoints]:
    """Return what people and the arm's own software may do, all names in full."""
    ends = [_resolved(process, node) for process in graph.processes for node in process.nodes]
    heard = tuple(name for one in ends for name in one.publishes)
    operator = Endpoints(
        publishes=('/rosout', '/parameter_events'),
        hears=heard,
        requests=tuple(name for one in ends for name in one.serves),
        calls=tuple(name for one in ends for name in one.executes),
    )
    guards = [p for p in graph.processes if 'safety_guard' in p.nodes]
    if not guards:
        return {OPERATOR: operator}
    guard = _resolved(guards[0], 'safety_guard')
    internal = {full_name(graph.namespace, topic) for topic in INTERNAL}
    common = _in_full(EVERY_NODE, graph.namespace, 'safety_guard', {})
    arm = Endpoints(
        publishes=tuple(n for n in guard.hears if n not in internal and n not in common.hears),
        hears=tuple(n for n in guard.publishes if n not in internal and n not in common.publishes),
        executes=guard.calls,
    )
    return {OPERATOR: operator, ARM: arm}
