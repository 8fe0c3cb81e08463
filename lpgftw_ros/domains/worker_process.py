"""One simulation worker as its parent sees it: a process and the socket to it."""

import contextlib
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys

from lpgftw_ros.domains.worker_main import LARGEST, REPLY
from lpgftw_ros.errors import SimulationFailed

_START = """
import sys, types
root = sys.argv[2]
sys.path.insert(0, root)
package = types.ModuleType('lpgftw_ros.domains')
package.__path__ = [root + '/lpgftw_ros/domains']
sys.modules[package.__name__] = package
from lpgftw_ros.domains.worker_main import main
main(int(sys.argv[1]))
"""
"""How a worker starts: past the package's `__init__`, which would load the learning library."""
_ONE_THREAD = {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}


class WorkerDied(SimulationFailed):
    """A simulation worker ended without being asked to; its environments are lost."""


class WorkerProcess:
    """One worker and the socket to it."""

    def __init__(self) -> None:
        self.channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).resolve().parents[2])
        with other:
            self.process = subprocess.Popen(
                [sys.executable, '-P', '-c', _START, str(other.fileno()), root],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                process_group=0,  # a terminal's Ctrl-C is the parent's business
            )

    def send(self, message: bytes, descriptors: list[int]) -> None:
        """Send one request."""
        try:
            if descriptors:
                socket.send_fds(self.channel, [message], descriptors)
            else:
                self.channel.send(message)
        except OSError:
            raise self._died() from None

    def receive(self, sequence: int) -> tuple[bool, bytes]:
        """Wait for the answer to a request; answers nobody waited for are dropped."""
        while True:
            try:
                reply = self.channel.recv(LARGEST)
            except ConnectionError:
                reply = b''
            if not reply:
                raise self._died()
            answered, worked = REPLY.unpack_from(reply)
            if answered == sequence:
                return worked, reply[REPLY.size :]

    def _died(self) -> WorkerDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=2.0)
        code = self.process.returncode
        why = 'closed its socket' if code is None else f'exit code {code}'
        if code is not None and code < 0:
            why = f'signal {signal.Signals(-code).name}'
        return WorkerDied(
            f'simulation worker {self.process.pid} ended unexpectedly ({why}); '
            f'make the environment again'
        )

    def close(self) -> None:
        """End the worker: closing the socket is its signal to go."""
        self.channel.close()
        try:
            self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
