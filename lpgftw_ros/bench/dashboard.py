"""`lpgftw bench dashboard`: how much a browser on the page slows sampling down.

A graph with the page samples all the time. A client that receives everything and renders nothing
connects and leaves in turns. The ratio is the median over neighbouring turns.
"""

import argparse
from contextlib import suppress
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any
from urllib.request import urlopen

from lpgftw_ros import arguments
from lpgftw_ros.bench.ros import CASES, own_domain
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.runs.environment import limit_threads

SETTLE = 2.5  # s after which the page has opened, or closed, what only browsers need
SMALL = 20_000  # bytes; what is larger is a model
TURN = 4
"""Rollouts per turn."""
NAMESPACE = '/bench_processes'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--case', choices=tuple(CASES), default='mt10', help='what is sampled')
    parser.add_argument('--rounds', type=arguments.count, default=7, help='turns of each kind')
    parser.add_argument('--quick', action='store_true', help='short rollouts, two rounds')


def run(args: argparse.Namespace) -> int:
    """Measure and print the ratio."""
    limit_threads(1)
    found = measure(args.case, 2 if args.quick else args.rounds, args.quick)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        print(f'sampling with a connected client over without: {found["ratio"]:.3f}')
        print(f'received: {found["received_kilobytes_per_second"]:.0f} kB/s')
        print(f'the scene moves {found["scene_rate"]:.1f} times per second')
    return 0


def measure(name: str, rounds: int, quick: bool = False) -> dict[str, Any]:
    """Return the ratio, the control steps per second, and what the client received."""
    from lpgftw_ros.bench.ros import Case, end, processes

    with tempfile.TemporaryDirectory(prefix='lpgftw-bench-') as folder, own_domain():
        case = Case.of(*CASES[name], folder=folder, horizon=20 if quick else 0)
        port = _free_port()
        page, graph = _start_page(port), processes(case)
        try:
            _warm_up(graph)
            _wait_for(port, page)
            times, received, moved = _turns(graph, port, rounds)
        finally:
            graph.close()
            end(page)
    if not moved:
        raise LpgftwError('the client received no scene, so this measures nothing')
    with_, without = ([one[key] for one in times] for key in ('with', 'without'))
    return {
        'ratio': statistics.median(b / a for a, b in zip(with_, without, strict=True)),
        'with_client': case.rows / statistics.median(with_),
        'without_client': case.rows / statistics.median(without),
        'received_kilobytes_per_second': received,
        'scene_rate': moved,
        'rounds': rounds,
        'case': name,
    }


def _warm_up(graph: Any, attempts: int = 4) -> None:
    """Sample once; on a busy machine the nodes may take minutes to come up."""
    for left in reversed(range(attempts)):
        try:
            graph.seconds_per_step()
            return
        except LpgftwError:
            if not left:
                raise


def _turns(graph: Any, port: int, rounds: int) -> tuple[list[dict[str, float]], float, float]:
    """Measure with and without the client.

    Return the seconds per step of both, and kB/s and scenes per second the client received.
    """
    times, rates, moves = [], [], []
    for number in range(rounds):
        one = {}
        for key in ('with', 'without') if number % 2 == 0 else ('without', 'with'):
            client = _start_client(port) if key == 'with' else None
            settled = time.monotonic() + SETTLE
            while time.monotonic() < settled:
                graph.seconds_per_step()
            one[key] = statistics.median(graph.seconds_per_step() for _ in range(TURN))
            if client is not None:
                client.terminate()
                received, moved = map(float, client.communicate()[0].split())
                rates.append(received)
                moves.append(moved)
        times.append(one)
    return times, statistics.median(rates), statistics.median(moves)


def _start_page(port: int) -> 'subprocess.Popen[Any]':
    words = ['-m', 'lpgftw_ros.nodes.dashboard', '--ros-args', '-r', f'__ns:={NAMESPACE}']
    words += ['-p', f'dashboard_port:={port}', '--log-level', 'error']
    environment = {**os.environ, 'LPGFTW_PARENT': str(os.getpid())}
    return subprocess.Popen([sys.executable, *words], env=environment)


def _start_client(port: int) -> 'subprocess.Popen[str]':
    code = f'from lpgftw_ros.bench.dashboard import receive; receive({port})'
    client = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    if not client.stdout.readline():
        raise LpgftwError('the client could not connect to the page')
    return client


def receive(port: int) -> None:
    """Receive everything and render nothing.

    Print when connected; at the end print kB/s and how often per second the scene moved.
    """
    import signal

    import msgspec
    import viser
    from websockets.sync.client import connect

    over: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    camera = {
        'type': 'ViewerCameraMessage',
        'wxyz': (1.0, 0.0, 0.0, 0.0),
        'position': (1.0, 1.0, 1.0),
        'fov': 1.0,
        'near': 0.01,
        'far': 100.0,
        'image_height': 800,
        'image_width': 1280,
        'look_at': (0.0, 0.0, 0.0),
        'up_direction': (0.0, 0.0, 1.0),
    }
    protocol: Any = f'viser-v{viser.__version__}'
    address = f'ws://127.0.0.1:{port}'
    with connect(address, subprotocols=[protocol], max_size=None, compression=None) as link:
        link.send(msgspec.msgpack.encode(camera))
        print('connected', flush=True)
        started, received, moves = time.monotonic(), 0, []
        while not over:
            with suppress(TimeoutError):
                message = link.recv(timeout=0.2)
                received += len(message)
                if len(message) < SMALL:
                    moves.append((time.monotonic(), message))
        seconds = time.monotonic() - started
        times = [when for when, message in moves if _moves(message)]
        rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
        print(received / 1000 / seconds, rate, flush=True)


def _moves(message: Any) -> bool:
    """Return whether a message of viser's moves the scene: two sizes, then names, compressed."""
    import zstandard

    size, packed = (int.from_bytes(message[i : i + 8], 'little') for i in (0, 8))
    names = zstandard.ZstdDecompressor().decompress(
        message[16 : 16 + packed], max_output_size=size
    )
    return b'SetPositionMessage' in names


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, page: 'subprocess.Popen[Any]') -> None:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and page.poll() is None:
        with suppress(OSError), urlopen(f'http://127.0.0.1:{port}', timeout=1.0):
            return
        time.sleep(0.1)
    raise LpgftwError('the page does not come up')
