"""n masses on springs, all rows in one array."""

from gymnasium.spaces import Box
import numpy as np

from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.vector_env import StepOutcome, TaskVectorEnv
from lpgftw_ros.domains.workers import Workers

_DT = 0.05


class SpringEnv(TaskVectorEnv):
    """Reward is minus the squared distance from rest."""

    def __init__(self, stiffness: float, n: int, horizon: int) -> None:
        seen = Box(-np.inf, np.inf, (2,), dtype=np.float64)
        super().__init__(n, seen, Box(-1.0, 1.0, (1,), dtype=np.float64), horizon)
        self._stiffness, self._state = stiffness, np.zeros((n, 2))

    def _reset_rows(self, rows):
        for row in rows:
            self._state[row] = self.row_generator(int(row)).uniform(-1.0, 1.0, 2)
        return self._state[rows]

    def _step_rows(self, actions, rows):
        where, speed = self._state[rows].T
        speed = speed + _DT * (np.clip(actions[:, 0], -1.0, 1.0) - self._stiffness * where)
        where = where + _DT * speed
        self._state[rows] = np.stack((where, speed), axis=1)
        return StepOutcome(
            observations=self._state[rows],
            rewards=-(where**2) - 0.1 * speed**2,
            terminated=None,
            success=np.abs(where) < 0.05,
            failed=None,
        )


def make(task: TaskSpec, n: int, workers: Workers) -> SpringEnv:
    """Build n rows."""
    return SpringEnv(task.settings['stiffness'], n, task.horizon)
