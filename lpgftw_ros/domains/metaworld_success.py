"""When a Meta-World task is solved: upstream's v2 criterion, whatever reward is in use.

Most tasks are solved when a point is close to the target:

    || w * (point + offset - target) || <= radius

with a weight w per axis (0 leaves an axis out). The others have a function of their own.
Only what the criterion needs is computed, not upstream's whole v2 reward.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
