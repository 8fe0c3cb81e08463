"""Threads and worker processes that environments share and keep between tasks."""

from collections.abc import Callable
import os
from typing import Any, Protocol, TypeVar

from lpgftw_ros.errors import InvalidConfig


class Closable(Protocol):
    """Anything that must be closed."""

    def close(self) -> Any:
        """Free threads, processes and memory."""


T = TypeVar('T', bound=Closable)


class Workers:
    """The workers of a sampler, started by the first environment that needs them."""

    def __init__(self, workers: int = 0, step_timeout: float = 0.0) -> None:
        if workers < 0:
            raise InvalidConfig(f'workers must be 0 (all cores) or more, got {workers}')
        self.workers = workers or available_cores()
        self.step_timeout = step_timeout
        """Seconds a step or reset may take in a worker process before it has hung; 0: no limit."""
        self.interrupted = False
        """Whether `interrupt` was called: what then fails is not to be tried again."""
        self._shared: dict[str, Closable] = {}

    def shared(self, name: str, build: Callable[[int], T]) -> T:
        """Return the shared part of that name; the first caller builds it for `workers`."""
        if name not in self._shared:
            self._shared[name] = build(self.workers)
        return self._shared[name]  # type: ignore[return-value]

    def interrupt(self) -> None:
        """Make a thread that waits for a worker raise, so that everything can close."""
        self.interrupted = True
        for part in list(self._shared.values()):
            if hasattr(part, 'interrupt'):
                part.interrupt()

    def close(self) -> None:
        """Close all shared parts; they are built again when needed."""
        while self._shared:
            self._shared.popitem()[1].close()


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
