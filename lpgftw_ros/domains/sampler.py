"""From a task's name to a batch of its trajectories.

All rows of a task may stand in one environment, stepped together: that is what a policy in
another process needs. A policy at hand can do better for tasks that are simulated in this
process: each worker thread drives rows of its own and waits for nobody until its trajectories
end. Which way is taken does not change a byte.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
import importlib
import threading
from types import TracebackType

from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.rollout import batch_of, drive, Rollout
from lpgftw_ros.domains.suites import load_suite, Suite, TaskSpec
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import ACTING_BLOCK, PolicySnapshot

_BUILDERS = {
    'body': 'lpgftw_ros.domains.bodies',
    'metaworld': 'lpgftw_ros.domains.metaworld_env',
    'gymnasium': 'lpgftw_ros.domains.gymnasium_env',
}
_SPLIT = ('body',)
"""Kinds whose physics runs in this process without holding the interpreter."""


def make_env(task: TaskSpec, n: int, pool: WorkerPool) -> TaskVectorEnv:
    """Build n rows of a task; its simulator is imported only now.

    Each domain module has `make(task, n, pool) -> TaskVectorEnv`.
    """
    env: TaskVectorEnv = importlib.import_module(_BUILDERS[task.kind]).make(task, n, pool)
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

    def __init__(self, suite: Suite | str, workers: int = 0) -> None:
        self.suite = load_suite(suite) if isinstance(suite, str) else suite
        self._pool = WorkerPool(workers)
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
        workers = self.workers if self.suite.task(task).kind in _SPLIT else 1
        sizes = _split(n, workers)
        starts = [sum(sizes[:part]) for part in range(len(sizes))]
        return [
            Rollout(env, env.num_envs, seed, task, first)
            for env, first in zip(self._rows(task, sizes), starts, strict=True)
        ]

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
        return self.drive(self.rollouts(task, n, seed), policy, explore)

    def _rows(self, task: str, sizes: tuple[int, ...]) -> list[TaskVectorEnv]:
        """Return environments of these sizes; several are stepped by one thread each."""
        spec, key = self.suite.task(task), (task, sizes)
        if key not in self._envs:
            alone = len(sizes) == 1
            self._envs[key] = [
                make_env(spec, n, self._pool) if alone else _single_threaded(spec, n)
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
        """Let a thread that waits for a worker process fail at once; then `close`."""
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


def _single_threaded(task: TaskSpec, n: int) -> TaskVectorEnv:
    """Build n rows that the thread which steps them simulates itself."""
    pool = WorkerPool(1)
    env = make_env(task, n, pool)
    env.own(pool)
    return env


def _split(n: int, workers: int) -> tuple[int, ...]:
    """Return how many rows each worker takes, in whole blocks of the policy's."""
    blocks = -(-n // ACTING_BLOCK)
    parts = min(workers, blocks)
    ends = [min(n, ACTING_BLOCK * (blocks * (part + 1) // parts)) for part in range(parts)]
    return tuple(end - start for start, end in zip([0, *ends[:-1]], ends, strict=True))
