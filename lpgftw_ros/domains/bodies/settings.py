"""Settings of the MuJoCo bodies: which body, its gravity, the sizes of its parts."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
import math
from pathlib import Path
from typing import Any

from lpgftw_ros.domains.suites import Traits
from lpgftw_ros.errors import InvalidConfig, UnknownName

BODY_PARTS: Mapping[str, tuple[str, ...]] = {
    'halfcheetah': ('torso', 'fthigh', 'fshin', 'ffoot'),
    'hopper': ('torso_geom', 'thigh_geom', 'leg_geom', 'foot_geom'),
    'walker2d': ('torso_geom', 'thigh_geom', 'leg_geom', 'foot_geom'),
}
"""Geoms that may be scaled, in the order of the factors."""


@dataclass(frozen=True, kw_only=True)
class BodySettings:
    """One body and how it differs from the nominal one."""

    body: str
    """halfcheetah, hopper or walker2d."""
    gravity: float = 1.0
    """Factor on 9.81 m/s² downwards."""
    parts: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    """Factors on the sizes of the geoms in `BODY_PARTS`."""
    terminate: bool = True
    """End the trajectory of a body that falls (HalfCheetah never does)."""

    def __post_init__(self) -> None:
        """Reject unknown bodies and impossible factors."""
        if self.body not in BODY_PARTS:
            raise UnknownName('body', str(self.body), BODY_PARTS)
        _require_factor('gravity', self.gravity)
        if not isinstance(self.terminate, bool):
            raise InvalidConfig(f'terminate must be true or false, got {self.terminate!r}')
        if len(self.parts) != 4:
            raise InvalidConfig(
                f'parts needs 4 factors, for {", ".join(BODY_PARTS[self.body])}; '
                f'got {len(self.parts)}'
            )
        for geom, factor in zip(BODY_PARTS[self.body], self.parts, strict=True):
            _require_factor(f'the factor of {geom}', factor)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> 'BodySettings':
        """Build from the settings of a suite's task; unknown keys are errors."""
        known = [f.name for f in fields(cls)]
        for key in settings:
            if key not in known:
                raise UnknownName('setting of a body', str(key), known)
        if 'body' not in settings:
            raise InvalidConfig(f"'body' is missing (one of {', '.join(BODY_PARTS)})")
        values = dict(settings)
        if 'parts' in values:
            if not isinstance(values['parts'], list | tuple):
                raise InvalidConfig(f'parts must be a list of 4 factors, got {values["parts"]!r}')
            values['parts'] = tuple(values['parts'])
        return cls(**values)


def _require_factor(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0.0:
        raise InvalidConfig(f'{name} must be a positive finite factor, got {value!r}')


def describe(settings: Mapping[str, Any], folder: Path | None = None) -> Traits:
    """Check the settings of a body and return its traits."""
    obs_dim, act_dim = _DIMENSIONS[BodySettings.from_mapping(settings).body]
    return Traits(obs_dim, act_dim, threads=True)


_DIMENSIONS = {'halfcheetah': (17, 6), 'hopper': (11, 3), 'walker2d': (17, 6)}
