"""From a task's name to a batch of its trajectories."""

from collections import OrderedDict
import importlib
from types import TracebackType

from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.rollout import collect
from lpgftw_ros.domains.suites import load_suite, Suite, TaskSpec
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import PolicySnapshot

_BUILDERS = {
    'body': 'lpgftw_ros.domains.bodies',
    'metaworld': 'lpgftw_ros.domains.metaworld_env',
    'gymnasium': 'lpgftw_ros.domains.gymnasium_env',
}


def make_env(task: TaskSpec, n: int, pool: WorkerPool) -> TaskVectorEnv:
    """Build n rows of a task; its simulator is imported only now.

    Each domain module has `make(task, n, pool) -> TaskVectorEnv`.
    """
    env: TaskVectorEnv = importlib.import_module(_BUILDERS[task.kind]).make(task, n, pool)
    return env


class Sampler:
    """Samples the tasks of a suite; workers and the latest environments stay alive.

    The bytes of a batch depend on (task, policy, n, seed) only, not on the number of workers.
    """

    _KEPT = 4
    """Environments kept; switching back to a task that is among them costs nothing."""

    def __init__(self, suite: Suite | str, workers: int = 0) -> None:
        self.suite = load_suite(suite) if isinstance(suite, str) else suite
        self._pool = WorkerPool(workers)
        self._envs: OrderedDict[tuple[str, int], TaskVectorEnv] = OrderedDict()

    @property
    def workers(self) -> int:
        """Number of threads or processes that simulate."""
        return self._pool.workers

    def env(self, task: str, n: int) -> TaskVectorEnv:
        """Return n rows of a task, built at first use."""
        spec, key = self.suite.task(task), (task, n)
        if key not in self._envs:
            self._envs[key] = make_env(spec, n, self._pool)
            while len(self._envs) > self._KEPT:
                self._envs.popitem(last=False)[1].close()
        self._envs.move_to_end(key)
        return self._envs[key]

    def collect(
        self, task: str, policy: PolicySnapshot, n: int, seed: int, explore: bool = True
    ) -> Batch:
        """Sample n trajectories of a task."""
        return collect(self.env(task, n), policy, n, seed, explore, task_name=task)

    def close(self) -> None:
        """Close environments and workers; a later call builds them again."""
        while self._envs:
            self._envs.popitem()[1].close()
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
