"""HalfCheetah, Hopper and Walker2d in batches on MuJoCo's thread pool.

A row is its physics state [time, positions, velocities]; one control step rolls all running rows
out for `frame_skip` physics steps. Rewards, ends and observations are those of Gymnasium's v5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import math
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.spaces import Box
import mujoco
from mujoco.rollout import Rollout as PhysicsThreads
import numpy as np

from lpgftw_ros.domains.bodies.settings import BODY_PARTS, BodySettings
from lpgftw_ros.domains.rendering import FrameRenderer, log_warnings
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.vector_env import SceneState, StepOutcome, TaskVectorEnv
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.arrays import Array, Integers, Mask

# The three bodies: constants of Gymnasium's v5 tasks, and their compiled models.


GRAVITY = 9.81
"""m/s², the nominal one of all three bodies."""


@dataclass(frozen=True, kw_only=True)
class BodyRules:
    """What makes a body a task: control rate, reward, end, start."""

    xml: str
    """File among Gymnasium's MuJoCo assets."""
    frame_skip: int
    """Physics steps per control step."""
    scaled_sizes: int
    """Size numbers a part's factor scales: 1 the radius, 2 also the half length."""
    control_weight: float
    """Cost of the squared action, unclipped."""
    alive_bonus: float = 0.0
    """Paid in every step that ends healthy."""
    height_range: tuple[float, float] | None = None
    """Healthy heights in m; None: the task never ends by itself."""
    angle_range: tuple[float, float] = (-math.inf, math.inf)
    """Healthy torso angles in rad."""
    state_limit: float = math.inf
    """Healthy bound on all positions from the angle on, and on all velocities."""
    velocity_clip: float = math.inf
    """Bound on the velocities in the observation."""
    reset_noise: float
    """Half width of the uniform noise of a start."""
    normal_velocities: bool = False
    """Starting velocities are normal, with standard deviation `reset_noise`."""


RULES: Mapping[str, BodyRules] = {
    'halfcheetah': BodyRules(
        xml='half_cheetah.xml',
        frame_skip=5,
        scaled_sizes=2,
        control_weight=0.1,
        reset_noise=0.1,
        normal_velocities=True,
    ),
    'hopper': BodyRules(
        xml='hopper.xml',
        frame_skip=4,
        scaled_sizes=1,
        control_weight=1e-3,
        alive_bonus=1.0,
        height_range=(0.7, math.inf),
        angle_range=(-0.2, 0.2),
        state_limit=100.0,
        velocity_clip=10.0,
        reset_noise=5e-3,
    ),
    'walker2d': BodyRules(
        xml='walker2d_v5.xml',
        frame_skip=4,
        scaled_sizes=1,
        control_weight=1e-3,
        alive_bonus=1.0,
        height_range=(0.8, 2.0),
        angle_range=(-1.0, 1.0),
        velocity_clip=10.0,
        reset_noise=5e-3,
    ),
}


def compile_body(settings: BodySettings) -> mujoco.MjModel:
    """Return the model of a body, with parts scaled before and gravity set after compilation.

    The authors' Hopper and Walker2d define capsules by end points and a radius, so a factor widens
    a part but never lengthens it. Gymnasium's files have the half length as a second number, which
    is not scaled. Mass and inertia follow from the geometry; HalfCheetah's file fixes the total
    mass at 14 kg.
    """
    rules = RULES[settings.body]
    assets = Path(gymnasium.__file__).parent / 'envs' / 'mujoco' / 'assets'
    spec = mujoco.MjSpec.from_file(str(assets / rules.xml))
    for name, factor in zip(BODY_PARTS[settings.body], settings.parts, strict=True):
        spec.geom(name).size[: rules.scaled_sizes] *= factor
    try:
        model = spec.compile()
    except ValueError as error:
        raise InvalidConfig(f'MuJoCo cannot build {settings}: {error}') from None
    model.opt.gravity[:] = (0.0, 0.0, -GRAVITY * settings.gravity)
    return model


_CONTROL = int(mujoco.mjtState.mjSTATE_CTRL)
_MAX_VALUE = 1e10
"""MuJoCo calls a state beyond this unstable (mjMAXVAL)."""
_TOO_FEW = 3
"""Up to this many rows a second thread does not pay."""


def make(task: TaskSpec, n: int, pool: Workers) -> 'BodyVectorEnv':
    """Build n rows of a body."""
    log_warnings()
    return BodyVectorEnv(BodySettings.from_mapping(task.settings), n, task.horizon, pool)


def make_scene(task: TaskSpec, goal: Array) -> mujoco.MjModel:
    """Return the model of a body, for drawing."""
    return compile_body(BodySettings.from_mapping(task.settings))


class BodyVectorEnv(TaskVectorEnv):
    """n rows of one MuJoCo body."""

    def __init__(
        self,
        settings: BodySettings,
        n: int,
        horizon: int,
        pool: Workers,
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

        Only the state is passed in, so the solver starts cold and the result of a row depends
        neither on the thread nor on the other rows.
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
        """Rows a thread takes at a time: few hand-overs, with some left to balance the load.

        A batch of one chunk runs in this thread: waking another costs as much as a few rows.
        """
        workers = len(self._datas)
        if k <= _TOO_FEW:
            return k
        return -(-k // (workers if k <= 8 * workers else 2 * workers))

    def _blown_up(self, before: Array, after: Array) -> Mask | None:
        """Return which rows MuJoCo gave up on; None if it did on none.

        It then resets itself silently, which shows only in the row's clock. A state that went bad
        in the last physics step is not reset yet.
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

    def scene_state(self, row: int = 0) -> SceneState:
        """Return the joint positions of one row."""
        state = self._state[row]
        return SceneState(
            state[1 : 1 + self._nq].copy(), np.zeros((0, 7)), np.zeros(0), float(state[0])
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderer; the threads belong to the pool."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
