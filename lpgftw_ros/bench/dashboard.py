"""`lpgftw bench dashboard`: how much a browser on the page slows sampling down.

A graph with the page samples all the time. A client that receives everything and renders nothing
connects and leaves in turns. The ratio is the median over neighbouring turns. Turns are short,
because a busy host comes and goes in seconds. What page and client take of the processors is
counted beside it: it hardly depends on what else the machine does.
"""

import argparse
from contextlib import suppress
from dataclasses import dataclass
import json
import os
from pathlib import Path
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any
from urllib.request import urlopen

import numpy as np

from lpgftw_ros import arguments
from lpgftw_ros.bench.ros import CASES, own_domain
from lpgftw_ros.dashboard.page import give_way, LOCAL
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.runs.environment import limit_threads

SETTLE = 2.5  # s after which the page has opened, or closed, what only browsers need
SMALL = 20_000  # bytes; what is larger is a model
TURN, HORIZON = 4, 125
"""Rollouts per turn, and control steps of each."""
NAMESPACE = '/bench_processes'
_CAMERA = {
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
"""What a browser says of itself first."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What was measured in one turn."""

    step: float
    """Seconds per control step of all rows."""
    page_cores: float
    """Processor time of the page per second."""
    client_cores: float = 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--case', choices=tuple(CASES), default='mt10', help='what is sampled')
    parser.add_argument('--rounds', type=arguments.count, default=12, help='turns of each kind')
    parser.add_argument('--quick', action='store_true', help='short rollouts, two rounds')


def run(args: argparse.Namespace) -> int:
    """Measure and print the ratio."""
    limit_threads(1)
    found = measure(args.case, 2 if args.quick else args.rounds, args.quick)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        low, high = found['quartiles']
        print(f'sampling with a connected client over without: {found["ratio"]:.3f}')
        print(f'half of the {found["rounds"]} rounds between {low:.3f} and {high:.3f}')
        print(f'page: {found["page_cores"]:.3f} of a core, {found["page_cores_alone"]:.3f} alone')
        print(f'received: {found["received_kilobytes_per_second"]:.0f} kB/s')
        print(f'the scene moves {found["scene_rate"]:.1f} times per second')
    return 0


def measure(name: str, rounds: int, quick: bool = False) -> dict[str, Any]:
    """Return the ratio, the control steps per second, and what the client received."""
    from lpgftw_ros.bench.ros import Case, end, processes

    with tempfile.TemporaryDirectory(prefix='lpgftw-bench-') as folder, own_domain():
        case = Case.of(*CASES[name], folder=folder, horizon=20 if quick else HORIZON)
        port = _free_port()
        page, graph = _start_page(port), processes(case)
        try:
            _warm_up(graph)
            _wait_for(port, page)
            turns = _turns(graph, visitor := Visitor(port), page.pid, rounds)
        finally:
            graph.close()
            end(page)
    with_, without = ([one[key] for one in turns] for key in ('with', 'without'))
    ratios: list[float] = [b.step / a.step for a, b in zip(with_, without, strict=True)]
    received, moves = np.median(visitor.reports, axis=0).tolist()
    if not moves:
        raise LpgftwError('the client received no scene, so this measures nothing')
    return {
        'ratio': statistics.median(ratios),
        'quartiles': np.quantile(ratios, (0.25, 0.75)).tolist(),
        'ratios': ratios,
        'with_client': case.rows / _median(with_, 'step'),
        'without_client': case.rows / _median(without, 'step'),
        'page_cores': _median(with_, 'page_cores'),
        'page_cores_alone': _median(without, 'page_cores'),
        'client_cores': _median(with_, 'client_cores'),
        'received_kilobytes_per_second': received,
        'scene_rate': moves,
        'rounds': rounds,
        'case': name,
    }


def _median(turns: list[Turn], key: str) -> float:
    return float(np.median([getattr(turn, key) for turn in turns]))


def _warm_up(graph: Any, attempts: int = 4) -> None:
    """Sample once; on a busy machine the nodes may take minutes to come up."""
    for left in reversed(range(attempts)):
        try:
            graph.seconds_per_step()
            return
        except LpgftwError:
            if not left:
                raise


class Visitor:
    """The client: connects and leaves."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client: subprocess.Popen[str] | None = None
        self.reports: list[tuple[float, float]] = []
        """kB/s and scenes per second of each visit."""

    def change(self, watching: bool) -> bool:
        """Connect or leave; return whether it was not so before."""
        if watching is (self._client is not None):
            return False
        if self._client is not None:
            self._client.terminate()
            if len(said := self._client.communicate()[0].split()) != 2:
                raise LpgftwError('the client lost the page')
            self.reports.append((float(said[0]), float(said[1])))
        self._client = _start_client(self._port) if watching else None
        return True

    @property
    def pids(self) -> list[int]:
        """The client's process, if there is one."""
        return [] if self._client is None else [self._client.pid]


def _turns(graph: Any, visitor: Visitor, page: int, rounds: int) -> list[dict[str, Turn]]:
    """Measure with and without the client, now the one and now the other first."""
    rows: list[dict[str, Turn]] = []
    for number in range(rounds):
        order = (True, False) if number % 2 == 0 else (False, True)
        rows.append({})
        for watching in order:
            if visitor.change(watching):
                _settle(graph)
            rows[-1]['with' if watching else 'without'] = _turn(graph, page, visitor)
    visitor.change(False)
    return rows


def _settle(graph: Any) -> None:
    settled = time.monotonic() + SETTLE
    while time.monotonic() < settled:
        graph.seconds_per_step()


def _turn(graph: Any, page: int, visitor: Visitor) -> Turn:
    pids = [page, *visitor.pids]
    started, before = time.monotonic(), [_processor_time(pid) for pid in pids]
    step = statistics.median(graph.seconds_per_step() for _ in range(TURN))
    seconds = time.monotonic() - started
    cores = [(_processor_time(p) - b) / seconds for p, b in zip(pids, before, strict=True)]
    return Turn(step, *cores)


def _processor_time(pid: int) -> float:
    """Return the seconds a process has run, all threads together."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


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

    Print when connected; at the end print kB/s and how often per second the scene moved. It
    stands for a browser on another machine: it interrupts nobody, and looks at what came in the
    end.
    """
    import signal

    over: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    give_way()
    link, protocol = _connect(port)
    print('connected', flush=True)
    started, received, moves = time.monotonic(), 0, []
    while not over:
        for event in _heard(link, protocol):
            received += len(event.data)
            if len(event.data) < SMALL:
                moves.append((time.monotonic(), event.data))
    seconds = time.monotonic() - started
    times = [when for when, message in moves if _moves(message)]
    rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    print(received / 1000 / seconds, rate, flush=True)


def _connect(port: int) -> tuple[socket.socket, Any]:
    """Connect as viser's browser does, without a thread for it."""
    import msgspec
    import viser
    from websockets.client import ClientProtocol
    from websockets.uri import parse_uri

    link = socket.create_connection((LOCAL, port))
    link.settimeout(0.2)
    address: Any = parse_uri(f'ws://{LOCAL}:{port}')
    words: Any = [f'viser-v{viser.__version__}']
    protocol = ClientProtocol(address, subprotocols=words, max_size=None)
    protocol.send_request(protocol.connect())
    while protocol.state is not protocol.state.OPEN:
        _heard(link, protocol)
    protocol.send_binary(msgspec.msgpack.encode(_CAMERA))
    return link, protocol


def _heard(link: socket.socket, protocol: Any) -> list[Any]:
    """Send what waits, answers to pings too, and return the messages that came."""
    for part in protocol.data_to_send():
        link.sendall(part)
    with suppress(TimeoutError):
        if not (data := link.recv(1 << 20)):
            raise LpgftwError('the page closed the connection')
        protocol.receive_data(data)
    return [event for event in protocol.events_received() if hasattr(event, 'opcode')]


def _moves(message: Any) -> bool:
    """Return whether a message of viser's moves the scene: two sizes, then names, compressed."""
    import zstandard

    if len(message) < 16:
        return False

    size, packed = (int.from_bytes(message[i : i + 8], 'little') for i in (0, 8))
    names = zstandard.ZstdDecompressor().decompress(
        message[16 : 16 + packed], max_output_size=size
    )
    return b'SetOrientationMessage' in names or b'SetPositionMessage' in names


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
