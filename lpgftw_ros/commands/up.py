"""`lpgftw up`: start the ROS 2 graph without the ros2 command."""

import argparse
from dataclasses import fields, replace
import importlib.util
import os
from pathlib import Path
import tempfile
import threading
import time
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.errors import InvalidConfig, MissingExtra
from lpgftw_ros.graph.admission import require_free
from lpgftw_ros.graph.bringup import (
    describe,
    describe_policies,
    Graph,
    GraphOptions,
    options_from,
    policy_options,
    PolicyOptions,
)
from lpgftw_ros.graph.supervisor import command_of, Supervisor
from lpgftw_ros.runs.options import add_options, given_options, run_config

HERE = {'exit_when_done': True}
"""Defaults that differ from the launch file: this command ends when its work is done."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare every option of the graph, and how this command ends."""
    add_options(parser, GraphOptions, HERE)
    graph = parser.add_argument_group('without a learner, or only to look')
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


def run(args: argparse.Namespace) -> int:
    """Run the graph until it ends."""
    for module in ('rclpy', 'lpgftw_interfaces'):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(module)
    with tempfile.TemporaryDirectory(prefix='lpgftw-') as folder:
        return _run(args, Path(folder))


def _run(args: argparse.Namespace, folder: Path) -> int:
    if args.policy_from is not None:
        return _start(policy_graph(args), args, folder)
    values = {**HERE, **given(args)}
    if args.check:  # leaves nothing behind
        values = {'autotrain': False, 'out': str(folder / 'run'), **values}
    options = options_from(values)
    if options.resume and not options.out:
        raise InvalidConfig('--resume needs --out, the run folder to continue')
    if args.suite is None and not args.resume:
        args.suite = options.suite
    if not options.params_file:  # impossible settings are refused here, before anything starts
        options = replace(options, suite=run_config(args).suite_source)
    return _start(describe(options, values), args, folder, ends=options.autotrain)


def policy_graph(args: argparse.Namespace) -> Graph:
    """Return the graph of `--policy-from`; options of learning are refused."""
    values = {**given(args), 'policy_from': str(args.policy_from)}
    known = [item.name for item in fields(PolicyOptions)]
    for name in values:
        if name not in known:
            raise InvalidConfig(f'--{name.replace("_", "-")} has no use with --policy-from')
    return describe_policies(policy_options(values), values)


def _start(graph: Graph, args: argparse.Namespace, folder: Path, *, ends: bool = False) -> int:
    """Run the processes; with `ends` all end when the learner does."""
    require_free(graph.nodes)
    parameters = graph.write_parameters(folder)
    commands = [command_of(process, parameters, ends) for process in graph.processes]
    _say('up', f'run {graph.run_id} in {graph.namespace}: {", ".join(graph.nodes)}')
    supervisor = Supervisor(commands, _say)
    return check(graph, supervisor, args.check_timeout) if args.check else supervisor.run()


def given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the graph options the user gave, under their own names."""
    return given_options(args, GraphOptions)


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
    from lpgftw_ros.nodes.steering import Probe

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
