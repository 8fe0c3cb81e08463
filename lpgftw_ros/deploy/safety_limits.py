"""The limits of the safety guard: all required, all finite, zero is legal."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
import math
from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros.deploy.sawyer_model import ArmDescription, read_mapping
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.resources import data_folder

SPEED_CAP = 0.25
"""m/s. The reduced speed of ISO 10218; more must be asked for by `speed_cap_raised`."""
LONGEST_STOP = 1.5
"""s. A process that gets a signal ends within 2.5 s; the arm must stand still before."""
LATENESS = 0.05
"""s. How much later than a control period after the last one a command may come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SafetyLimits:
    """What the guard allows. No field has a default: a limit that was forgotten is an error.

    A time-out is the time from the last accepted message to standstill: the ramp, which takes
    `stop_time`, begins that much earlier.
    """

    box_low: Array
    """Lowest hand position, arm base frame, m. Shape (3,)."""
    box_high: Array
    max_speed: float
    """Of the hand, m/s."""
    speed_cap_raised: bool
    """True allows a `max_speed` above 0.25 m/s."""
    max_acceleration: float
    """Of the hand, m/s2."""
    max_tilt: float
    """Of the tool axis from straight down, rad."""
    joint_margin: float
    """Kept from every joint limit, rad."""
    joint_velocity_scale: float
    """Share of the arm's joint velocity limits that may be used, 0..1."""
    stop_time: float
    """From any allowed speed to standstill, s."""
    joints_timeout: float
    object_timeout: float
    action_timeout: float
    deadman_timeout: float | None
    """Seconds a pressed deadman counts; None: there is no deadman."""
    joint_jump: float
    """Largest step between two joint states, rad."""
    object_jump: float
    """Largest step between two object poses, m."""
    start_distance: float
    """First command: largest distance of its joints from the measured ones, rad."""
    tracking_error: float
    """Largest distance between commanded and measured joints, rad."""
    reject_above: float
    """A request above this multiple of a limit is dropped instead of reduced."""
    gripper_rate: float
    """Travel per second; from open (-1) to closed (1) is 2."""
    period: float
    """Longest time between two commands of the guard to the arm, s."""

    def __post_init__(self) -> None:
        """Reject limits that are missing, not finite, negative or contradict each other."""
        for name in ('box_low', 'box_high'):
            object.__setattr__(self, name, _vector(name, getattr(self, name)))
        if (self.box_low > self.box_high).any():
            raise InvalidConfig('box_low must not be above box_high')
        for field in fields(self):
            if field.name not in ('box_low', 'box_high', 'speed_cap_raised', 'deadman_timeout'):
                _non_negative(field.name, getattr(self, field.name))
        if not isinstance(self.speed_cap_raised, bool):
            raise InvalidConfig('speed_cap_raised must be true or false')
        self._check_speeds()
        self._check_times()

    def _check_speeds(self) -> None:
        if self.max_speed > SPEED_CAP and not self.speed_cap_raised:
            raise InvalidConfig(
                f'max_speed {self.max_speed} m/s is above {SPEED_CAP} m/s; '
                'set speed_cap_raised: true if that is meant'
            )
        if self.max_speed > self.max_acceleration * self.stop_time:
            raise InvalidConfig(
                f'max_speed {self.max_speed} m/s cannot stop within {self.stop_time} s at '
                f'max_acceleration {self.max_acceleration} m/s2'
            )
        if self.joint_velocity_scale > 1.0 or self.reject_above < 1.0:
            raise InvalidConfig('joint_velocity_scale must be <= 1 and reject_above >= 1')

    def _check_times(self) -> None:
        if self.period <= 0.0 or self.stop_time < self.period:
            raise InvalidConfig('period must be positive, stop_time not shorter than period')
        if self.stop_time > LONGEST_STOP:
            raise InvalidConfig(
                f'stop_time {self.stop_time} s is above {LONGEST_STOP} s: a guard that is told to '
                'end must have stopped the arm before it does'
            )
        if self.deadman_timeout is not None:
            _non_negative('deadman_timeout', self.deadman_timeout)
        shortest = self.stop_time + 2.0 * self.period
        for name in ('joints_timeout', 'object_timeout', 'action_timeout', 'deadman_timeout'):
            value = getattr(self, name)
            if value is not None and value <= shortest:
                raise InvalidConfig(
                    f'{name} {value} s must be more than stop_time and two periods, {shortest} s'
                )

    @property
    def stop_ticks(self) -> int:
        """Periods a ramp from any speed to standstill takes."""
        return math.floor(self.stop_time / self.period + 1e-9)

    def react_after(self, timeout: float) -> float:
        """Return the age at which the ramp must begin to stand still in time."""
        return timeout - (self.stop_ticks + 1) * self.period

    def require_commands_every(self, period: float) -> None:
        """Raise unless commands of this period, s, reach the guard before it begins to stop."""
        react, latest = self.react_after(self.action_timeout), period + LATENESS
        if latest > react + 1e-9:
            enough = math.ceil(1e3 * (self.action_timeout + latest - react) - 1e-6) / 1e3
            raise InvalidConfig(
                f'rate {1.0 / period:.4g} Hz is too slow for the guard: a command may be '
                f'{latest:.4g} s after the one before, but from {react:.4g} s on the arm is '
                f'stopped; raise rate, or action_timeout to at least {enough:g} s'
            )

    def joint_range(self, arm: ArmDescription) -> tuple[Array, Array]:
        """Return the lowest and highest joint positions, margin kept."""
        low, high = arm.joint_low + self.joint_margin, arm.joint_high - self.joint_margin
        if (low > high).any():
            raise InvalidConfig(f'joint_margin {self.joint_margin} leaves a joint no range')
        return low, high


def load_limits(source: Path | Mapping[str, Any] | None = None) -> SafetyLimits:
    """Read limits from a file or a mapping; without either, those of the rehearsal table."""
    if source is None or isinstance(source, Path):
        file = source or data_folder('sim/sawyer') / 'safety.yaml'
        source = read_mapping(file)
    if 'command_period' in source:
        raise InvalidConfig('command_period is no safety limit: it follows from rate; remove it')
    known = {field.name for field in fields(SafetyLimits)}
    for kind, names in (('missing', known - set(source)), ('unknown', set(source) - known)):
        if names:
            raise InvalidConfig(f'{kind} safety limits: {", ".join(sorted(map(str, names)))}')
    return SafetyLimits(**source)


def _vector(name: str, value: Any) -> Array:
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.zeros(0)
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise InvalidConfig(f'{name} must be three finite numbers, got {value}')
    vector.setflags(write=False)
    return vector


def _non_negative(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfig(f'{name} must be a number, got {value!r}')
    if not math.isfinite(value) or value < 0.0:
        raise InvalidConfig(f'{name} must be finite and not negative, got {value}')
