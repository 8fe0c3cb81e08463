"""Meta-World tasks as vector environments: upstream's physics and rewards, several times faster.

One worker steps the rows in this process; several workers are processes, since most of a step
besides the physics is Python. The bytes do not depend on the number of workers.
"""

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Box
import mujoco
import numpy as np

from lpgftw_ros.domains.metaworld.engine import Engine, engine, Scene
from lpgftw_ros.domains.metaworld.fast import Floats
from lpgftw_ros.domains.metaworld.rows import MetaWorldRows
from lpgftw_ros.domains.metaworld.settings import ACT_DIM, MetaWorldSettings
from lpgftw_ros.domains.rendering import FrameRenderer
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.vector_env import SceneState, StepOutcome
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.domains.workers.processes import HostedRows, HostedVectorEnv, worker_processes
from lpgftw_ros.learning.arrays import Array, Integers

# Looking at a row of a Meta-World task: joints, poses and pictures.


_CAMERA = 'corner2'


class RowView:
    """Looks at the state of a row in this process, even if a worker steps it."""

    def __init__(self, settings: MetaWorldSettings) -> None:
        self._settings = settings
        self._engine: Engine = engine(settings.task)
        self._scenes: dict[int, Scene] = {}
        self._renderer: FrameRenderer | None = None

    def joint_state(self, state: Floats) -> tuple[tuple[str, ...], Floats, Floats]:
        """Return names, positions and velocities of the hinges and slides."""
        sim = self._engine
        sim.load(state)
        simple = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
        joints = [j for j in range(sim.model.njnt) if sim.model.jnt_type[j] in simple]
        names = tuple(sim.model.joint(j).name for j in joints)
        positions = sim.data.qpos[sim.model.jnt_qposadr[joints]]
        return names, positions, sim.data.qvel[sim.model.jnt_dofadr[joints]]

    def scene_state(self, scene: int, state: Floats) -> SceneState:
        """Return where everything is in a state."""
        model = self._engine.model
        places = state[len(state) - 7 * model.nmocap :]  # all positions, then all quaternions
        points, turns = np.split(places, [3 * model.nmocap])
        return SceneState(
            positions=state[1 : 1 + model.nq].copy(),
            mocap=np.hstack((points.reshape(-1, 3), turns.reshape(-1, 4))),
            goal=_goal(self._scene(scene)),
            time=float(state[0]),
        )

    def _scene(self, scene: int) -> Scene:
        if scene not in self._scenes:
            vector = self._settings.vectors()[scene]
            self._scenes[scene] = self._engine.build(vector, self._settings.reward)
        return self._scenes[scene]

    def frame(self, scene: int, state: Floats, width: int, height: int) -> Any:
        """Return a picture of a state."""
        sim = self._engine
        sim.enter(self._scene(scene))
        sim.load(state)
        mujoco.mj_forward(sim.model, sim.data)
        if self._renderer is None:
            self._renderer = FrameRenderer(sim.model, camera=_CAMERA)
        return self._renderer.frame_of(sim.data, width, height)

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def placed_model(settings: MetaWorldSettings, goal: Array) -> mujoco.MjModel:
    """Return a new model with the placement whose goal is nearest to a point."""
    sim = Engine(settings.task)
    scenes = [sim.build(vector, settings.reward) for vector in settings.vectors()]
    if goal.size == 3:
        scenes.sort(key=lambda scene: float(np.linalg.norm(_goal(scene) - goal)))
    sim.enter(scenes[0])
    return sim.model


def _goal(scene: Scene) -> Floats:
    return np.array(scene.fields['_target_pos'], dtype=float).ravel()


_ROWS_CLASS = 'lpgftw_ros.domains.metaworld.rows:MetaWorldRows'


def make(task: TaskSpec, n: int, pool: Workers) -> 'MetaWorldVectorEnv':
    """Build n rows of a Meta-World task on the sampler's workers."""
    return MetaWorldVectorEnv(**task.settings, num_envs=n, horizon=task.horizon, pool=pool)


def make_scene(task: TaskSpec, goal: Array) -> Any:
    """Return the model of a task with object and goal in place, for drawing."""
    return placed_model(MetaWorldSettings.from_mapping(task.settings), goal)


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
        pool: Workers | None = None,
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
            pool = Workers(workers)
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
            return worker_processes(self._workers).host(_ROWS_CLASS, n, layout, settings)
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

    def scene_state(self, row: int = 0) -> SceneState:
        """Return where arm, objects and goal of one row are."""
        scene = int(self._host.arrays['scenes'][row])
        return self._viewed().scene_state(scene, self._host.state(row))

    def render_frame(self, row: int = 0, width: int = 480, height: int = 360) -> Any:
        """Return a picture of one row, uint8, shape (height, width, 3)."""
        scene = int(self._host.arrays['scenes'][row])
        return self._viewed().frame(scene, self._host.state(row), width, height)

    def _viewed(self) -> RowView:
        if self._view is None:
            self._view = RowView(self.settings)
        return self._view

    def close_extras(self, **kwargs: Any) -> None:
        """Release rows and view."""
        super().close_extras(**kwargs)
        if self._view is not None:
            self._view.close()
            self._view = None
