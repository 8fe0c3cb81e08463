"""Any Gymnasium environment with box spaces as rows of a task.

Cheap environments are stepped in this process: a hand-over to workers would cost more than it
saves. Dear ones are spread over worker processes. Which it is, is measured when the task is built;
the numbers are the same.
"""

import time
from typing import Any

from gymnasium.spaces import Box
import numpy as np

from lpgftw_ros.domains.gymnasium_rows import GymnasiumRows, make_copy
from lpgftw_ros.domains.gymnasium_settings import GymnasiumSettings
from lpgftw_ros.domains.hosted_env import HostedVectorEnv
from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.vector_env import StepOutcome
from lpgftw_ros.domains.worker_pool import HostedRows, ProcessPool
from lpgftw_ros.errors import InvalidConfig, LpgftwError, SimulationFailed
from lpgftw_ros.learning.arrays import Array, Integers

_SEED_LIMIT = 2**31
_HAND_OVER = 5e-4
"""Seconds per control step that processes must save before they are worth it."""


def make(task: TaskSpec, n: int, pool: WorkerPool) -> 'GymnasiumTaskEnv':
    """Build n rows of a Gymnasium environment."""
    return GymnasiumTaskEnv(GymnasiumSettings.from_mapping(task.settings), n, task.horizon, pool)


class GymnasiumTaskEnv(HostedVectorEnv):
    """n copies of one Gymnasium environment, observations and actions flattened."""

    def __init__(
        self, settings: GymnasiumSettings, n: int, horizon: int, pool: WorkerPool
    ) -> None:
        probe = make_copy(settings.id, settings.kwargs)
        box = probe.action_space
        seen_size = int(np.prod(probe.observation_space.shape))
        low, high = np.ravel(box.low).astype(float), np.ravel(box.high).astype(float)
        super().__init__(
            n,
            Box(-np.inf, np.inf, (seen_size,), dtype=np.float64),
            Box(low, high, dtype=np.float64),
            horizon,
        )
        share = 1.0 - 1.0 / min(n, pool.workers)
        worth_it = share > 0.0 and n * _step_seconds(probe) * share > _HAND_OVER
        probe.close()
        self._settings, self._pool = settings, pool if worth_it else None

    def _build_rows(self) -> HostedRows:
        """Build the rows here, or in the pool's processes if they can make the environment."""
        settings, n = self._settings, self.num_envs
        masks = ('terminated', 'truncated', 'success', 'failed')
        layout = self._layout(('seeds', 'int64'), *((name, 'bool') for name in masks))
        kwargs = {'id': settings.id, 'kwargs': dict(settings.kwargs)}
        if self._pool is not None:
            try:
                processes = self._pool.shared('processes', ProcessPool)
                return processes.host(
                    'lpgftw_ros.domains.gymnasium_rows:GymnasiumRows', n, layout, kwargs
                )
            except (InvalidConfig, SimulationFailed, TypeError):
                pass  # registered by the user's program only, or with arguments JSON has not
        arrays = {name: np.zeros(shape, dtype) for name, dtype, shape in layout}
        return GymnasiumRows(arrays, settings.id, dict(settings.kwargs))

    def _reset_rows(self, rows: Integers) -> Array:
        for row in rows:
            seed = self.row_generator(int(row)).integers(_SEED_LIMIT)
            self._host.arrays['seeds'][row] = seed
        return self._request_reset(rows)

    def _step_rows(self, actions: Array, rows: Integers) -> StepOutcome:
        arrays = self._request_step(actions, rows)
        return StepOutcome(
            observations=arrays['observations'][rows],
            rewards=arrays['rewards'][rows],
            terminated=arrays['terminated'][rows],
            success=arrays['success'][rows],
            failed=arrays['failed'][rows],
            truncated=arrays['truncated'][rows],
        )

    def render_frame(self, row: int = 0, width: int = 480, height: int = 360) -> Any:
        """Return the environment's own picture; it chooses the size."""
        if not isinstance(self._host, GymnasiumRows):
            raise LpgftwError('pictures of this task need an environment of one row')
        return self._host.render(row)


def _step_seconds(copy: Any, steps: int = 5) -> float:
    """Return how long a step of an environment takes, at best."""
    box, best = copy.action_space, np.inf
    still = np.clip(np.zeros(box.shape), box.low, box.high).astype(box.dtype)
    copy.reset(seed=0)
    for _ in range(steps):
        started = time.perf_counter()
        _, _, ended, cut, _ = copy.step(still)
        best = min(best, time.perf_counter() - started)
        if ended or cut:
            copy.reset(seed=0)
    return float(best)
