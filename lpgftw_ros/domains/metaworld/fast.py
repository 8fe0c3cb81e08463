"""Upstream's task classes on faster helpers.

Upstream's reward code runs unchanged. The helpers it calls are replaced: named look-ups by cached
views, scipy rotations by a few lines, contact loops by array operations, generic numpy calls on
three numbers by direct ones. Upstream is not patched: its functions are bound a second time, in a
namespace with our helpers.
"""

from collections.abc import Callable, Iterable
from functools import cache
import math
from types import FunctionType, ModuleType
from typing import Any

from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.sawyer_xyz_env import SawyerXYZEnv
from metaworld.utils import reward_utils
import mujoco
import numpy as np
from numpy.typing import NDArray

# Small replacements of the numpy and scipy calls in Meta-World's rewards.


Floats = NDArray[np.float64]


def norm(x: Any, ord: int | None = None) -> Any:
    """Return the Euclidean norm of a vector or a number, in the same bits as numpy's."""
    if type(x) is np.ndarray and x.ndim == 1:
        return np.sqrt(x.dot(x))
    return np.sqrt(np.float64(x) * x)


def all_true(x: Any) -> Any:
    """Return whether all elements are true."""
    if type(x) is np.ndarray and x.ndim == 1:
        return False not in x.tolist()
    return np.all(x)


_LONG_TAIL = math.sqrt(1.0 / 0.1 - 1.0)
_GAUSSIAN = math.sqrt(-2.0 * math.log(0.1))


def tolerance(
    x: Any,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: Any = 0.0,
    sigmoid: str = 'gaussian',
    value_at_margin: float = 0.1,
) -> Any:
    """Return 1 inside the bounds and a sigmoid of the distance over `margin` outside.

    Scalars with the two sigmoids that rewards use are computed here, all else by upstream.
    """
    lower, upper = bounds
    usual = sigmoid in ('long_tail', 'gaussian') and value_at_margin == 0.1
    if not usual or not isinstance(x, float) or lower > upper or margin <= 0:
        return reward_utils.tolerance(x, bounds, margin, sigmoid, value_at_margin)
    if lower <= x <= upper:
        return 1.0
    d = float((lower - x if x < lower else x - upper) / margin)
    if sigmoid == 'gaussian':
        return math.exp(-0.5 * (d * _GAUSSIAN) ** 2)
    return 1.0 / ((d * _LONG_TAIL) ** 2 + 1.0)


class Rotation:
    """The only use upstream makes of scipy's class: a matrix as a quaternion x, y, z, w."""

    __slots__ = ('_matrix',)

    def __init__(self, matrix: Floats) -> None:
        self._matrix = matrix

    @classmethod
    def from_matrix(cls, matrix: Floats) -> 'Rotation':
        """Take a 3 x 3 rotation matrix."""
        return cls(matrix)

    def as_quat(self) -> Floats:
        """Return the unit quaternion whose largest component is positive."""
        (a, b, c), (d, e, f), (g, h, i) = self._matrix.tolist()
        trace = a + e + i
        largest = max(a, e, i, trace)
        if largest == trace and trace not in (a, e, i):
            x, y, z, w = h - f, c - g, d - b, 1.0 + trace
        elif largest == a:
            x, y, z, w = 1.0 - trace + 2.0 * a, d + b, g + c, h - f
        elif largest == e:
            x, y, z, w = d + b, 1.0 - trace + 2.0 * e, h + f, c - g
        else:
            x, y, z, w = g + c, h + f, 1.0 - trace + 2.0 * i, d - b
        size = math.sqrt(x * x + y * y + z * z + w * w)
        return np.array([x / size, y / size, z / size, w / size])


def _namespace(name: str, source: ModuleType, **replaced: Any) -> ModuleType:
    """Return a copy of a module in which some names mean something else."""
    module = ModuleType(name)
    module.__dict__.update(source.__dict__)
    module.__dict__.update(replaced)
    return module


_REPLACED = {
    'np': _namespace('np', np, linalg=_namespace('linalg', np.linalg, norm=norm), all=all_true),
    'reward_utils': _namespace('reward_utils', reward_utils, tolerance=tolerance),
    'tolerance': tolerance,
    'Rotation': Rotation,
}


class NamedViews:
    """Views of one kind of named thing (body, site, geom, joint), each made once."""

    __slots__ = ('_make', '_views')

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._views: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        """Return the view of that name."""
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = self._make(name)
        return view


class _View:
    """Fields of one named thing as arrays that follow the simulation."""

    def __init__(self, item: Any, fields: Iterable[str]) -> None:
        self.id = item.id
        for field in fields:
            setattr(self, field, getattr(item, field))


class CachedData:
    """Stands in for `MjData` in reward code: the same names, looked up once."""

    def __init__(self, data: mujoco.MjData) -> None:
        self.body = NamedViews(lambda name: _View(data.body(name), ('xpos', 'xquat', 'xmat')))
        self.site = NamedViews(lambda name: _View(data.site(name), ('xpos', 'xmat')))
        self.geom = NamedViews(lambda name: _View(data.geom(name), ('xpos', 'xmat')))
        self.joint = NamedViews(lambda name: _View(data.joint(name), ('qpos', 'qvel')))
        self.qpos, self.qvel = data.qpos, data.qvel
        self.mocap_pos, self.ctrl = data.mocap_pos, data.ctrl
        self.mjdata = data


class FastHelpers:
    """Helpers of upstream's base class that reward code calls at every step."""

    data: Any
    cached: CachedData

    @property
    def tcp_center(self) -> Floats:
        """Return the point between the fingers."""
        site = self.cached.site
        middle: Floats = (site('rightEndEffector').xpos + site('leftEndEffector').xpos) / 2.0
        return middle

    def get_body_com(self, body_name: str) -> Floats:
        """Return the position of a body, as a view."""
        xpos: Floats = self.cached.body(body_name).xpos
        return xpos

    def _get_site_pos(self, site_name: str) -> Floats:
        xpos: Floats = self.cached.site(site_name).xpos.copy()
        return xpos

    def touching_object(self, object_geom_id: int) -> bool:
        """Return whether both finger pads press on a geom."""
        data, geom = self.cached.mjdata, self.cached.geom
        pairs, rows = data.contact.geom, data.contact.efc_address
        touched = (pairs == object_geom_id).any(axis=1)
        for pad in ('leftpad_geom', 'rightpad_geom'):
            contacts = touched & (pairs == geom(pad).id).any(axis=1)
            if not data.efc_force[rows[contacts]].sum() > 0.0:
                return False
        return True

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        model, data = super()._initialize_simulation()  # type: ignore[misc]
        self.cached = CachedData(data)
        return model, data


@cache
def fast_class(task: str) -> type[Any]:
    """Return upstream's class of a task with the helpers replaced."""
    upstream = ALL_V3_ENVIRONMENTS[f'{task}-v3']
    name = f'Fast{upstream.__name__}'
    members = {'_gripper_caging_reward': SawyerXYZEnv._gripper_caging_reward}
    members.update({key: value for key, value in vars(upstream).items() if key != '__init__'})
    fast: type[Any] = type(name, (FastHelpers, upstream), {})
    names = {**_REPLACED, upstream.__name__: fast}
    for key, member in members.items():
        if isinstance(member, FunctionType):
            setattr(fast, key, _bound_again(member, names))
        elif isinstance(member, staticmethod):
            setattr(fast, key, staticmethod(_bound_again(member.__func__, names)))
    return fast


def _bound_again(function: Any, names: dict[str, Any]) -> FunctionType:
    """Return the function with some of its global names replaced."""
    module = {**function.__globals__}
    module.update({name: names[name] for name in names if name in module})
    copy = FunctionType(
        function.__code__, module, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
