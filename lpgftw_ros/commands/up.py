"""`lpgftw up`: start the ROS 2 graph without the ros2 command."""

import argparse
from dataclasses import fields, replace
import os
from pathlib import Path
import sys
import tempfile
import threading
import time
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.bringup import describe, Graph, GraphOptions, options_from, Process
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.policy_graph import describe_policies, policy_options, PolicyOptions
from lpgftw_ros.runs.options import add_train_arguments, run_config
from lpgftw_ros.supervisor import Command, Supervisor

HERE = {'exit_when_done': True}
"""Defaults that differ from those of the launch file: this command ends when its work is done."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: those of train, then every other option of the graph."""
    add_train_arguments(parser)
    known = {action.dest for action in parser._actions}
    graph = parser.add_argument_group('graph')
    for item in fields(GraphOptions):
        if item.name in known:
            continue
        flag = '--' + item.name.replace('_', '-')
        default = HERE.get(item.name, item.default)
        text = f'{item.metadata["help"]} (default {default!r})'
        if isinstance(item.default, bool):
            action = argparse.BooleanOptionalAction
            graph.add_argument(flag, action=action, default=None, help=text)
        else:
            graph.add_argument(flag, default=None, help=text, metavar=_metavar(item.metadata))
    graph.add_argument(
        '--policy-from',
        type=arguments.run_or_file,
        metavar='RUN_OR_FILE',
        help='no learner: serve the policies of a run folder or of lpgftw export',
    )
    graph.add_argument(
        '--check',
        action='store_true',
        help='bring the graph up, wait until all nodes are healthy, take it down, exit 0',
    )
    graph.add_argument(
        '--check-timeout',
        type=arguments.positive,
        default=60.0,
        help='seconds --check waits (default 60)',
    )


def _metavar(metadata: Any) -> str | None:
    return (
        '{' + ','.join(c for c in metadata['choices'] if c) + '}' if metadata['choices'] else None
    )


def run(args: argparse.Namespace) -> int:
    """Start the graph and stay until it ends."""
    with tempfile.TemporaryDirectory(prefix='lpgftw-') as folder:
        return _run(args, Path(folder))


def _run(args: argparse.Namespace, folder: Path) -> int:
    if args.policy_from is not None:
        return _start(policy_graph(args), args, folder)
    values = {**HERE, **given_options(args)}
    if args.check:  # leaves nothing behind
        values = {'autotrain': False, 'out': str(folder / 'run'), **values}
    options = options_from(values)
    if options.resume and not options.out:
        raise InvalidConfig('--resume needs --out, the run folder to continue')
    if args.suite is None and not args.resume:
        args.suite = options.suite
    if not options.params_file:  # what no run can be made with ends here, before anything starts
        options = replace(options, suite=run_config(args).suite)
    return _start(describe(options, values), args, folder, ends=options.autotrain)


def policy_graph(args: argparse.Namespace) -> Graph:
    """Return the graph of `--policy-from`; options of learning have no place there."""
    values = {**given_options(args), 'policy_from': str(args.policy_from)}
    known = [item.name for item in fields(PolicyOptions)]
    for name in values:
        if name not in known:
            raise InvalidConfig(f'--{name.replace("_", "-")} has no use with --policy-from')
    return describe_policies(policy_options(values), values)


def _start(graph: Graph, args: argparse.Namespace, folder: Path, *, ends: bool = False) -> int:
    """Start the processes; with `ends` all end when the learner does."""
    parameters = graph.write_parameters(folder)
    commands = [command(process, parameters, ends) for process in graph.processes]
    _say('up', f'run {graph.run_id} in {graph.namespace}: {", ".join(graph.nodes)}')
    supervisor = Supervisor(commands, _say)
    return check(graph, supervisor, args.check_timeout) if args.check else supervisor.run()


UNSAID = {'workers': 0, 'resume': False}
"""What options of `lpgftw train` say that were not given; all others say None."""


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the graph options the user gave, under their own names."""
    values: dict[str, Any] = {}
    for item in fields(GraphOptions):
        value = getattr(args, item.name, None)
        if item.name == 'settings':
            value = ';'.join(value or ()) or None
        if value is not None and value != UNSAID.get(item.name):
            values[item.name] = str(value) if isinstance(value, Path) else value
    return values


def command(process: Process, parameters: str, autotrain: bool) -> Command:
    """Return how to start a process of the graph with this Python."""
    words = [sys.executable, '-m', f'lpgftw_ros.nodes.{process.executable}', '--ros-args']
    libraries = [f'{sys.prefix}/lib', os.environ.get('LD_LIBRARY_PATH', '')]
    return Command(
        name=process.executable,
        words=[*words, *process.ros_arguments(parameters), *process.name_arguments()],
        environment={
            **process.environment,
            'PYTHONUNBUFFERED': '1',
            'LD_LIBRARY_PATH': os.pathsep.join(p for p in libraries if p),
            'LPGFTW_PARENT': str(os.getpid()),
        },
        respawn=process.respawn,
        ends_all=autotrain and 'learner' in process.nodes,
    )


def check(graph: Graph, supervisor: Supervisor, timeout: float) -> int:
    """Run the graph until every node reports that it is healthy, then take it down."""
    healthy, over = threading.Event(), threading.Event()
    os.environ.update(graph.environment)
    watcher = threading.Thread(target=_watch, args=(graph, healthy, over))
    watcher.start()
    deadline = time.monotonic() + timeout

    def turn() -> None:
        if healthy.is_set():
            supervisor.stop(0)
        elif time.monotonic() > deadline:
            _say('up', f'not all nodes are healthy after {timeout:g} s')
            supervisor.stop(1)

    try:
        code = supervisor.run(turn)
    finally:
        over.set()
        watcher.join()
    if healthy.is_set() and code == 0:
        _say('up', 'all nodes were healthy, the graph is down again')
    return code


def _watch(graph: Graph, healthy: threading.Event, over: threading.Event) -> None:
    from lpgftw_ros.nodes.probe import Probe

    probe = Probe()
    seen: set[str] = set()
    while not healthy.is_set() and not over.is_set():
        probe.look(0.2)
        for name in graph.nodes:
            report = probe.reports.get(name)
            if report is not None and report.healthy and name not in seen:
                seen.add(name)
                _say('up', f'{name}: {report.message} (process {report.values["pid"]})')
        if len(seen) == len(graph.nodes):
            healthy.set()
    probe.close()


def _say(name: str, line: str) -> None:
    print(f'[{name}] {line}', flush=True)
