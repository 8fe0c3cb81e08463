"""`lpgftw bench deploy`: from an observation to the arm's command, against a bare round trip.

Policy, bridge, guard and a simulated arm run in processes of their own. Afterwards, while they
hold the arm still, messages go to a bare process and back at the same rate.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import yaml

from lpgftw_ros import arguments
from lpgftw_ros.graph.bringup import Process
from lpgftw_ros.graph.supervisor import command_of
from lpgftw_ros.resources import data_folder

TARGET_RATIO = 4.0
ECHO = 'lpgftw_ros.bench.ros'
_GOAL = np.array([-0.1, 0.8, 0.245])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    parser.add_argument(
        '--rates',
        type=arguments.rates,
        default=(20.0, 80.0),
        help='control rates, Hz (default 20,80)',
    )
    parser.add_argument(
        '--seconds', type=arguments.positive, default=30.0, help='measured time per rate'
    )
    parser.add_argument(
        '--policy',
        type=arguments.file,
        action='append',
        default=[],
        metavar='FILE',
        help='compare the success of this exported policy on mocap and on the arm instead',
    )
    parser.add_argument(
        '--episodes', type=arguments.count, default=20, help='episodes per --policy'
    )
    parser.add_argument(
        '--domain', type=arguments.domain, help='ROS domain (default: one of this process)'
    )


def run(args: argparse.Namespace) -> int:
    """Measure each rate and print the table or one JSON object."""
    if args.policy:
        return _rehearse(args)
    domain = 60 + os.getpid() % 40 if args.domain is None else args.domain
    os.environ.update(ROS_DOMAIN_ID=str(domain), ROS_AUTOMATIC_DISCOVERY_RANGE='LOCALHOST')
    rows = {f'{rate:g}': _measure(rate, args.seconds) for rate in args.rates}
    report: dict[str, Any] = {
        **rows[f'{args.rates[0]:g}'],
        'target_ratio': TARGET_RATIO,
        'rates': rows,
    }
    if args.json:
        print(json.dumps(report))
    else:
        for rate, row in rows.items():
            print(
                f'{rate} Hz: observation to command {row["p50_ms"]} ms (99%: {row["p99_ms"]}), '
                f'bare round trip {row["pingpong_p50_ms"]} ms (99%: {row["pingpong_p99_ms"]}), '
                f'ratio {row["ratio"]}'
            )
    return 0


def _rehearse(args: argparse.Namespace) -> int:
    """Print the success of each policy in both worlds, 1 mm noise, 20 ms latency."""
    from lpgftw_ros.deploy.export import load_policy
    from lpgftw_ros.deploy.rehearsal import compare
    from lpgftw_ros.domains.suites import TaskSpec

    rows = []
    for path in args.policy:
        exported = load_policy(path)
        origin = exported.origin
        task = TaskSpec(exported.task, origin['kind'], origin['settings'], origin['horizon'])
        found = compare(task, exported.policy, control=exported.control, episodes=args.episodes)
        rows.append(asdict(found))
        if not args.json:
            print(
                f'{found.task}: mocap {found.mocap:.0%}, arm {found.arm:.0%} of {found.episodes} '
                f'episodes ({found.stopped} stopped, {found.interventions} interventions)'
            )
    if args.json:
        print(json.dumps({'rehearsal': rows}))
    return 0


def _measure(rate: float, seconds: float) -> dict[str, float]:
    """Return latencies of the chain and of a bare round trip in the same run."""
    from lpgftw_ros.nodes.arm_operator import ArmOperator

    with tempfile.TemporaryDirectory(prefix='lpgftw-') as name, _graph(Path(name), rate):
        operator = ArmOperator('/lifelong')
        try:
            operator.make_ready()
            operator.trigger('arm_bridge/run', patience=20.0)  # until the task is known there
            operator.until(lambda: len(operator.latencies) > rate, 60.0)  # warm
            operator.latencies.clear()
            operator.until(lambda: False, seconds)
            chain = list(operator.latencies)
            operator.trigger('arm_bridge/stop')
            trips = operator.ping(int(seconds * rate), 1.0 / rate)
        finally:
            operator.close()
    return {
        'n': len(chain),
        'p50_ms': _ms(chain, 0.5),
        'p99_ms': _ms(chain, 0.99),
        'pingpong_p50_ms': _ms(trips, 0.5),
        'pingpong_p99_ms': _ms(trips, 0.99),
        'ratio': round(_ms(chain, 0.99) / _ms(trips, 0.99), 2),
    }


def _ms(seconds: list[float], quantile: float) -> float:
    return round(1e3 * float(np.quantile(seconds, quantile)), 3)


@contextmanager
def _graph(folder: Path, rate: float) -> Iterator[None]:
    """Run the graph around a simulated arm, and the bare process."""
    from lpgftw_ros.graph.deployment import deploy_options, describe_deployment

    options = {'rehearse': True, 'rate': rate, 'reward': 'reach', 'log_level': 'error'}
    options |= {'policy_file': _policy(folder, rate), 'limits_file': _limits(folder, rate)}
    graph = describe_deployment(deploy_options(options))
    bare = Process('bare', ('bare',), graph.namespace, {}, False, graph.environment, {})
    parameters = graph.write_parameters(folder)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for process in (*graph.processes, bare):
            how = command_of(process, parameters, False)
            words = [ECHO if word.endswith('.bare') else word for word in how.words]
            environment = {**os.environ, **how.environment}
            started.append(subprocess.Popen(words, env=environment, stdout=sys.stderr))
        yield
    finally:
        for child in reversed(started):
            child.send_signal(signal.SIGINT)
        for child in started:
            try:
                child.wait(8.0)
            except subprocess.TimeoutExpired:
                child.kill()


def _limits(folder: Path, rate: float) -> str:
    """Write the table's limits with the guard's period fitted to the rate, watchdogs wide."""
    content = yaml.safe_load((data_folder('sim/sawyer') / 'safety.yaml').read_text())
    names = ('joints_timeout', 'object_timeout', 'action_timeout', 'tracking_timeout')
    wide = dict.fromkeys(names, 1.0)
    path = folder / 'limits.yaml'
    # The guard's own ticks fall between the commands that are expected, or well after them.
    period = (0.65 if rate < 35.0 else 1.5) / rate
    path.write_text(yaml.safe_dump(content | wide | {'period': period}))
    return str(path)


def _policy(folder: Path, rate: float) -> str:
    """Write a network of the usual size that acts like a linear reach policy."""
    from lpgftw_ros.deploy.export import export_policy, save_policy
    from lpgftw_ros.deploy.observation import ControlSettings
    from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

    spec, small = PolicySpec(6, 4, (32, 32)), 1e-2
    first, second, last = np.zeros((32, 6)), np.zeros((32, 32)), np.zeros((4, 32))
    first[:3, :3], second[:3, :3], last[:3, :3] = small * np.eye(3), np.eye(3), np.eye(3)
    last *= -10.0 / small
    theta = np.concatenate([first.ravel(), np.zeros(32), second.ravel(), np.zeros(32)])
    head = np.concatenate([last.ravel(), [*(10.0 * _GOAL), -1.0]])
    policy = PolicySnapshot(spec, theta, head, np.full(4, -3.0))
    path = folder / 'reach.policy'
    save_policy(export_policy(policy, 'reach', ControlSettings(rate=rate), {}), path)
    return str(path)
