"""A user's own task: a Gymnasium id, how its environment is made and tried, and rows of it.

Rows live in this process or in a worker, which imports this module without the rest.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from functools import lru_cache
import importlib
import json
from pathlib import Path
import sys
import threading
from types import ModuleType
from typing import Any, TypeVar

import gymnasium
from gymnasium.spaces import Box, flatdim, flatten
import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.domains.suites import Traits
from lpgftw_ros.errors import InvalidConfig, LpgftwError, SimulationFailed, UnknownName

_MAKE = {'disable_env_checker': True, 'max_episode_steps': -1}
"""Defaults of `gymnasium.make`: our own checks, and the suite's horizon as the only limit."""
SUCCESS = ('is_success', 'success')
"""Keys of `info` that report success unless the task names its own."""
FIRST_TIME = 60.0
"""Seconds an environment may take to be made and stepped once when the suite is read."""
T = TypeVar('T')


@dataclass(frozen=True, kw_only=True)
class GymnasiumSettings:
    """Which environment to make, and how."""

    id: str
    """A registered id. `module:Name-v0` imports the module first, also a file beside the suite;
    there Name may be a class that is not registered."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    success: str = ''
    """Key of `info` that says whether the task is solved; empty: is_success or success."""

    def __post_init__(self) -> None:
        """Reject what `gymnasium.make` could not take."""
        if not isinstance(self.id, str) or not self.id:
            raise InvalidConfig(f"'id' must be a Gymnasium environment id, got {self.id!r}")
        if not isinstance(self.kwargs, Mapping):
            raise InvalidConfig(f'kwargs must be a mapping, got {self.kwargs!r}')
        if not all(isinstance(key, str) for key in self.kwargs):
            raise InvalidConfig('the keys of kwargs must be names')
        if not isinstance(self.success, str):
            raise InvalidConfig(f'success must be a key of info, got {self.success!r}')

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> 'GymnasiumSettings':
        """Build from the settings of a suite's task; unknown keys are errors."""
        known = [f.name for f in fields(cls)]
        for key in settings:
            if key not in known:
                raise UnknownName('setting of a Gymnasium task', str(key), known)
        if 'id' not in settings:
            raise InvalidConfig("'id' is missing: the Gymnasium environment to make")
        return cls(**settings)


def describe(settings: Mapping[str, Any], folder: Path | None = None) -> Traits:
    """Make the environment once, step it once, and return its traits."""
    task = GymnasiumSettings.from_mapping(settings)
    try:
        words = json.dumps(dict(settings), sort_keys=True)
    except TypeError:  # classes and arrays a program gave us
        return _tried(task, folder)
    return _tried_before(words, folder)


@lru_cache(maxsize=256)
def _tried_before(settings: str, folder: Path | None) -> Traits:
    return _tried(GymnasiumSettings.from_mapping(json.loads(settings)), folder)


def _tried(task: GymnasiumSettings, folder: Path | None) -> Traits:
    obs_dim, act_dim = in_time(
        task.id, lambda: try_copy(task.id, task.kwargs, task.success, folder)
    )
    files = own_files(task.id.rpartition(':')[0], folder)
    return Traits(obs_dim, act_dim, files=files)


# One environment.


def make_copy(env_id: str, kwargs: Mapping[str, Any], folder: Path | str | None = None) -> Any:
    """Make one environment; mistakes of the suite's author end as one clear line."""
    module, _, name = env_id.rpartition(':')
    try:
        spec = _spec(_imported(module, folder), name) if module else name
        copy = gymnasium.make(spec, **{**_MAKE, **kwargs})
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound):
        raise UnknownName('Gymnasium environment', env_id, _ids_like(name)) from None
    except LpgftwError:
        raise
    except Exception as error:  # whatever a user's module or constructor raises
        text = ' '.join(f'{type(error).__name__}: {error}'.split())
        raise InvalidConfig(f"cannot make Gymnasium environment '{env_id}': {text}") from None
    _require_spaces(copy, env_id)
    return copy


def own_module(module: str, folder: Path | str | None) -> Path | None:
    """Return the Python file of a module that stands beside the suite."""
    own = None if folder is None else Path(folder) / f'{module}.py'
    return own if own is not None and own.is_file() else None


def own_files(module: str, folder: Path | str | None) -> tuple[Path, ...]:
    """Return the files beside the suite that a loaded module consists of: its own, its imports."""
    own = own_module(module, folder)
    if own is None:
        return ()
    loaded = sorted(name for name in sys.modules if '.' not in name and name != module)
    return own, *(path for name in loaded if (path := own_module(name, folder)) is not None)


def _imported(module: str, folder: Path | str | None) -> ModuleType:
    """Import a module, from the suite's folder if it is there."""
    own = own_module(module, folder)
    if own is None:
        return importlib.import_module(module)
    loaded = sys.modules.get(module)
    if loaded is not None:
        where = Path(getattr(loaded, '__file__', None) or '')
        if where.is_file() and where.read_bytes() == own.read_bytes():  # or a run folder's copy
            return loaded
        raise InvalidConfig(f"'{module}' is already loaded from {where}; rename {own.name}")
    sys.path.insert(0, str(own.parent))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(own.parent))
        if str(own.parent) not in sys.path:
            sys.path.append(str(own.parent))  # for what the module imports later


def _spec(module: ModuleType, name: str) -> Any:
    """Return the registered id, or what makes the module's class of that name."""
    found = getattr(module, name.rpartition('-v')[0] or name, None)
    if name in gymnasium.registry or not isinstance(found, type):
        return name
    return gymnasium.envs.registration.EnvSpec(
        id=name if '-v' in name else f'{name}-v0', entry_point=found, order_enforce=False
    )


def _require_spaces(copy: Any, env_id: str) -> None:
    if not isinstance(copy.action_space, Box):
        kind = type(copy.action_space).__name__
        raise InvalidConfig(f"'{env_id}' has a {kind} action space; only Box can be used")
    if not copy.observation_space.is_np_flattenable:
        kind = type(copy.observation_space).__name__
        raise InvalidConfig(f"'{env_id}' has a {kind} observation space, which cannot be a vector")


def _ids_like(wanted: str) -> list[str]:
    """Return the registered ids that begin like the wanted one, or all if none does."""
    names = sorted(gymnasium.registry)
    return [name for name in names if name[:3].lower() == wanted[:3].lower()] or names


def in_time(env_id: str, work: Callable[[], T]) -> T:
    """Return what `work` returns; raise `InvalidConfig` if the environment hangs in it.

    Its thread is left behind then: nothing can end it but the end of the process.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True, name='first steps').start()
    try:
        return outcome.result(FIRST_TIME)
    except TimeoutError:
        raise InvalidConfig(
            f"'{env_id}' hangs: its first steps took longer than {FIRST_TIME:g} s"
        ) from None


def try_copy(
    env_id: str, kwargs: Mapping[str, Any], success: str, folder: Path | None
) -> tuple[int, int]:
    """Make an environment, step it once and return its dimensions."""
    copy = make_copy(env_id, kwargs, folder)
    try:
        seen, _ = copy.reset(seed=0)
        numbers = flatten(copy.observation_space, seen)
        middle = np.clip(np.zeros(copy.action_space.shape), *_bounds(copy.action_space))
        _, reward, _, _, info = copy.step(middle.astype(copy.action_space.dtype))
        finite = bool(np.isfinite(numbers).all() and np.isfinite(float(reward)))
    except Exception as error:  # of the user's environment
        text = ' '.join(f'{type(error).__name__}: {error}'.split())
        raise InvalidConfig(f"'{env_id}' cannot be reset and stepped: {text}") from None
    finally:
        copy.close()
    if not finite:
        raise InvalidConfig(f"'{env_id}' shows a number that is not finite in its first step")
    if success and success not in info:
        raise InvalidConfig(
            f"'{env_id}' has no '{success}' in its info (it has: {', '.join(sorted(info)) or '-'})"
        )
    size = flatdim(copy.observation_space)
    if len(numbers) != size:
        raise InvalidConfig(
            f"'{env_id}' declares observations of {size} numbers and returns {len(numbers)}"
        )
    return int(size), int(np.prod(copy.action_space.shape))


def _bounds(box: Box) -> tuple[Any, Any]:
    return box.low, box.high


def solved(info: Mapping[str, Any], key: str = '') -> bool:
    """Return whether a step's info reports success."""
    keys = (key,) if key else SUCCESS
    return bool(next((info[name] for name in keys if name in info), False))


class GymnasiumRows:
    """One copy per row of the given arrays, which `GymnasiumTaskEnv` lays out."""

    def __init__(
        self,
        arrays: Mapping[str, NDArray[Any]],
        id: str,
        kwargs: Any,
        success: str = '',
        folder: str | None = None,
    ) -> None:
        self.arrays, self._id, self._success = arrays, id, success
        self.copies = [make_copy(id, kwargs, folder) for _ in arrays['active']]
        self._seen, self._acted = self.copies[0].observation_space, self.copies[0].action_space

    def reset(self) -> None:
        """Reset the marked rows with their seeds."""
        for row in np.flatnonzero(self.arrays['active']):
            seen, _ = self.copies[row].reset(seed=int(self.arrays['seeds'][row]))
            self.arrays['observations'][row] = flatten(self._seen, seen)

    def step(self) -> None:
        """Step the marked rows; a row that shows a non-finite number has failed."""
        arrays, box = self.arrays, self._acted
        for row in np.flatnonzero(arrays['active']):
            move = np.clip(arrays['actions'][row].reshape(box.shape), box.low, box.high)
            seen, reward, ended, cut, info = self._step_copy(int(row), move.astype(box.dtype))
            flat = flatten(self._seen, seen)
            arrays['observations'][row], arrays['rewards'][row] = flat, reward
            arrays['terminated'][row], arrays['truncated'][row] = ended, cut
            arrays['success'][row] = solved(info, self._success)
            arrays['failed'][row] = not (np.isfinite(flat).all() and np.isfinite(reward))

    def _step_copy(self, row: int, action: Any) -> tuple[Any, ...]:
        """Step one copy; whatever a user's environment raises names the environment."""
        try:
            result: tuple[Any, ...] = self.copies[row].step(action)
        except Exception as error:
            raise SimulationFailed(
                f"Gymnasium environment '{self._id}' raised {type(error).__name__}: {error}"
            ) from error
        return result

    def state(self, row: int) -> NDArray[np.float64]:
        """Return nothing: a Gymnasium environment does not tell its state."""
        return np.zeros(0)

    def render(self, row: int) -> Any:
        """Return the environment's own picture; it chooses the size."""
        if self.copies[row].render_mode != 'rgb_array':
            raise LpgftwError(f"'{self._id}' has no pictures: it has no render mode rgb_array")
        try:
            return self.copies[row].render()
        except Exception as error:  # of the user's environment, or a missing drawing library
            raise LpgftwError(f"'{self._id}' cannot be drawn: {error}") from None

    def close(self) -> None:
        """Close all copies."""
        for copy in self.copies:
            copy.close()
