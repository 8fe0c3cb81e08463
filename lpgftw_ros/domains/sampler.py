"""From a task's name to a batch of its trajectories.

A policy in another process needs all rows of a task in one environment, stepped together. In one
process, tasks that are simulated there run faster in parts: each worker thread drives its own rows
to the end without waiting for others. Both ways give the same bytes.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
import hashlib
import logging
import math
import threading
from types import TracebackType
from typing import TypeVar

import numpy as np

from lpgftw_ros.domains.rollout import batch_of, drive, Rollout
from lpgftw_ros.domains.suites import kind_module, load_suite, Suite, TaskSpec
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.domains.workers import available_cores, Workers
from lpgftw_ros.domains.workers.processes import WorkerDied
from lpgftw_ros.errors import InvalidConfig, LpgftwError, SimulationFailed
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.policies import ACTING_BLOCK, PolicySnapshot
from lpgftw_ros.learning.randomness import generator, Purpose

logger = logging.getLogger(__name__)
T = TypeVar('T')
ATTEMPTS = 3
"""How often a rollout is begun before a task whose workers hang or die is given up."""


def make_env(task: TaskSpec, n: int, pool: Workers) -> TaskVectorEnv:
    """Build n rows of a task; its simulator is imported only now."""
    env: TaskVectorEnv = kind_module(task.kind, 'env').make(task, n, pool)
    return env


class _Stopped(LpgftwError):
    """Another part of the rollout failed."""


class _Threads(ThreadPoolExecutor):
    def close(self) -> None:
        self.shutdown()


class Sampler:
    """Samples the tasks of a suite; workers and the latest environments stay alive.

    The bytes of a batch depend on (task, policy, n, seed) only, not on the number of workers.
    """

    _KEPT = 4
    """Tasks whose rows are kept; switching back to one of them costs nothing."""

    def __init__(self, suite: Suite | str, workers: int = 0, step_timeout: float = 0.0) -> None:
        """Open a suite; a worker that takes longer than `step_timeout` s has hung (0: never).

        Runs pass `SamplingOptions.step_timeout` of `runs/settings.py`.
        """
        self.suite = load_suite(suite) if isinstance(suite, str) else suite
        self.replaced = 0
        """How often workers that hung or died were replaced."""
        self._pool = Workers(workers, step_timeout)
        self._envs: OrderedDict[tuple[str, tuple[int, ...]], list[TaskVectorEnv]] = OrderedDict()

    @property
    def workers(self) -> int:
        """Number of threads or processes that simulate."""
        return self._pool.workers

    def env(self, task: str, n: int) -> TaskVectorEnv:
        """Return n rows of a task in one environment, built at first use."""
        return self._rows(task, (n,))[0]

    def rollouts(self, task: str, n: int, seed: int) -> list[Rollout]:
        """Start a rollout of n trajectories, split into as many parts as is fastest."""
        if n < 1:
            raise InvalidConfig(f'a rollout needs at least one trajectory, got {n}')
        workers = self.workers if self.suite.task(task).traits.threads else 1
        sizes = split(n, workers)
        return _rollouts(self._rows(task, sizes, threads=len(sizes) > 1), task, seed)

    def turns(self, task: str, n: int, seed: int) -> list[Rollout]:
        """Start a rollout of n trajectories in one or two parts, to be stepped in turns."""
        return _rollouts(self.rows_in_turns(task, n), task, seed)

    def rows_in_turns(self, task: str, n: int) -> list[TaskVectorEnv]:
        """Return n rows of a task in one or two environments, built at first use.

        With two, all workers step one of them while the other waits for its actions. That pays
        where a step takes longer than the actions do, in simulators that fill a process, and
        where the actions have a core of their own.
        """
        alone = self.suite.task(task).traits.threads or self.workers >= available_cores()
        return self._rows(task, (n,) if alone else halves(n, self.workers))

    def drive(
        self,
        rollouts: Sequence[Rollout],
        policy: PolicySnapshot,
        explore: bool = True,
        before_step: Callable[[Array], None] | None = None,
    ) -> Batch:
        """Run all parts of a rollout to their end; `before_step` watches the first of them."""
        stop = threading.Event()
        threads = self._pool.shared('threads', _Threads)

        def give_up(actions: Array) -> None:
            if stop.is_set():
                raise _Stopped('another part of the rollout failed')

        def run(rollout: Rollout, watch: Callable[[Array], None] | None) -> None:
            try:
                drive(rollout, policy, explore, watch)
            except BaseException:
                stop.set()
                raise

        def watch(actions: Array) -> None:
            give_up(actions)
            if before_step is not None:
                before_step(actions)

        others = [threads.submit(run, rollout, give_up) for rollout in rollouts[1:]]
        try:
            run(rollouts[0], watch)
        except _Stopped:
            pass  # the part that failed says why
        finally:
            wait(others)
        problems = [problem for other in others if (problem := other.exception()) is not None]
        for problem in sorted(problems, key=lambda each: isinstance(each, _Stopped)):
            raise problem
        return batch_of(rollouts)

    def collect(
        self, task: str, policy: PolicySnapshot, n: int, seed: int, explore: bool = True
    ) -> Batch:
        """Sample n trajectories of a task."""
        return self.persist(
            task, lambda: self.drive(self.rollouts(task, n, seed), policy, explore)
        )

    def fingerprint(self, task: str) -> str:
        """Return the hash of a short scripted rollout of one task."""
        return self.persist(task, lambda: rollout_hash(self.env(task, 1)))

    def persist(self, task: str, sample: Callable[[], T]) -> T:
        """Return what `sample` returns; if a worker hangs or dies in it, with new workers.

        Seeds make the new trajectories equal to what the lost ones would have been.
        """
        attempt = 1
        while True:
            try:
                return sample()
            except WorkerDied as error:
                if self._pool.interrupted or attempt == ATTEMPTS:
                    tried = f', {ATTEMPTS} times in a row' if attempt == ATTEMPTS else ''
                    raise SimulationFailed(f"task '{task}': {error}{tried}") from error
                logger.warning("task '%s': %s; new workers sample the rollout again", task, error)
            attempt += 1
            self.replaced += 1
            self.close()

    def _rows(
        self, task: str, sizes: tuple[int, ...], *, threads: bool = False
    ) -> list[TaskVectorEnv]:
        """Return environments of these sizes, stepped by all workers or by a thread each."""
        spec, key = self.suite.task(task), (task, sizes)
        if key not in self._envs:
            self._envs[key] = [
                _single_threaded(spec, n) if threads else make_env(spec, n, self._pool)
                for n in sizes
            ]
            while len(self._envs) > self._KEPT:
                self._close_oldest()
        self._envs.move_to_end(key)
        return self._envs[key]

    def _close_oldest(self) -> None:
        for env in self._envs.popitem(last=False)[1]:
            env.close()

    def interrupt(self) -> None:
        """Make a thread that waits for a worker process fail at once; then `close`."""
        self._pool.interrupt()

    def close(self) -> None:
        """Close environments and workers; a later call builds them again."""
        while self._envs:
            self._close_oldest()
        self._pool.close()

    def __enter__(self) -> 'Sampler':
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _rollouts(envs: Sequence[TaskVectorEnv], task: str, seed: int) -> list[Rollout]:
    """Start one rollout whose trajectories are spread over environments."""
    starts = [sum(env.num_envs for env in envs[:part]) for part in range(len(envs))]
    return [
        Rollout(env, env.num_envs, seed, task, first)
        for env, first in zip(envs, starts, strict=True)
    ]


def _single_threaded(task: TaskSpec, n: int) -> TaskVectorEnv:
    """Build n rows that are simulated in the thread that steps them."""
    pool = Workers(1)
    env = make_env(task, n, pool)
    env.own(pool)
    return env


def blocks(n: int) -> int:
    """Return how many acting blocks n rows are: a rollout has no more parts than that."""
    return -(-n // ACTING_BLOCK)


def halves(n: int, workers: int) -> tuple[int, ...]:
    """Return two numbers of rows, the first one whole acting blocks for every worker.

    Too few rows for two such parts stay in one.
    """
    unit = ACTING_BLOCK * workers
    first = unit * math.ceil(n / unit / 2)
    return (first, n - first) if first < n else (n,)


def split(n: int, workers: int) -> tuple[int, ...]:
    """Return how many rows each worker takes, in whole blocks of the policy's."""
    whole = blocks(n)
    parts = min(workers, whole)
    ends = [min(n, ACTING_BLOCK * (whole * (part + 1) // parts)) for part in range(parts)]
    return tuple(end - start for start, end in zip([0, *ends[:-1]], ends, strict=True))


# A hash of what a task's physics does, stored with every run.
#
# Two machines or library versions with the same fingerprint simulate a task bit for bit alike. A
# run that is resumed under another one can warn.


_SEED = 0
_STEPS = 20


def task_fingerprint(suite: Suite, task: str) -> str:
    """Return the hash of a short scripted rollout of one task."""
    with Sampler(suite, 1) as sampler:
        return sampler.fingerprint(task)


def rollout_hash(env: TaskVectorEnv) -> str:
    """Return the SHA-256 of observations, rewards and ends under a fixed script of actions."""
    script = generator(_SEED, Purpose.NOISE).uniform(-1.0, 1.0, (_STEPS, 1, env.act_dim))
    digest = hashlib.sha256()
    observations, _ = env.reset(seed=_SEED)
    digest.update(np.ascontiguousarray(observations[:1]).tobytes())
    for actions in script:
        everyone = np.repeat(actions, env.num_envs, axis=0)
        observations, rewards, terminated, _, infos = env.step(everyone)
        for array in (observations, rewards, terminated, infos['success']):
            digest.update(np.ascontiguousarray(array[:1]).tobytes())
    return digest.hexdigest()
