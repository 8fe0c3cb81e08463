"""HalfCheetah, Hopper and Walker2d in batches on MuJoCo's thread pool.

A row is its physics state [time, positions, velocities]; one control step rolls all running rows
out for `frame_skip` physics steps. Rewards, ends and observations are those of Gymnasium's v5.
"""

from typing import Any

from gymnasium.spaces import Box
import mujoco
from mujoco.rollout import Rollout as PhysicsThreads
import numpy as np

from lpgftw_ros.domains.body_models import compile_body, RULES
from lpgftw_ros.domains.body_settings import BodySettings
from lpgftw_ros.domains.physics_log import log_warnings
from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.rendering import FrameRenderer
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.vector_env import StepOutcome, TaskVectorEnv
from lpgftw_ros.learning.arrays import Array, Integers, Mask

_CONTROL = int(mujoco.mjtState.mjSTATE_CTRL)
_MAX_VALUE = 1e10
"""MuJoCo calls a state beyond this unstable (mjMAXVAL)."""
_TOO_FEW = 3
"""Rows that are not worth a second thread."""


def make(task: TaskSpec, n: int, pool: WorkerPool) -> 'BodyVectorEnv':
    """Build n rows of a body."""
    log_warnings()
    return BodyVectorEnv(BodySettings.from_mapping(task.settings), n, task.horizon, pool)


class BodyVectorEnv(TaskVectorEnv):
    """n rows of one MuJoCo body."""

    def __init__(
        self,
        settings: BodySettings,
        n: int,
        horizon: int,
        pool: WorkerPool,
        render_mode: str | None = None,
    ) -> None:
        self._rules, self.model = RULES[settings.body], compile_body(settings)
        self._ends = settings.terminate
        model, skip = self.model, self._rules.frame_skip
        self._nq, self._dt = model.nq, model.opt.timestep * skip
        self.control_period = float(self._dt)
        self._least_time = self._dt - 0.5 * model.opt.timestep
        seen = Box(-np.inf, np.inf, (model.nq - 1 + model.nv,), dtype=np.float64)
        low, high = model.actuator_ctrlrange.T
        super().__init__(n, seen, Box(low, high, dtype=np.float64), horizon, render_mode)
        # One worker needs no thread of its own: the caller is faster.
        self._threads = pool.shared(
            'mujoco', lambda workers: PhysicsThreads(nthread=workers if workers > 1 else 0)
        )
        self._datas = [mujoco.MjData(model) for _ in range(pool.workers)]
        self._state = np.zeros((n, 1 + model.nq + model.nv))
        self._controls = np.empty((n, skip, model.nu))
        self._states = np.empty((n, skip, self._state.shape[1]))
        self._renderer: FrameRenderer | None = None

    def _reset_rows(self, rows: Integers) -> Array:
        scale, model = self._rules.reset_noise, self.model
        for row in rows:
            stream, state = self.row_generator(int(row)), self._state[row]
            state[0] = 0.0
            state[1 : 1 + model.nq] = model.qpos0 + stream.uniform(-scale, scale, model.nq)
            if self._rules.normal_velocities:
                state[1 + model.nq :] = scale * stream.standard_normal(model.nv)
            else:
                state[1 + model.nq :] = stream.uniform(-scale, scale, model.nv)
        return self._observe(self._state[rows])

    def _step_rows(self, actions: Array, rows: Integers) -> StepOutcome:
        k, everyone = len(rows), len(rows) == self.num_envs
        before = self._state if everyone else self._state[rows]
        after = self._simulate(before, actions, k)
        failed, terminated = self._blown_up(before, after), None
        rewards = (after[:, 1] - before[:, 1]) / self._dt  # m/s forward
        if self._rules.height_range is not None:
            healthy = self._healthy(after)
            rewards += self._rules.alive_bonus * healthy
            if self._ends:
                terminated = ~healthy
        rewards -= self._rules.control_weight * np.add.reduce(np.square(actions), axis=1)
        observations = self._observe(after)
        if failed is not None:
            after[failed] = before[failed]
        if everyone:
            self._state = after
        else:
            self._state[rows] = after
        return StepOutcome(observations, rewards, terminated, None, failed)

    def _simulate(self, before: Array, actions: Array, k: int) -> Array:
        """Roll the states out for one control step and return the last ones. Shape (k, 1+q+v).

        Nothing but the state enters, so the solver starts cold and the result of a row depends
        neither on the thread nor on the rows beside it.
        """
        controls, states = self._controls[:k], self._states[:k]
        controls[:] = actions[:, None, :]
        self._threads.rollout(
            [self.model] * k,
            self._datas,
            before,
            controls,
            control_spec=_CONTROL,
            skip_checks=True,
            nstep=self._rules.frame_skip,
            state=states,
            chunk_size=self._chunk_size(k),
        )
        return states[:, -1].copy()

    def _chunk_size(self, k: int) -> int:
        """Rows a thread takes at a time: few hand-overs, yet something left to balance.

        A batch of one chunk runs in this thread: waking another costs as much as a few rows.
        """
        workers = len(self._datas)
        if k <= _TOO_FEW:
            return k
        return -(-k // (workers if k <= 8 * workers else 2 * workers))

    def _blown_up(self, before: Array, after: Array) -> Mask | None:
        """Return which rows MuJoCo gave up on; None if it did on none.

        It then resets itself without a word, so that only the row's own clock tells; a state that
        went bad in the very last physics step is not reset yet.
        """
        late = after[:, 0] - before[:, 0] < self._least_time
        if np.vdot(after, after) < _MAX_VALUE and not np.count_nonzero(late):
            return None
        return late | ~(np.abs(after).max(axis=1) < _MAX_VALUE)

    def _healthy(self, state: Array) -> Mask:
        """Return which rows stand upright. Shape (k,)."""
        rules, height, angle = self._rules, state[:, 2], state[:, 3]
        assert rules.height_range is not None
        healthy = (rules.height_range[0] < height) & (height < rules.height_range[1])
        healthy &= (rules.angle_range[0] < angle) & (angle < rules.angle_range[1])
        if rules.state_limit < np.inf:
            healthy &= np.abs(state[:, 3:]).max(axis=1) < rules.state_limit
        return healthy

    def _observe(self, state: Array) -> Array:
        """Return all positions but the first, and the velocities. Shape (k, q-1+v)."""
        seen, clip = state[:, 2:].copy(), self._rules.velocity_clip
        if clip < np.inf:
            velocities = seen[:, self._nq - 1 :]
            np.minimum(velocities, clip, out=velocities)
            np.maximum(velocities, -clip, out=velocities)
        return seen

    def render_frame(self, row: int = 0, width: int = 480, height: int = 360) -> Any:
        """Return a picture of one row, uint8, shape (height, width, 3)."""
        if self._renderer is None:
            self._renderer = FrameRenderer(self.model, camera='track')
        positions = self._state[row, 1 : 1 + self._nq]
        return self._renderer.frame(positions, width, height)

    def joint_state(self, row: int = 0) -> tuple[tuple[str, ...], Array, Array]:
        """Return names, positions and velocities of the joints of one row."""
        names = tuple(self.model.joint(i).name for i in range(self.model.njnt))
        state = self._state[row]
        return names, state[1 : 1 + self._nq].copy(), state[1 + self._nq :].copy()

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderer; the threads belong to the pool."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
