"""Copies of one Gymnasium environment, stepped one after another.

They live in this process or in a worker, which imports this module without the rest.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.spaces import Box, flatten
import numpy as np
from numpy.typing import NDArray

from lpgftw_ros.errors import InvalidConfig, LpgftwError, SimulationFailed, UnknownName

_MAKE = {'disable_env_checker': True, 'max_episode_steps': -1}
"""Defaults of `gymnasium.make`: our own checks, and the suite's horizon as the only limit."""


def make_copy(env_id: str, kwargs: Mapping[str, Any]) -> Any:
    """Make one environment; mistakes of the suite's author end as one clear line."""
    try:
        copy = gymnasium.make(env_id, **{**_MAKE, **kwargs})
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound):
        raise UnknownName('Gymnasium environment', env_id, _ids_like(env_id)) from None
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        text = ' '.join(str(error).split())
        raise InvalidConfig(f"cannot make Gymnasium environment '{env_id}': {text}") from None
    for which, space in (('observation', copy.observation_space), ('action', copy.action_space)):
        if not isinstance(space, Box):
            raise InvalidConfig(
                f"'{env_id}' has a {type(space).__name__} {which} space; only Box can be used"
            )
    return copy


def _ids_like(wanted: str) -> list[str]:
    """Return the registered ids that begin like the wanted one, or all if none does."""
    names = sorted(gymnasium.registry)
    return [name for name in names if name[:3].lower() == wanted[:3].lower()] or names


def solved(info: Mapping[str, Any]) -> bool:
    """Return whether a step's info reports success."""
    return bool(info.get('is_success', info.get('success', False)))


class GymnasiumRows:
    """One copy per row of the given arrays; see `gymnasium_env` for their meaning."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], id: str, kwargs: Any) -> None:
        self.arrays, self._id = arrays, id
        self.copies = [make_copy(id, kwargs) for _ in arrays['active']]
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
            arrays['success'][row] = solved(info)
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
        frame = self.copies[row].render()
        if not isinstance(frame, np.ndarray):
            raise LpgftwError('this environment draws only with kwargs {render_mode: rgb_array}')
        return frame

    def close(self) -> None:
        """Close all copies."""
        for copy in self.copies:
            copy.close()
