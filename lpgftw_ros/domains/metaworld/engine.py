"""One Meta-World task in one process: a compiled model, its scenes, one step of one row.

A scene is a placement of object and goal. It is simulated once, the way upstream resets; every
later reset restores it.
"""

from collections.abc import Callable, Mapping, Sequence
import ctypes
from dataclasses import dataclass
from functools import lru_cache
import math
from typing import Any

from metaworld.sawyer_xyz_env import SawyerXYZEnv
import mujoco
import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.domains.metaworld.fast import fast_class, Floats, norm
from lpgftw_ros.domains.rendering import log_warnings
from lpgftw_ros.errors import InvalidConfig

# When a Meta-World task is solved: upstream's v2 criterion, whatever reward is in use.
#
# Most tasks are solved when a point is close to the target:
#
#     || w * (point + offset - target) || <= radius
#
# with a weight w per axis (0 leaves an axis out). The others have a function of their own. Only
# what the criterion needs is computed, not upstream's whole v2 reward.


Observation = NDArray[np.float64]
Criterion = Callable[[Any, Observation], bool]
"""From upstream's environment and its 39-D observation to solved or not."""

_ALL = (1.0, 1.0, 1.0)
_X, _Y, _Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
_NONE = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Near:
    """The object is within a radius of the target."""

    radius: float
    weights: tuple[float, float, float] = _ALL
    offset: tuple[float, float, float] = _NONE
    site: str | None = None
    """A site to use in place of the observed object."""
    target_z: float | None = None
    """A height to use in place of the target's."""

    def __call__(self, env: Any, obs: Observation) -> bool:
        """Return whether the object is close enough."""
        point = obs[4:7] if self.site is None else env._get_site_pos(self.site)
        tx, ty, tz = env._target_pos.tolist()
        tz = tz if self.target_z is None else self.target_z
        (x, y, z), (u, v, w), (ox, oy, oz) = point.tolist(), self.weights, self.offset
        dx, dy, dz = u * (x + ox - tx), v * (y + oy - ty), w * (z + oz - tz)
        return math.sqrt(dx * dx + dy * dy + dz * dz) <= self.radius


def hand_near_target(env: Any, obs: Observation) -> bool:
    """The point between the fingers is within 5 cm of the target."""
    return math.dist(env.tcp_center, env._target_pos) <= 0.05


def nut_on_peg(env: Any, obs: Observation) -> bool:
    """The nut's centre is above the peg and hooked over it."""
    x, y, z = (env._target_pos - env._get_site_pos('RoundNut')).tolist()
    return math.sqrt(x * x + y * y) < 0.02 and z > 0.0


def nut_above_target(env: Any, obs: Observation) -> bool:
    """The nut was lifted above the target height."""
    return bool(obs[6] > env._target_pos[2])


def nail_driven(env: Any, obs: Observation) -> bool:
    """The nail went in by more than 9 cm."""
    return bool(env.data.joint('NailSlideJoint').qpos[0] > 0.09)


def lever_up(env: Any, obs: Observation) -> bool:
    """The lever stands within 7.5 degrees of upright."""
    return abs(-float(env.data.joint('LeverAxis').qpos[0]) - math.pi / 2.0) <= math.pi / 24


def box_closed(env: Any, obs: Observation) -> bool:
    """The lid is closer than 8 cm to its place."""
    return math.dist(obs[4:7], env._target_pos) < 0.08


def thermos_pulled(env: Any, obs: Observation) -> bool:
    """The stick is in the handle and the handle within 12 cm of the target."""
    handle = obs[11:14]
    if math.dist(handle, env._target_pos) > 0.12:
        return False
    return bool(env._stick_is_inserted(handle, env._get_site_pos('stick_end')))


def thermos_pushed(env: Any, obs: Observation) -> bool:
    """The thermos is within 12 cm of the target while the lifted stick is held."""
    if math.dist(obs[11:14], env._target_pos) > 0.12 or not obs[3] > 0:
        return False
    return bool(obs[6] - 0.01 > env.stick_init_pos[2] and env.touching_main_object)


CRITERIA: Mapping[str, Criterion] = {
    'assembly': nut_on_peg,
    'basketball': Near(0.08, weights=(1.0, 1.0, 2.0), target_z=0.3),
    'bin-picking': Near(0.05),
    'box-close': box_closed,
    'button-press': Near(0.02, _Y),
    'button-press-topdown': Near(0.024, _Z),
    'button-press-topdown-wall': Near(0.024, _Z),
    'button-press-wall': Near(0.03, _Y),
    'coffee-button': Near(0.02, _Y),
    'coffee-pull': Near(0.07),
    'coffee-push': Near(0.07),
    'dial-turn': Near(0.07),
    'disassemble': nut_above_target,
    'door-close': Near(0.08),
    'door-lock': Near(0.02, _Z),
    'door-open': Near(0.08, _X),
    'door-unlock': Near(0.02, _X),
    'drawer-close': Near(0.05 + 0.015),
    'drawer-open': Near(0.03),
    'faucet-close': Near(0.07),
    'faucet-open': Near(0.07, offset=(-0.04, 0.0, 0.03)),
    'hammer': nail_driven,
    'hand-insert': Near(0.05),
    'handle-press': Near(0.02, _Z),
    'handle-press-side': Near(0.02, _Z),
    'handle-pull': Near(0.05, _Z),
    'handle-pull-side': Near(0.08),
    'lever-pull': lever_up,
    'peg-insert-side': Near(0.07, weights=(1.0, 2.0, 2.0), site='pegHead'),
    'peg-unplug-side': Near(0.07),
    'pick-out-of-hole': Near(0.07),
    'pick-place': Near(0.07),
    'pick-place-wall': Near(0.07),
    'plate-slide': Near(0.07),
    'plate-slide-back': Near(0.07),
    'plate-slide-back-side': Near(0.07),
    'plate-slide-side': Near(0.07),
    'push': Near(0.05),
    'push-back': Near(0.07),
    'push-wall': Near(0.07),
    'reach': hand_near_target,
    'reach-wall': hand_near_target,
    'shelf-place': Near(0.07),
    'soccer': Near(0.07),
    'stick-pull': thermos_pulled,
    'stick-push': thermos_pushed,
    'sweep': Near(0.05),
    'sweep-into': Near(0.05, weights=(1.0, 1.0, 0.0)),
    'window-close': Near(0.05, _X),
    'window-open': Near(0.05, _X),
}
"""Criterion of each task, by its name without `-v3`."""


REWARD_ERRORS = (ValueError, AssertionError, ArithmeticError)
"""What upstream's rewards raise on states they do not expect."""

STATE = sum(
    int(getattr(mujoco.mjtState, f'mjSTATE_{part}'))
    for part in ('TIME', 'QPOS', 'QVEL', 'ACT', 'WARMSTART', 'MOCAP_POS', 'MOCAP_QUAT')
)
"""What a step needs of the one before; all other inputs are set each time or never change."""
READ_BY_REWARDS = ('assembly', 'box-close', 'disassemble', 'hammer', 'stick-pull', 'stick-push')
"""Tasks whose rewards or success read the observation beyond its first object position."""
_REMEMBERED = {'bin-picking': ('_target_to_obj_init',)}
"""Fields a reward sets in one step and reads in a later one."""
_MAX_VALUE = 1e10
"""MuJoCo calls a state beyond this unstable (mjMAXVAL)."""
_LOW, _HIGH = SawyerXYZEnv._HAND_SPACE.low.tolist(), SawyerXYZEnv._HAND_SPACE.high.tolist()


@dataclass(frozen=True)
class Scene:
    """The task right after a reset."""

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
        """Raise at once if upstream's reward cannot work at this placement."""
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
        """Switch to a scene: model and Python side."""
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

        MuJoCo then resets itself silently, which shows only in the row's clock. A state that went
        bad in the last physics step is not reset yet.
        """
        size = np.abs(states[:, : self._physics]).max(axis=1)
        return ~((states[:, 0] > times) & (size < _MAX_VALUE))

    def observe(self, previous: Floats | None) -> Floats:
        """Return upstream's 39-D observation, in an array that is reused.

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
    _give_back_memory()
    return Engine(task)


def _give_back_memory() -> None:
    """Return what earlier engines held to the system; the C library would keep it for itself.

    A run that goes round ten tasks grew by a third in four rounds.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, 'malloc_trim'):
        libc.malloc_trim(0)
