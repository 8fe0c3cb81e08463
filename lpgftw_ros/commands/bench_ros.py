"""`lpgftw bench ros`: what the ROS graph costs, against the same work in one process.

Contestants take turns in short rounds of whole rollouts; each ratio is the median over rounds of
neighbours, so that a busy second hits both sides.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
import json
import os
import statistics
import tempfile
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.errors import UnknownName
from lpgftw_ros.runs.environment import limit_threads

CASES = {'mt10': ('mt10', 'window-close', 50), 'halfcheetah': ('halfcheetah-gravity', '', 10)}
"""Name -> suite, task (empty: its first), rows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--only', choices=tuple(CASES), help='measure one of them')
    parser.add_argument('--rounds', type=arguments.count, default=15, help='rounds per contestant')
    parser.add_argument('--quick', action='store_true', help='short rollouts, two rounds')


def run(args: argparse.Namespace) -> int:
    """Measure and print ratios."""
    limit_threads(1)
    names = (args.only,) if args.only else tuple(CASES)
    results = {name: measure(name, 2 if args.quick else args.rounds, args.quick) for name in names}
    print(json.dumps(results, indent=2) if args.json else _text(results))
    return 0


def measure(name: str, rounds: int, quick: bool = False) -> dict[str, float]:
    """Return ratios and control steps per second of one case."""
    from lpgftw_ros.commands.bench_ros_contestants import (
        Case,
        composed,
        Contestant,
        in_process,
        processes,
    )
    from lpgftw_ros.commands.bench_ros_pingpong import paced_ping_pong, ping_pong

    if name not in CASES:
        raise UnknownName('case', name, CASES)
    with tempfile.TemporaryDirectory(prefix='lpgftw-bench-') as folder, _own_domain():
        case = Case.of(*CASES[name], folder=folder, horizon=20 if quick else 0)
        makers: dict[str, Callable[[Case], Contestant]] = {
            'in_process': in_process,
            'processes': processes,
            'composed': composed,
            'ping_pong': ping_pong,
            'paced_ping_pong': paced_ping_pong,
        }
        contestants: dict[str, Contestant] = {key: maker(case) for key, maker in makers.items()}
        try:
            for contestant in contestants.values():
                contestant.seconds_per_step()  # everything is built and known before the clock
            times = _rounds({k: c.seconds_per_step for k, c in contestants.items()}, rounds)
        finally:
            for contestant in contestants.values():
                contestant.close()
    return _ratios(times, case.rows)


def _rounds(contestants: dict[str, Callable[[], float]], rounds: int) -> list[dict[str, float]]:
    """Let all take turns; the order alternates, so that none always follows the same one."""
    names, times = list(contestants), []
    for number in range(rounds):
        order = names if number % 2 == 0 else names[::-1]
        times.append({name: contestants[name]() for name in order})
    return times


def _ratios(times: list[dict[str, float]], rows: int) -> dict[str, float]:
    def median(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(value(one) for one in times)

    return {
        'ratio': median(lambda t: t['in_process'] / t['processes']),
        'composed_ratio': median(lambda t: t['in_process'] / t['composed']),
        'pingpong_ratio': median(lambda t: (t['processes'] - t['in_process']) / t['ping_pong']),
        'paced_pingpong_ratio': median(
            lambda t: (t['processes'] - t['in_process']) / t['paced_ping_pong']
        ),
        'in_process': rows / median(lambda t: t['in_process']),
        'processes': rows / median(lambda t: t['processes']),
        'composed': rows / median(lambda t: t['composed']),
        'pingpong_seconds': median(lambda t: t['ping_pong']),
        'paced_pingpong_seconds': median(lambda t: t['paced_ping_pong']),
        'rounds': len(times),
    }


@contextmanager
def _own_domain() -> Iterator[None]:
    """Keep the measurement apart from graphs of the same machine."""
    old = {k: os.environ.get(k) for k in ('ROS_DOMAIN_ID', 'ROS_AUTOMATIC_DISCOVERY_RANGE')}
    os.environ.setdefault('ROS_DOMAIN_ID', str(1 + os.getpid() % 90))
    os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    try:
        yield
    finally:
        for key, value in old.items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})


def _text(results: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, values in results.items():
        lines.append(f'{name} (ratios, then control steps/s of all rows together)')
        for key, value in values.items():
            digits = 0 if value >= 100 else 2 if value >= 0.01 else 5
            lines.append(f'  {key:<18}{value:>12.{digits}f}')
    return '\n'.join(lines)
