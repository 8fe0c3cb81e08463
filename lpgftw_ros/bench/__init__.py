"""Benchmarks: speed as ratios within one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import time

# Fair timing on a machine that is never quite idle. Contestants take turns in short windows, so
# that a busy second hits all of them. The speed of each is that of its best window, the least
# disturbed one.


@dataclass(frozen=True)
class Contestant:
    """Something that takes control steps."""

    name: str
    run: Callable[[], int]
    """Do some work and return how many control steps it was."""
    close: Callable[[], object] = lambda: None


def best_rates(
    contestants: Sequence[Contestant], rounds: int, window: float = 0.3
) -> dict[str, float]:
    """Return control steps per second of each contestant's best window.

    A window ends after the first call of `run` that takes it past `window` seconds.
    """
    best = dict.fromkeys((one.name for one in contestants), 0.0)
    for one in contestants:
        one.run()  # imports, caches and workers are warm before the clock starts
    for _ in range(rounds):
        for one in contestants:
            best[one.name] = max(best[one.name], _rate(one, window))
    return best


def _rate(one: Contestant, window: float) -> float:
    steps, started = 0, time.perf_counter()
    while True:
        steps += one.run()
        seconds = time.perf_counter() - started
        if seconds >= window:
            return steps / seconds
