"""Persistent worker processes that step rows of environments in lock-step.

Observations, actions and rewards live in shared memory; a request is one small packet per worker
on a Unix socket. Sockets were chosen over semaphores and spinning: a round trip costs a few tens
of microseconds against milliseconds of physics, and the death of either side is an end of file,
never a hang. A worker that does not answer in time is killed. Workers are new interpreters, not
forks: the host may have threads.
"""

from abc import abstractmethod
from collections.abc import Mapping
import contextlib
import json
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any, Protocol
import weakref

import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.arithmetic import THREAD_VARIABLES
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.domains.workers.main import HEADER, LARGEST, Layout, map_block, new_block, REPLY
from lpgftw_ros.errors import InvalidConfig, LpgftwError, SimulationFailed
from lpgftw_ros.learning.arrays import Array, Integers

_START = """
import sys, types
root = sys.argv[2]
sys.path.insert(0, root)
package = types.ModuleType('lpgftw_ros.domains')
package.__path__ = [root + '/lpgftw_ros/domains']
sys.modules[package.__name__] = package
from lpgftw_ros.arithmetic import THREAD_VARIABLES
from lpgftw_ros.domains.workers.main import main
main(int(sys.argv[1]))
"""
"""How a worker starts: without the package's `__init__`, which would load the learning library."""
_ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, '1')


class WorkerDied(SimulationFailed):
    """A simulation worker ended without being asked to; its environments are lost."""


class WorkerHung(WorkerDied):
    """A simulation worker did not answer in time."""


BUILD_TIME = 120.0
"""Seconds a worker may take to make its environments."""
_LOOKS = 10
"""Parts a time limit is waited for in: a process that was stopped itself loses only one."""


class WorkerProcess:
    """One worker and the socket to it."""

    def __init__(self, step_timeout: float = 0.0) -> None:
        self.channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(step_timeout / _LOOKS or None)
        root = str(Path(__file__).resolve().parents[3])
        with other:
            self.process = subprocess.Popen(
                [sys.executable, '-P', '-c', _START, str(other.fileno()), root],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                process_group=0,  # the parent handles a terminal's Ctrl-C
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

    def receive(self, sequence: int, patience: float) -> tuple[bool, bytes]:
        """Wait for the answer to a request; drop answers to earlier ones."""
        waited = 0.0
        while True:
            try:
                reply = self.channel.recv(LARGEST)
            except TimeoutError:
                waited += self.channel.gettimeout() or 0.0
                if waited >= patience:
                    raise WorkerHung(
                        f'simulation worker {self.process.pid} did not answer within '
                        f'{patience:g} s'
                    ) from None
                continue
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
        return WorkerDied(f'simulation worker {self.process.pid} ended unexpectedly ({why})')

    def close(self) -> None:
        """End the worker: it exits when its socket is closed."""
        self.channel.close()
        try:
            self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class HostedRows(Protocol):
    """Rows of an environment, here or in workers."""

    arrays: Mapping[str, NDArray[Any]]

    def reset(self) -> None:
        """Reset the rows marked in the array `active`."""

    def step(self) -> None:
        """Step the rows marked in the array `active`."""

    def state(self, row: int) -> NDArray[np.float64]:
        """Return the physics state of one row."""

    def close(self) -> None:
        """Release the rows."""


def _close_all(processes: list[WorkerProcess]) -> None:
    for process in processes:
        process.channel.close()
    while processes:
        processes.pop().close()


class WorkerProcesses:
    """Worker processes, started by the first environment that is hosted."""

    def __init__(self, workers: int, step_timeout: float = 0.0) -> None:
        if workers < 1:
            raise InvalidConfig(f'workers must be at least 1, got {workers}')
        self.workers, self._step_timeout = workers, step_timeout
        self._processes: list[WorkerProcess] = []
        self._generation = self._sequence = self._numbers = 0
        self._lock = threading.RLock()
        self._finalizer = weakref.finalize(self, _close_all, self._processes)

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [process.process.pid for process in self._processes]

    def host(
        self, rows_class: str, n: int, layout: Layout, settings: Mapping[str, Any]
    ) -> 'PooledRows':
        """Spread n rows over the workers.

        Args:
            rows_class: `module:Class`; built as Class(arrays, **settings) with `reset`, `step`,
                `state(row)` and `close`.
            n: Rows; the first axis of every array.
            layout: The shared arrays.
            settings: Keyword arguments of the class, as JSON.
        """
        with self._lock:
            if not self._processes:
                self._processes.extend(
                    WorkerProcess(self._step_timeout) for _ in range(self.workers)
                )
                self._generation += 1
            self._numbers += 1
            used = min(self.workers, n)
            bounds = [n * i // used for i in range(used + 1)]
            descriptor = new_block(layout)
            try:
                rows = PooledRows(
                    self, self._numbers, self._generation, bounds, map_block(descriptor, layout)
                )
                common = {'rows_class': rows_class, 'layout': layout, 'settings': settings}
                bodies = [
                    json.dumps({**common, 'rows': bounds[i : i + 2]}).encode() for i in range(used)
                ]
                self.request(rows, b'B', bodies, [descriptor])
            finally:
                os.close(descriptor)
            return rows

    def request(
        self,
        rows: 'PooledRows',
        operation: bytes,
        bodies: list[bytes] | None = None,
        descriptors: list[int] | None = None,
        only: int | None = None,
    ) -> list[bytes]:
        """Send an operation to the workers of these rows and return their results."""
        with self._lock:
            if rows.generation != self._generation or not self._processes:
                raise WorkerDied('the workers of this environment are gone; make it again')
            processes = self._processes[: rows.n_workers]
            if only is not None:
                processes = [processes[only]]
            self._sequence = (self._sequence + 1) % (1 << 32)
            header = HEADER.pack(self._sequence, operation, rows.number)
            patience = BUILD_TIME if operation == b'B' else self._step_timeout
            try:
                for i, process in enumerate(processes):
                    process.send(header + bodies[i] if bodies else header, descriptors or [])
                replies = [process.receive(self._sequence, patience) for process in processes]
            except WorkerDied:
                self.interrupt()  # a hung one would not go by itself
                self.close()
                raise
        for worked, reply in replies:
            if not worked:
                raise error_of(*json.loads(reply))
        return [reply for _, reply in replies]

    def interrupt(self) -> None:
        """Kill the workers; a caller that waits for one gets `WorkerDied`."""
        for process in list(self._processes):
            process.process.kill()

    def close(self) -> None:
        """End all workers; a later `host` starts new ones."""
        with self._lock:
            _close_all(self._processes)


def worker_processes(pool: Workers) -> WorkerProcesses:
    """Return the processes the environments of a sampler share."""
    return pool.shared('processes', lambda n: WorkerProcesses(n, pool.step_timeout))


def error_of(kind: str, text: str) -> Exception:
    """Return the exception a worker met."""
    if kind in ('InvalidConfig', 'UnknownName'):
        return InvalidConfig(text)
    if kind == 'SimulationFailed':
        return SimulationFailed(text)
    if kind == 'LpgftwError':
        return LpgftwError(text)
    return SimulationFailed(f'a simulation worker failed: {kind}: {text}')


class PooledRows:
    """Rows that are stepped by the workers of a pool."""

    def __init__(
        self,
        pool: WorkerProcesses,
        number: int,
        generation: int,
        bounds: list[int],
        arrays: Mapping[str, NDArray[Any]],
    ) -> None:
        self._pool, self._bounds = pool, bounds
        self.number, self.generation, self.arrays = number, generation, arrays
        self.n_workers = len(bounds) - 1

    def reset(self) -> None:
        """Reset the marked rows."""
        self._pool.request(self, b'R')

    def step(self) -> None:
        """Step the marked rows."""
        self._pool.request(self, b'S')

    def state(self, row: int) -> NDArray[np.float64]:
        """Return the physics state of one row."""
        worker = int(np.searchsorted(self._bounds, row, side='right')) - 1
        body = json.dumps(row - self._bounds[worker]).encode()
        return np.frombuffer(self._pool.request(self, b'X', [body], only=worker)[0]).copy()

    def render(self, row: int) -> NDArray[np.uint8]:
        """Return a picture of one row, which its worker draws."""
        worker = int(np.searchsorted(self._bounds, row, side='right')) - 1
        body = json.dumps(row - self._bounds[worker]).encode()
        with tempfile.TemporaryFile() as file:
            (shape,) = self._pool.request(self, b'P', [body], [file.fileno()], only=worker)
            file.seek(0)
            return np.frombuffer(file.read(), np.uint8).reshape(json.loads(shape))

    def close(self) -> None:
        """Make the workers drop the rows."""
        with contextlib.suppress(SimulationFailed):
            self._pool.request(self, b'C')


# The common part of environments whose rows are hosted in this process or in workers.


class HostedVectorEnv(TaskVectorEnv):
    """Speaks to its rows through shared arrays and two requests: reset and step."""

    _hosted: HostedRows | None = None

    @abstractmethod
    def _build_rows(self) -> HostedRows:
        """Build the rows, here or in workers."""

    @property
    def _host(self) -> HostedRows:
        """The rows, built when they are first needed."""
        if self._hosted is None:
            self._hosted = self._build_rows()
        return self._hosted

    def close_extras(self, **kwargs: Any) -> None:
        """Release the rows; the workers belong to the pool."""
        if self._hosted is not None:
            self._hosted.close()
            self._hosted = None

    def _layout(self, *more: tuple[str, str]) -> Layout:
        """Return the shared arrays of the rows, and further ones with one number per row."""
        n = self.num_envs
        return (
            ('actions', 'float64', (n, self.act_dim)),
            ('observations', 'float64', (n, self.obs_dim)),
            ('rewards', 'float64', (n,)),
            *((name, dtype, (n,)) for name, dtype in more),
            ('active', 'bool', (n,)),
        )

    def _request_reset(self, rows: Integers) -> Array:
        """Reset these rows and return what they see."""
        arrays = self._mark(rows)
        self._host.reset()
        return arrays['observations'][rows].copy()

    def _request_step(self, actions: Array, rows: Integers) -> Mapping[str, NDArray[Any]]:
        """Step these rows and return the arrays they answered in."""
        arrays = self._mark(rows)
        arrays['actions'][rows] = actions
        self._host.step()
        return arrays

    def _mark(self, rows: Integers) -> Mapping[str, NDArray[Any]]:
        """Mark the rows of the next request."""
        arrays = self._host.arrays
        arrays['active'][:] = False
        arrays['active'][rows] = True
        return arrays
