"""Any Gymnasium environment with box actions as rows of a task.

They run in worker processes: one that hangs or crashes is lost with its worker and sampled again,
and the run goes on. Only what a worker cannot make stays in this process: environments that the
calling program has registered, and arguments that are not JSON.
"""

from pathlib import Path
from typing import Any, cast

from gymnasium.spaces import Box, flatdim
import numpy as np

from lpgftw_ros.domains.gym.settings import GymnasiumRows, GymnasiumSettings, make_copy
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.vector_env import StepOutcome
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.domains.workers.processes import (
    HostedRows,
    HostedVectorEnv,
    PooledRows,
    worker_processes,
    WorkerDied,
)
from lpgftw_ros.errors import InvalidConfig, LpgftwError, SimulationFailed
from lpgftw_ros.learning.arrays import Array, Integers

_SEED_LIMIT = 2**31
_ROWS_CLASS = 'lpgftw_ros.domains.gym.settings:GymnasiumRows'


def make(task: TaskSpec, n: int, pool: Workers) -> 'GymnasiumTaskEnv':
    """Build n rows of a Gymnasium environment."""
    settings = GymnasiumSettings.from_mapping(task.settings)
    return GymnasiumTaskEnv(settings, n, task.horizon, pool, task.folder)


class GymnasiumTaskEnv(HostedVectorEnv):
    """n copies of one Gymnasium environment, observations and actions flattened."""

    def __init__(
        self,
        settings: GymnasiumSettings,
        n: int,
        horizon: int,
        pool: Workers,
        folder: Path | None = None,
    ) -> None:
        probe = make_copy(settings.id, settings.kwargs, folder)
        box = probe.action_space
        seen_size = int(flatdim(probe.observation_space))
        low, high = np.ravel(box.low).astype(float), np.ravel(box.high).astype(float)
        super().__init__(
            n,
            Box(-np.inf, np.inf, (seen_size,), dtype=np.float64),
            Box(low, high, dtype=np.float64),
            horizon,
        )
        self._kwargs = dict(settings.kwargs)
        if n == 1 and 'rgb_array' in probe.metadata.get('render_modes', ()):
            self._kwargs.setdefault('render_mode', 'rgb_array')  # draws only when asked to
        self.control_period = 1.0 / float(probe.metadata.get('render_fps') or 50)
        probe.close()
        self._settings, self._pool = settings, pool
        self._folder = None if folder is None else str(folder)

    def _build_rows(self) -> HostedRows:
        """Build the rows in the pool's processes, or here if they cannot make them."""
        settings, n = self._settings, self.num_envs
        masks = ('terminated', 'truncated', 'success', 'failed')
        layout = self._layout(('seeds', 'int64'), *((name, 'bool') for name in masks))
        kwargs: dict[str, Any] = {
            'id': settings.id,
            'kwargs': self._kwargs,
            'success': settings.success,
            'folder': self._folder,
        }
        try:
            return worker_processes(self._pool).host(_ROWS_CLASS, n, layout, kwargs)
        except WorkerDied:
            raise
        except (InvalidConfig, SimulationFailed, TypeError):
            arrays = {name: np.zeros(shape, dtype) for name, dtype, shape in layout}
            return GymnasiumRows(arrays, **kwargs)

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
        if self.num_envs > 1:
            raise LpgftwError('pictures of this task need an environment of one row')
        return cast(GymnasiumRows | PooledRows, self._host).render(row)
