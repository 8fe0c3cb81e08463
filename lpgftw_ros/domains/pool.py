"""What environments share and keep alive between tasks: threads and worker processes."""

from collections.abc import Callable
import os
from typing import Any, Protocol, TypeVar

from lpgftw_ros.errors import InvalidConfig


class Closable(Protocol):
    """Anything that has to be closed in the end."""

    def close(self) -> Any:
        """Free threads, processes and memory."""


T = TypeVar('T', bound=Closable)


class WorkerPool:
    """The workers of a sampler, started by the first environment that needs them."""

    def __init__(self, workers: int = 0) -> None:
        if workers < 0:
            raise InvalidConfig(f'workers must be 0 (all cores) or more, got {workers}')
        self.workers = workers or available_cores()
        self._shared: dict[str, Closable] = {}

    def shared(self, name: str, build: Callable[[int], T]) -> T:
        """Return the shared part of that name; the first caller builds it for `workers`."""
        if name not in self._shared:
            self._shared[name] = build(self.workers)
        return self._shared[name]  # type: ignore[return-value]

    def interrupt(self) -> None:
        """Let a thread that waits for a worker go on with an error, to be able to close."""
        for part in list(self._shared.values()):
            if hasattr(part, 'interrupt'):
                part.interrupt()

    def close(self) -> None:
        """Close all shared parts; they are built again if asked for."""
        while self._shared:
            self._shared.popitem()[1].close()


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
