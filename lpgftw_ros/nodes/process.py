"""Run nodes in this process until a signal, and end cleanly and soon."""

from collections.abc import Callable, Sequence
import ctypes
import os
import signal
import socket
import sys
import threading

import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import get_rmw_implementation_identifier

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.nodes.transport import udp_only, UDP_ONLY_VARIABLE

GRACE = 2.5  # s a node may take to end before it is made to
PARENT_VARIABLE = 'LPGFTW_PARENT'
_PR_SET_PDEATHSIG = 1


class StopOnSignal:
    """Turns SIGINT and SIGTERM into a wish to stop, seen at once by a waiting executor.

    rclpy's own handlers end the context first, and then nothing can be published any more; a
    Python handler alone waits until the executor's C code returns. So the signal's byte wakes a
    thread, and the thread wakes the executor.
    """

    def __init__(self, executor: SingleThreadedExecutor) -> None:
        self._executor = executor
        self._requested = threading.Event()
        self._ended = threading.Event()
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, daemon=True, name='signals').start()

    @property
    def requested(self) -> bool:
        """Whether the process is to end."""
        return self._requested.is_set()

    def ended(self) -> None:
        """Note that the end was clean; a second signal while Python leaves changes nothing."""
        self._ended.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def _watch(self) -> None:
        wanted = (signal.SIGINT, signal.SIGTERM)
        while not any(number in wanted for number in self._read.recv(16)):
            pass
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
            node.destroy_node()
        executor.shutdown(timeout_sec=0.5)
        rclpy.try_shutdown()
        stop.ended()
    return max((node.exit_code or 0 for node in nodes), default=0)


def follow_environment() -> None:
    """Do what the process that started us asked for; before `rclpy.init`."""
    end_with_parent()
    if os.environ.get(UDP_ONLY_VARIABLE):
        os.environ.update(udp_only(get_rmw_implementation_identifier(), os.environ))


def end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the process that started us dies, so that none is left."""
    parent = os.environ.pop(PARENT_VARIABLE, '')
    if not parent or not sys.platform.startswith('linux'):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before we asked
        os.kill(os.getpid(), signal.SIGTERM)
