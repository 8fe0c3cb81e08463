"""One Meta-World task in one process: a compiled model, its scenes, one step of one row.

A scene is a placement of object and goal: it is simulated once, as upstream resets, and every
later reset restores it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from metaworld.sawyer_xyz_env import SawyerXYZEnv
import mujoco
import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.domains.metaworld_fast import fast_class
from lpgftw_ros.domains.metaworld_maths import Floats, norm
from lpgftw_ros.domains.metaworld_success import CRITERIA
from lpgftw_ros.domains.physics_log import log_warnings
from lpgftw_ros.errors import InvalidConfig

REWARD_ERRORS = (ValueError, AssertionError, ArithmeticError)
"""What upstream's rewards raise on states they do not expect."""

STATE = sum(
    int(getattr(mujoco.mjtState, f'mjSTATE_{part}'))
    for part in ('TIME', 'QPOS', 'QVEL', 'ACT', 'WARMSTART', 'MOCAP_POS', 'MOCAP_QUAT')
)
"""What a step needs of the one before; the other inputs are set anew or never change."""
READ_BY_REWARDS = ('assembly', 'box-close', 'disassemble', 'hammer', 'stick-pull', 'stick-push')
"""Tasks whose rewards or success read the observation beyond its first object position."""
_REMEMBERED = {'bin-picking': ('_target_to_obj_init',)}
"""Fields a reward sets in one step and reads in a later one."""
_MAX_VALUE = 1e10
"""MuJoCo calls a state beyond this unstable (mjMAXVAL)."""
_LOW, _HIGH = SawyerXYZEnv._HAND_SPACE.low.tolist(), SawyerXYZEnv._HAND_SPACE.high.tolist()


@dataclass(frozen=True)
class Scene:
    """The task as it stands right after a reset."""

    fields: Mapping[str, Any]
    """Python side of upstream's environment."""
    body_pos: Floats
    site_pos: Floats
    state: Floats
    observation: Floats
    """39-D, as upstream returns it."""


class Engine:
    """One task's model in this process, shared by all its rows."""

    def __init__(self, task: str) -> None:
        log_warnings()
        self.task = task
        self.env = fast_class(task)()
        self.model, self.data = self.env.model, self.env.data
        self.criterion = CRITERIA[task]
        self.remembered = _REMEMBERED.get(task, ())
        self._fields = dict(self.env.__dict__)
        self._body_pos, self._site_pos = self.model.body_pos.copy(), self.model.site_pos.copy()
        self._scene: Scene | None = None
        cached = self.env.cached
        self._hand = cached.body('hand').xpos
        self._claws = cached.body('rightclaw').xpos, cached.body('leftclaw').xpos
        self._low, self._high = self.env.mocap_low.tolist(), self.env.mocap_high.tolist()
        self._mocap, self._ctrl = self.data.mocap_pos[0], self.data.ctrl
        self._scale, self._skip = self.env.action_scale, self.env.frame_skip
        self._physics = 1 + self.model.nq + self.model.nv
        self._whole = task in READ_BY_REWARDS
        self._obs = np.zeros(39)
        self.state_size = mujoco.mj_stateSize(self.model, STATE)

    def build(self, vector: Sequence[float], reward: str) -> Scene:
        """Reset as upstream does on a fresh environment, and keep the result."""
        env, model = self.env, self.model
        env.__dict__.clear()
        env.__dict__.update(self._fields, data=self.data, reward_function_version=reward)
        model.body_pos[:], model.site_pos[:] = self._body_pos, self._site_pos
        mujoco.mj_resetData(model, self.data)
        mujoco.mj_forward(model, self.data)
        env._set_task_called, env._partially_observable = True, False
        env._freeze_rand_vec, env._last_rand_vec = True, np.array(vector)
        env.__dict__.pop('sawyer_observation_space', None)
        observation, _ = env.reset()
        env.sawyer_observation_space  # noqa: B018  computed once, kept in the scene
        state = np.empty(self.state_size)
        mujoco.mj_getState(model, self.data, state, STATE)
        env.data = env.cached
        self._scene = scene = Scene(
            fields={**env.__dict__},
            body_pos=model.body_pos.copy(),
            site_pos=model.site_pos.copy(),
            state=state,
            observation=observation,
        )
        self._try_reward(scene)
        return scene

    def _try_reward(self, scene: Scene) -> None:
        """Say at once if upstream's reward cannot work at this placement."""
        mujoco.mj_forward(self.model, self.data)  # a reset may leave derived quantities behind
        try:
            self.env.compute_reward(np.zeros(4), scene.observation.copy())
        except REWARD_ERRORS as error:
            raise InvalidConfig(
                f"upstream's reward of {self.task} does not work with the placement "
                f'{scene.fields["_last_rand_vec"].tolist()}: {error or type(error).__name__}'
            ) from None
        self._scene = None

    def enter(self, scene: Scene) -> None:
        """Make the scene current: model and Python side."""
        if scene is not self._scene:
            self.model.body_pos[:], self.model.site_pos[:] = scene.body_pos, scene.site_pos
            self.env.__dict__.clear()
            self.env.__dict__.update(scene.fields)
            self._scene = scene

    def load(self, state: Floats) -> None:
        """Put one row's state into the simulator."""
        mujoco.mj_setState(self.model, self.data, state, STATE)

    def advance(self, state: Floats, action: list[float]) -> None:
        """Step one row by one control step."""
        model, data, scale = self.model, self.data, self._scale
        mujoco.mj_setState(model, data, state, STATE)
        (x, y, z), (a, b, c, grip) = self._mocap.tolist(), action
        (x0, y0, z0), (x1, y1, z1) = self._low, self._high
        self._mocap[:] = (
            min(max(x + min(max(a, -1.0), 1.0) * scale, x0), x1),
            min(max(y + min(max(b, -1.0), 1.0) * scale, y0), y1),
            min(max(z + min(max(c, -1.0), 1.0) * scale, z0), z1),
        )
        self._ctrl[:] = grip, -grip
        mujoco.mj_step(model, data, self._skip)
        # Upstream's mj_forward also renews the solver's warm start: without it the next step
        # would differ.
        mujoco.mj_forward(model, data)
        mujoco.mj_getState(model, data, state, STATE)

    def blown_up(self, times: Floats, states: Floats) -> NDArray[np.bool_]:
        """Return which rows became unstable since `times`.

        MuJoCo then resets itself without a word: only the row's clock tells. A state that went
        bad in the very last physics step is not reset yet.
        """
        size = np.abs(states[:, : self._physics]).max(axis=1)
        return ~((states[:, 0] > times) & (size < _MAX_VALUE))

    def observe(self, previous: Floats | None) -> Floats:
        """Return upstream's 39-D observation, in an array that is used again.

        `previous` holds the row's last frame of 18 numbers and takes the new one. Without it
        only what rewards read is filled in.
        """
        obs, env = self._obs, self.env
        points, claws = env._get_pos_objects(), self._claws
        opening = min(max(norm(claws[0] - claws[1]) / 0.1, 0.0), 1.0)
        if previous is None and not self._whole:
            (x, y, z), (x0, y0, z0), (x1, y1, z1) = self._hand.tolist(), _LOW, _HIGH
            obs[0:4] = min(max(x, x0), x1), min(max(y, y0), y1), min(max(z, z0), z1), opening
            obs[4:7] = points
            return obs
        turns = env._get_quat_objects()
        obs[0:3], obs[3], obs[4:7], obs[7:11] = self._hand, opening, points[:3], turns[:4]
        if len(points) > 3:
            obs[11:14], obs[14:18] = points[3:], turns[4:]
        obs[36:39] = env._target_pos
        if previous is not None:
            obs[18:36] = previous
            previous[:] = obs[:18]
        space = env.sawyer_observation_space
        np.maximum(obs, space.low, out=obs)
        np.minimum(obs, space.high, out=obs)
        return obs


@lru_cache(maxsize=8)
def engine(task: str) -> Engine:
    """Return the engine of a task; the latest few stay compiled."""
    return Engine(task)
