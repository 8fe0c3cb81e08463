"""Run nodes in this process until a signal, and end cleanly and quickly."""

from collections.abc import Callable, Sequence
import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import get_rmw_implementation_identifier

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.supervisor import PRIORITY_VARIABLE, SUPERVISED_VARIABLE, transports
from lpgftw_ros.nodes.lifecycle import LifelongNode

GRACE = 2.5  # s a node may take to end before it is killed
LAST_TURNS = 10
PARENT_VARIABLE = 'LPGFTW_PARENT'
GET_FLAGS, IS_UP = 0x8913, 1  # SIOCGIFFLAGS and IFF_UP of Linux


class StopOnSignal:
    """Turns SIGINT and SIGTERM into a stop request that a waiting executor sees at once.

    rclpy's own handlers end the context first, and then nothing can be published any more. A
    Python handler alone waits until the executor's C code returns. So the signal's byte wakes a
    thread, and the thread wakes the executor.
    """

    def __init__(self, executor: SingleThreadedExecutor) -> None:
        self._executor = executor
        self._requested = threading.Event()
        self.number = 0
        """The signal that came."""
        self._ended = threading.Event()
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, daemon=True, name='signals').start()

    @property
    def requested(self) -> bool:
        """Whether the process should end."""
        return self._requested.is_set()

    def ended(self) -> None:
        """Note a clean end; a second signal while Python exits changes nothing."""
        self._ended.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def _watch(self) -> None:
        wanted = (signal.SIGINT, signal.SIGTERM)
        while self.number not in wanted:
            self.number = next((n for n in self._read.recv(16) if n in wanted), 0)
        self._requested.set()
        self._executor.create_task(lambda: None)
        if not self._ended.wait(GRACE):
            sys.stderr.write('did not end in time, leaving now\n')
            sys.stderr.flush()
            os._exit(1)


def run(
    make_nodes: Sequence[Callable[[], LifelongNode]], argv: Sequence[str] | None = None
) -> int:
    """Host the nodes on one single-threaded executor; return the exit code."""
    follow_environment()
    wait_for_loopback()
    try:
        rclpy.init(args=argv, signal_handler_options=SignalHandlerOptions.NO)
    except RCLError as error:
        sys.stderr.write(f'bad ROS arguments: {str(error).split(", at ")[0]}\n')
        return 2
    executor = SingleThreadedExecutor()
    stop = StopOnSignal(executor)
    nodes: list[LifelongNode] = []
    try:
        for make in make_nodes:
            nodes.append(make())
            executor.add_node(nodes[-1])
        relay_logging(nodes[0])
        while not stop.requested and all(node.exit_code is None for node in nodes):
            executor.spin_once()
    except LpgftwError as error:
        sys.stderr.write(f'{error}\n')
        return 2
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        for node in reversed(nodes):
            if node.state != 'finalized':
                node.trigger_shutdown()
        _send_what_waits(executor)
        for node in reversed(nodes):
            node.destroy_node()
        executor.shutdown(timeout_sec=0.5)
        rclpy.try_shutdown()
        stop.ended()
    if stop.requested and all(node.exit_code is None for node in nodes):
        return 128 + stop.number if os.environ.get(SUPERVISED_VARIABLE) else 0
    return max((node.exit_code or 0 for node in nodes), default=0)


def wait_for_loopback(seconds: float = 30.0) -> None:
    """Wait, for a while, until the loopback interface is up.

    Fast DDS looks for its interfaces once: a node that starts while the loopback is down would
    never hear another.
    """
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        while time.monotonic() < end:
            try:
                answer = fcntl.ioctl(any_socket, GET_FLAGS, struct.pack('16sH14x', b'lo', 0))
            except OSError:
                return  # an interface of another name: not for us to judge
            if struct.unpack_from('H', answer, 16)[0] & IS_UP:
                return
            time.sleep(0.05)


def _send_what_waits(executor: SingleThreadedExecutor) -> None:
    """Send the responses that became ready when the nodes ended."""
    for _ in range(LAST_TURNS):
        with contextlib.suppress(Exception):  # entities may be gone; nothing is left to save
            executor.spin_once(timeout_sec=0.01)


class _ToRosout(logging.Handler):
    """Passes what the library logs on to a node's logger, and so to /rosout."""

    def __init__(self, node: LifelongNode) -> None:
        super().__init__(logging.INFO)
        self._logger = node.get_logger().get_child('library')

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record at its level."""
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)


def relay_logging(node: LifelongNode) -> None:
    """Show the library's log in /rosout."""
    library = logging.getLogger('lpgftw_ros')
    library.addHandler(_ToRosout(node))
    library.setLevel(logging.INFO)
    library.propagate = False


def follow_environment() -> None:
    """Follow the environment set by the parent process; before `rclpy.init`."""
    go_first(int(os.environ.pop(PRIORITY_VARIABLE, '0')))
    end_with_parent()
    os.environ.update(transports(get_rmw_implementation_identifier(), os.environ))


def go_first(priority: int) -> bool:
    """Run this thread, and those it starts, before all ordinary ones; 0 asks for nothing.

    Where the system does not allow it, the process goes on as an ordinary one and says so.
    """
    if priority == 0:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except (AttributeError, OSError) as error:
        sys.stderr.write(
            f'no real-time priority ({error}): on a busy machine the guard may stop the arm; '
            '`lpgftw doctor` says how to allow it\n'
        )
        return False
    return True


def end_with_parent() -> None:
    """Send ourselves SIGTERM when the process that started us is gone.

    It need not be our direct parent: a launch file may start nodes behind a prefix command.
    """
    parent = os.environ.pop(PARENT_VARIABLE, '')
    if not parent or not hasattr(os, 'pidfd_open'):
        return
    try:
        alive = os.pidfd_open(int(parent))
    except ProcessLookupError:  # it died before we asked
        os.kill(os.getpid(), signal.SIGTERM)
        return

    def watch() -> None:
        select.select([alive], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name='parent').start()
