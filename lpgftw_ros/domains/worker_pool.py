"""Persistent worker processes that step rows of environments in lock-step.

Observations, actions and rewards live in shared memory; a request is one small packet per worker
on a Unix socket. Sockets were chosen over semaphores and spinning: a round trip costs a few tens
of microseconds against milliseconds of physics, and the death of either side is an end of file,
never a hang. Workers are new interpreters, not forks: the host may have threads.
"""

from collections.abc import Mapping
import contextlib
import json
import os
import threading
from typing import Any, Protocol
import weakref

import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.domains.shared_arrays import Layout, map_block, new_block
from lpgftw_ros.domains.worker_main import HEADER
from lpgftw_ros.domains.worker_process import WorkerDied, WorkerProcess
from lpgftw_ros.errors import InvalidConfig, SimulationFailed


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
        """Let go of the rows."""


def _close_all(processes: list[WorkerProcess]) -> None:
    for process in processes:
        process.channel.close()
    while processes:
        processes.pop().close()


class ProcessPool:
    """Worker processes, started by the first environment that is hosted."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise InvalidConfig(f'workers must be at least 1, got {workers}')
        self.workers = workers
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
                self._processes.extend(WorkerProcess() for _ in range(self.workers))
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
            try:
                for i, process in enumerate(processes):
                    process.send(header + bodies[i] if bodies else header, descriptors or [])
                replies = [process.receive(self._sequence) for process in processes]
            except WorkerDied:
                self.close()
                raise
        for worked, reply in replies:
            if not worked:
                raise _error(*json.loads(reply))
        return [reply for _, reply in replies]

    def interrupt(self) -> None:
        """Kill the workers: whoever waits for one goes on with `WorkerDied`."""
        for process in list(self._processes):
            process.process.kill()

    def close(self) -> None:
        """End all workers; a later `host` starts new ones."""
        with self._lock:
            _close_all(self._processes)


def _error(kind: str, text: str) -> Exception:
    """Return the exception a worker met."""
    if kind in ('InvalidConfig', 'UnknownName'):
        return InvalidConfig(text)
    if kind == 'SimulationFailed':
        return SimulationFailed(text)
    return SimulationFailed(f'a simulation worker failed: {kind}: {text}')


class PooledRows:
    """Rows that are stepped by the workers of a pool."""

    def __init__(
        self,
        pool: ProcessPool,
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

    def close(self) -> None:
        """Let the workers forget the rows."""
        with contextlib.suppress(SimulationFailed):
            self._pool.request(self, b'C')
