"""Settings of a user's own task: a Gymnasium id and its keyword arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lpgftw_ros.errors import InvalidConfig, UnknownName


@dataclass(frozen=True, kw_only=True)
class GymnasiumSettings:
    """Which environment to make, and how."""

    id: str
    """A registered id; `module:Name-v0` imports the module first."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `gymnasium.make`."""

    def __post_init__(self) -> None:
        """Reject what `gymnasium.make` could not take."""
        if not isinstance(self.id, str) or not self.id:
            raise InvalidConfig(f"'id' must be a Gymnasium environment id, got {self.id!r}")
        if not isinstance(self.kwargs, Mapping):
            raise InvalidConfig(f'kwargs must be a mapping, got {self.kwargs!r}')
        if not all(isinstance(key, str) for key in self.kwargs):
            raise InvalidConfig('the keys of kwargs must be names')

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


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise if the settings do not name an environment."""
    GymnasiumSettings.from_mapping(settings)
