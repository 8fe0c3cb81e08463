"""The limits of the safety guard: all required, all within sane bounds, zero is legal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
import math
from pathlib import Path
from typing import Any, TYPE_CHECKING

import numpy as np

from lpgftw_ros.deploy.arm.sawyer import ArmDescription, read_mapping
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.resources import data_folder

if TYPE_CHECKING:
    from lpgftw_ros.deploy.arm.kinematics import ArmKinematics

SPEED_CAP = 0.25
"""m/s. The reduced speed of ISO 10218; a higher one needs `speed_cap_raised`."""
LONGEST_STOP = 1.5
"""s. A process that gets a signal ends within 2.5 s; the arm must stand still before."""
LATENESS = 0.05
"""s. How much longer than a control period the gap between two commands may be."""
BOUNDS = {
    'max_speed': (0.0, 1.0),
    'max_acceleration': (0.0, 20.0),
    'max_tilt': (0.0, math.pi),
    'joint_margin': (0.0, 1.5),
    'joint_velocity_scale': (0.0, 1.0),
    'jam_factor': (1.0, 100.0),
    'stop_time': (0.0, LONGEST_STOP),
    'arm_delay': (0.0, 0.5),
    'joints_timeout': (0.0, 5.0),
    'object_timeout': (0.0, 10.0),
    'action_timeout': (0.0, 5.0),
    'tracking_timeout': (0.0, 5.0),
    'deadman_timeout': (0.0, 5.0),
    'joint_jump': (0.0, 1.0),
    'object_jump': (0.0, 2.0),
    'start_distance': (0.0, 0.5),
    'hand_error': (0.0, 0.1),
    'tracking_error': (0.0, 0.5),
    'reject_above': (1.0, 10.0),
    'gripper_rate': (0.0, 50.0),
    'period': (0.002, 0.2),
}
"""Lowest and highest value of each limit. Beyond them a limit does not protect."""
REACH = 3.0
"""m. No corner of the box is further from the arm's base along any axis."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SafetyLimits:
    """What the guard allows. No field has a default: a missing limit is an error.

    A time-out is the time from the last accepted message (`tracking_timeout`: from the moment the
    arm is not where it was sent) until the arm stands: the ramp begins `stop_within` earlier.
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
    jam_factor: float
    """Whichever joints jam, the others move the hand at most this multiple of `max_speed`."""
    stop_time: float
    """From any allowed speed to a commanded standstill, s."""
    arm_delay: float
    """From the command to stand until the arm stands: its links and servos, s."""
    joints_timeout: float
    object_timeout: float
    action_timeout: float
    tracking_timeout: float
    """From a measured hand that is not where the commands put it to standstill, s."""
    deadman_timeout: float | None
    """Seconds a pressed deadman stays valid; None: there is no deadman."""
    joint_jump: float
    """Largest step between two joint states, rad."""
    object_jump: float
    """Largest step between two object poses, m."""
    start_distance: float
    """First command: largest distance of its joints from the measured ones, rad."""
    hand_error: float
    """The arm's resolution: largest distance between the hand where the commands put it and the
    hand as measured, m. Commanded motion beyond it must show in the joint states."""
    tracking_error: float
    """The same for the joints, rad."""
    reject_above: float
    """A request above this multiple of a limit is dropped instead of reduced."""
    gripper_rate: float
    """Travel per second; from open (-1) to closed (1) is 2."""
    period: float
    """Longest time between two commands of the guard to the arm, s."""

    def __post_init__(self) -> None:
        """Reject limits that are missing, out of bounds or contradict each other."""
        for name in ('box_low', 'box_high'):
            object.__setattr__(self, name, _vector(name, getattr(self, name)))
        if (self.box_low > self.box_high).any():
            raise InvalidConfig('box_low must not be above box_high')
        if not isinstance(self.speed_cap_raised, bool):
            raise InvalidConfig('speed_cap_raised must be true or false')
        for name, bounds in BOUNDS.items():
            if name != 'deadman_timeout' or self.deadman_timeout is not None:
                _within(name, getattr(self, name), *bounds)
        self._check_speeds()
        self._check_times()
        self._check_distances()

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

    def _check_times(self) -> None:
        if self.stop_time < self.period:
            raise InvalidConfig(
                f'stop_time {self.stop_time} s must not be shorter than period {self.period} s'
            )
        shortest = self.stop_within + self.period
        names = ('joints', 'object', 'action', 'tracking', 'deadman')
        for name in (f'{name}_timeout' for name in names):
            value = getattr(self, name)
            if value is not None and value <= shortest:
                raise InvalidConfig(
                    f'{name} {value} s must be more than stop_time, arm_delay and two periods, '
                    f'{shortest:.4g} s'
                )

    def _check_distances(self) -> None:
        """Reject limits that defeat each other."""
        step = self.max_speed * self.period
        if self.hand_error <= step:
            raise InvalidConfig(
                f'hand_error {self.hand_error} m must be more than the hand moves in a period at '
                f'max_speed, {step:.4g} m'
            )
        for name, other in (
            ('start_distance', 'tracking_error'),
            ('tracking_error', 'joint_jump'),
        ):
            if getattr(self, name) > getattr(self, other):
                raise InvalidConfig(
                    f'{name} {getattr(self, name)} rad must not be above {other} '
                    f'{getattr(self, other)} rad'
                )

    @property
    def stop_ticks(self) -> int:
        """Periods a ramp from any speed to standstill takes."""
        return math.floor(self.stop_time / self.period + 1e-9)

    @property
    def stop_within(self) -> float:
        """Seconds from a reason to stop until the arm stands: a period, the ramp, the arm."""
        return (self.stop_ticks + 1) * self.period + self.arm_delay

    @property
    def longest_gap(self) -> float:
        """Seconds the guard may be away: as long as it would wait for the arm's joints."""
        return self.react_after(self.joints_timeout)

    @property
    def tracking_delay(self) -> float:
        """Seconds from a command until its motion must be measured."""
        return self.react_after(self.tracking_timeout)

    def react_after(self, timeout: float) -> float:
        """Return the age at which the ramp must begin, so that the arm stands in time."""
        return timeout - self.stop_within

    def require_commands_every(self, period: float) -> None:
        """Raise unless commands with this period, s, arrive before the guard begins to stop."""
        react, latest = self.react_after(self.action_timeout), period + LATENESS
        if latest > react + 1e-9:
            enough = math.ceil(1e3 * (self.action_timeout + latest - react) - 1e-6) / 1e3
            raise InvalidConfig(
                f'rate {1.0 / period:.4g} Hz is too slow for the guard: a command may be '
                f'{latest:.4g} s after the one before, but from {react:.4g} s on the arm is '
                f'stopped; raise rate, or action_timeout to at least {enough:g} s'
            )

    def joint_range(self, arm: ArmDescription) -> tuple[Array, Array]:
        """Return the lowest and highest joint positions, with the margin."""
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
    except (TypeError, ValueError, OverflowError):
        vector = np.zeros(0)
    if any(isinstance(part, bool) for part in np.ravel(np.asarray(value, dtype=object))):
        raise InvalidConfig(f'{name} must be three finite numbers, got {value}')
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise InvalidConfig(f'{name} must be three finite numbers, got {value}')
    if np.abs(vector).max() > REACH:
        raise InvalidConfig(f'{name} {vector.tolist()} is further than {REACH} m from the base')
    vector.setflags(write=False)
    return vector


def _within(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfig(f'{name} must be a number, got {value!r}')
    if not low <= value <= high:  # not a number is in no range
        raise InvalidConfig(f'{name} must be finite, from {low:g} to {high:g}, got {value}')


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near something measured is to the limits it has."""

    parameter: str
    """The limit's name in the limits file."""
    what: str
    value: float
    low: float
    high: float
    unit: str

    @property
    def share(self) -> float:
        """0 in the middle of what is allowed, 1 at a limit."""
        half = 0.5 * (self.high - self.low)
        off = abs(self.value - 0.5 * (self.high + self.low))
        return off / half if half > 0.0 else math.inf


def nearness(
    limits: SafetyLimits, kinematics: 'ArmKinematics', joints: Array, velocities: Array
) -> tuple[Nearness, ...]:
    """Return how near an arm is to the limits of its hand and joints, as they were measured."""
    arm, pose = kinematics.arm, kinematics.pose(joints)
    tilt = math.acos(float(np.clip(-(pose.rotation @ arm.tool_axis)[2], -1.0, 1.0)))
    speed = float(np.linalg.norm(kinematics.jacobian(joints)[:3] @ velocities))
    fastest = limits.joint_velocity_scale * arm.joint_velocity
    return (
        _nearest('box', 'hand ', 'xyz', pose.position, limits.box_low, limits.box_high, 'm'),
        Nearness('max_speed', 'hand speed', speed, -limits.max_speed, limits.max_speed, 'm/s'),
        Nearness('max_tilt', 'tool tilt', tilt, -limits.max_tilt, limits.max_tilt, 'rad'),
        _nearest('joint_margin', '', arm.joints, joints, *limits.joint_range(arm), 'rad'),
        _nearest(
            *('joint_velocity_scale', 'speed of ', arm.joints, velocities, -fastest, fastest),
            'rad/s',
        ),
    )


def _nearest(
    parameter: str,
    prefix: str,
    names: Sequence[str],
    values: Array,
    low: Array,
    high: Array,
    unit: str,
) -> Nearness:
    """Return the one of several values that is nearest to its limits."""
    each = [
        Nearness(parameter, prefix + name, float(value), float(least), float(most), unit)
        for name, value, least, most in zip(names, values, low, high, strict=True)
    ]
    return max(each, key=lambda one: one.share)
