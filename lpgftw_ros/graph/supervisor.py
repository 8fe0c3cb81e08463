"""Runs the processes of a graph: prefixes their output, restarts crashed ones, stops all."""

from collections.abc import Callable, Mapping, Sequence
import contextlib
from dataclasses import dataclass, field
import os
import selectors
import signal
import subprocess
import sys
import time
from types import FrameType

from lpgftw_ros.graph.bringup import Process
from lpgftw_ros.resources import data_folder

WRONG_SETTINGS = 2
"""Exit code after which a restart cannot help."""
STOP_TIME = 4.0  # s from SIGINT to SIGKILL; nodes promise 3
MAX_CRASHES = 5
"""Crashes in a row after which a process is not restarted."""
SUPERVISED_VARIABLE = 'LPGFTW_SUPERVISED'
"""Set for processes whose exit code tells that a signal ended them, not the end of their work."""
STEADY_TIME = 30.0  # s after which a process counts as recovered


@dataclass(frozen=True, slots=True)
class Command:
    """How to start one process."""

    name: str
    words: Sequence[str]
    environment: Mapping[str, str]
    respawn: bool = True
    ends_all: bool = False
    """When it ends with exit code 0, the whole graph ends."""


def command_of(process: Process, parameters: str, ends_all: bool) -> Command:
    """Return how to start a process of the graph with this Python.

    With `ends_all` the graph ends with the learner.
    """
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
            SUPERVISED_VARIABLE: '1',
        },
        respawn=process.respawn,
        ends_all=ends_all and 'learner' in process.nodes,
    )


@dataclass(slots=True)
class _Child:
    command: Command
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    crashes: int = 0
    due: float = 0.0
    buffer: bytes = field(default=b'')
    finished: bool = False


class Supervisor:
    """Runs commands until one of them ends the graph, one fails for good, or a signal comes."""

    def __init__(
        self,
        commands: Sequence[Command],
        say: Callable[[str, str], None],
        *,
        max_crashes: int = MAX_CRASHES,
    ) -> None:
        self._children = [_Child(command) for command in commands]
        self._say = say
        self._max_crashes = max_crashes
        self._selector = selectors.DefaultSelector()
        self._exit_code: int | None = None

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the running processes."""
        return {c.command.name: c.process.pid for c in self._children if c.process is not None}

    def stop(self, exit_code: int) -> None:
        """Ask all processes to end."""
        if self._exit_code is None:
            self._exit_code = exit_code

    def run(self, each_turn: Callable[[], None] = lambda: None) -> int:
        """Start all, watch, and return the exit code when all are gone."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        old = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            for child in self._children:
                self._start(child)
            while self._exit_code is None and not all(c.finished for c in self._children):
                self._read(0.05)
                self._watch()
                each_turn()
        finally:
            self._stop_all()
            self._selector.close()
            for number, handler in old.items():
                signal.signal(number, handler)
        return self._exit_code or 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop(130 if number == signal.SIGINT else 128 + number)

    def _start(self, child: _Child) -> None:
        child.process = subprocess.Popen(
            child.command.words,
            env={**os.environ, **child.command.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches it once, from us
        )
        child.started, child.due = time.monotonic(), 0.0
        assert child.process.stdout is not None
        os.set_blocking(child.process.stdout.fileno(), False)
        self._selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _read(self, timeout: float) -> None:
        if not self._selector.get_map():
            time.sleep(timeout)
            return
        for key, _ in self._selector.select(timeout):
            child: _Child = key.data
            chunk = os.read(key.fd, 65536)
            if not chunk:
                self._selector.unregister(key.fileobj)
            *lines, child.buffer = (child.buffer + chunk).split(b'\n')
            for line in lines:
                self._say(child.command.name, line.decode(errors='replace'))

    def _watch(self) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._drain(child)
                self._ended(child, child.process.returncode)
            elif child.due and time.monotonic() >= child.due:
                self._start(child)

    def _drain(self, child: _Child) -> None:
        """Print what a dead process left in its pipe; its children may still hold it open."""
        pipe = child.process.stdout if child.process is not None else None
        if pipe is None:
            return
        if pipe.fileno() in self._selector.get_map():
            self._selector.unregister(pipe)
        rest = child.buffer + (pipe.read() or b'')
        pipe.close()
        child.buffer = b''
        for line in rest.splitlines():
            self._say(child.command.name, line.decode(errors='replace'))

    def _ended(self, child: _Child, code: int) -> None:
        name, lived = child.command.name, time.monotonic() - child.started
        assert child.process is not None
        _signal_group(child.process, signal.SIGKILL)  # workers it may have left
        child.process = None
        if code == 0:
            child.finished = True
            if child.command.ends_all:
                self.stop(0)
            return
        how = f'killed by {signal.Signals(-code).name}' if code < 0 else f'ended with {code}'
        child.crashes = 1 if lived > STEADY_TIME else child.crashes + 1
        if code == WRONG_SETTINGS or not child.command.respawn:
            self._say(name, f'{how}: not started again')
            self.stop(WRONG_SETTINGS if code == WRONG_SETTINGS else 1)
        elif child.crashes > self._max_crashes:
            self._say(name, f'{how} {child.crashes} times in a row: giving up')
            self.stop(1)
        else:
            wait = 0.25 * 2 ** (child.crashes - 1)
            child.due = time.monotonic() + wait
            self._say(name, f'{how}: starting again in {wait:g} s')

    def _stop_all(self) -> None:
        """Send SIGINT, then SIGKILL; keep reading, so that no process blocks on a pipe."""
        alive = [c for c in self._children if c.process is not None]
        for child in alive:
            assert child.process is not None
            child.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + STOP_TIME
        while time.monotonic() < deadline and any(_runs(c) for c in alive):
            self._read(0.05)
        for child in alive:
            assert child.process is not None
            if _runs(child):
                self._say(child.command.name, 'did not end in time: killed')
                self.stop(1)
            _signal_group(child.process, signal.SIGKILL)
            child.process.wait()
            self._drain(child)
            child.process = None


def _runs(child: _Child) -> bool:
    return child.process is not None and child.process.poll() is None


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


# Transport between processes: localhost means localhost.
#
# With the discovery range LOCALHOST ROS looks for peers on this machine only, but its sockets
# listen on every interface, open to anyone who knows the address. A profile confines them to the
# loopback interface. Around an arm shared memory is left out as well: before Fast DDS first sends
# to a process that has joined, it checks the process's shared-memory port; when two processes
# check the same port at once, one of them blocks all its publishers for a third of a second. A
# guard must not pause because of a `ros2 topic echo` (docs/adr/0008).


UDP_ONLY_VARIABLE = 'LPGFTW_UDP_ONLY'
"""Set for processes that must not use shared memory."""
_RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
_PROFILES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
_BUILTIN = 'FASTDDS_BUILTIN_TRANSPORTS'


def transports(rmw: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that confine this middleware; none if it has no such profile.

    A profile or transport chosen by the user stays. Under LOCALHOST ROS would make its own
    sockets, so there the profile sets the range instead.
    """
    chosen = any(environment.get(name) for name in (*_PROFILES, _BUILTIN))
    if not rmw.startswith('rmw_fastrtps') or chosen:
        return {}
    udp_only = bool(environment.get(UDP_ONLY_VARIABLE))
    if environment.get(_RANGE) != 'LOCALHOST':
        return {_BUILTIN: 'UDPv4'} if udp_only else {}
    name = 'localhost_udp.xml' if udp_only else 'localhost.xml'
    profile = str(data_folder('config') / name)
    return dict.fromkeys(_PROFILES, profile) | {_RANGE: 'SYSTEM_DEFAULT'}


PRIORITY_VARIABLE = 'LPGFTW_REALTIME_PRIORITY'
"""Set for processes that must not wait for a processor: those around an arm (docs/adr/0014)."""
