"""Meta-World tasks as vector environments: upstream's physics and rewards, several times faster.

One worker steps the rows in this process; more are processes of their own, since most of what a
step does beside the physics is Python. The bytes do not depend on the number of workers.
"""

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Box
import numpy as np

from lpgftw_ros.domains.hosted_env import HostedVectorEnv
from lpgftw_ros.domains.metaworld_rows import MetaWorldRows
from lpgftw_ros.domains.metaworld_settings import ACT_DIM, MetaWorldSettings
from lpgftw_ros.domains.metaworld_view import RowView
from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.vector_env import StepOutcome
from lpgftw_ros.domains.worker_pool import HostedRows, ProcessPool
from lpgftw_ros.learning.arrays import Array, Integers

_ROWS_CLASS = 'lpgftw_ros.domains.metaworld_rows:MetaWorldRows'


def make(task: TaskSpec, n: int, pool: WorkerPool) -> 'MetaWorldVectorEnv':
    """Build n rows of a Meta-World task on the sampler's workers."""
    return MetaWorldVectorEnv(**task.settings, num_envs=n, horizon=task.horizon, pool=pool)


class MetaWorldVectorEnv(HostedVectorEnv):
    """n rows of one Meta-World 3.1.1 task.

    Args:
        task: Upstream's name, with or without `-v3`.
        num_envs: Number of rows.
        reward: `v1` (the paper's) or `v2`.
        observation: `paper6` (hand and object position) or `full39` (upstream's, goal visible).
        horizon: Control steps until truncation.
        goal: A point, or a list of points of which every trajectory draws one by its seed.
        object: As `goal`, for the object or the fixture.
        workers: Processes that step the rows; 1 is this process.
        render_mode: None or `rgb_array`.
        pool: Where to share worker processes with other environments.
    """

    def __init__(
        self,
        task: str = 'reach-v3',
        num_envs: int = 1,
        *,
        reward: str = 'v1',
        observation: str = 'paper6',
        horizon: int = 150,
        goal: Any = None,
        object: Any = None,
        workers: int = 1,
        render_mode: str | None = None,
        pool: WorkerPool | None = None,
    ) -> None:
        self.settings = MetaWorldSettings(
            task=task, reward=reward, observation=observation, goal=goal, object=object
        )
        self._vectors = self.settings.vectors()
        self.deterministic_resets = len(self._vectors) == 1
        seen = Box(-np.inf, np.inf, (self.settings.obs_dim,), dtype=np.float64)
        moves = Box(-1.0, 1.0, (ACT_DIM,), dtype=np.float64)
        super().__init__(num_envs, seen, moves, horizon, render_mode)
        if pool is None:
            pool = WorkerPool(workers)
            self.own(pool)
        self._workers = pool
        self._view: RowView | None = None

    def _build_rows(self) -> HostedRows:
        n = self.num_envs
        layout = self._layout(('scenes', 'int64'), ('success', 'bool'), ('failed', 'bool'))
        settings: Mapping[str, Any] = {
            'task': self.settings.task,
            'reward': self.settings.reward,
            'observation': self.settings.observation,
            'vectors': self._vectors,
        }
        if min(n, self._workers.workers) > 1:
            processes = self._workers.shared('processes', ProcessPool)
            return processes.host(_ROWS_CLASS, n, layout, settings)
        arrays = {name: np.zeros(shape, dtype) for name, dtype, shape in layout}
        return MetaWorldRows(arrays, **settings)

    def _reset_rows(self, rows: Integers) -> Array:
        if len(self._vectors) > 1:
            for row in rows:
                choice = self.row_generator(int(row)).integers(len(self._vectors))
                self._host.arrays['scenes'][row] = choice
        return self._request_reset(rows)

    def _step_rows(self, actions: Array, rows: Integers) -> StepOutcome:
        arrays = self._request_step(actions, rows)
        return StepOutcome(
            observations=arrays['observations'][rows],
            rewards=arrays['rewards'][rows],
            terminated=np.zeros(len(rows), dtype=bool),
            success=arrays['success'][rows],
            failed=arrays['failed'][rows],
        )

    def joint_state(self, row: int = 0) -> tuple[tuple[str, ...], Array, Array]:
        """Return names, positions and velocities of arm, fingers and fixtures of one row."""
        return self._viewed().joint_state(self._host.state(row))

    def render_frame(self, row: int = 0, width: int = 480, height: int = 360) -> Any:
        """Return a picture of one row, uint8, shape (height, width, 3)."""
        scene = int(self._host.arrays['scenes'][row])
        return self._viewed().frame(scene, self._host.state(row), width, height)

    def _viewed(self) -> RowView:
        if self._view is None:
            self._view = RowView(self.settings)
        return self._view

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of rows and view."""
        super().close_extras(**kwargs)
        if self._view is not None:
            self._view.close()
            self._view = None
