"""What the guard believes: requests and measurements, checked as they come in."""

from dataclasses import dataclass
import math

import numpy as np

from lpgftw_ros.deploy.safety_limits import SafetyLimits
from lpgftw_ros.deploy.safety_report import Finding
from lpgftw_ros.learning.arrays import Array


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement as it arrives at the other end."""

    joints: Array
    """Shape (j,)."""
    velocities: Array
    object: Array
    """Object position, arm base frame. Shape (3,)."""


@dataclass(frozen=True, slots=True)
class ArmCommand:
    """A motion asked for; only the guard turns it into what an arm takes."""

    sequence: int
    """Grows from command to command."""
    policy_hash: str
    """Which policy asks; must be the one agreed on."""
    joint_positions: Array
    """Where the sender believes the arm to be, rad. Shape (j,)."""
    joint_velocities: Array
    """rad/s. Shape (j,)."""
    hand_velocity: Array
    """The same motion of the hand, m/s, arm base frame. Shape (3,)."""
    gripper: float
    """-1 open .. 1 closed."""
    valid_for: float
    """Seconds from receipt to standstill if nothing follows; the guard's own limit if less."""


@dataclass(frozen=True, slots=True)
class SafeCommand:
    """What the arm is told for one period."""

    joints: Array
    """Positions at the end of the period, rad. Shape (j,)."""
    joint_velocities: Array
    """rad/s. Shape (j,)."""
    hand: Array
    """Hand position at the end of the period, m. Shape (3,)."""
    hand_velocity: Array
    """m/s. Shape (3,)."""
    gripper: float
    """-1 open .. 1 closed; not a number before anything was asked of it."""
    moving: bool


class Watch:
    """The latest believed value of one input and the time it was received."""

    def __init__(self, code: str, timeout: float, max_step: float, unit: str) -> None:
        """Say `code` when the value is older than `timeout`; drop steps above `max_step`."""
        self.code, self.timeout = code, timeout
        self._max_step, self._unit = max_step, unit
        self._time, self.value = math.nan, np.zeros(0)

    def fault(self, value: Array, size: int, check_jump: bool) -> Finding | None:
        """Return why a value is not believed, if so."""
        if value.shape != (size,) or not np.isfinite(value).all():
            return Finding('not_finite')
        if check_jump and len(self.value):
            step = float(np.max(np.abs(value - self.value)))
            if step > self._max_step:
                return Finding('jump', step, self._max_step, self._unit)
        return None

    def take(self, value: Array, now: float) -> None:
        """Believe a value received now."""
        self.value, self._time = value.astype(np.float64), now

    def forget(self) -> None:
        """Count as never received."""
        self._time = math.nan

    def fresh(self, now: float, limits: SafetyLimits) -> bool:
        """Return whether the arm may move on; a time in the future or NaN is not fresh."""
        return 0.0 <= now - self._time <= limits.react_after(self.timeout)

    def finding(self, now: float, limits: SafetyLimits) -> Finding:
        """Return the staleness as a finding, with the age at which the arm began to stop."""
        return Finding(self.code, now - self._time, limits.react_after(self.timeout), 's')


def command_fault(
    command: ArmCommand,
    limits: SafetyLimits,
    max_velocity: Array,
    measured: Array,
    policy_hash: str,
    first: bool,
) -> Finding | None:
    """Return why a request is not believed, if so."""
    shapes = (command.joint_positions, command.joint_velocities)
    if any(array.shape != measured.shape for array in shapes):
        return Finding('not_finite')
    hand = command.hand_velocity
    numbers = (*shapes, hand, np.array([command.gripper, command.valid_for]))
    if hand.shape != (3,) or not np.isfinite(np.concatenate(numbers)).all():
        return Finding('not_finite')
    if command.policy_hash != policy_hash:
        return Finding('contract')
    distance = float(np.max(np.abs(command.joint_positions - measured)))
    allowed = limits.start_distance if first else limits.joint_jump
    if distance > allowed:
        return Finding('first_command' if first else 'jump', distance, allowed, 'rad')
    speed, most = math.sqrt(hand @ hand), limits.reject_above * limits.max_speed
    if speed > most:
        return Finding('jump', speed, most, 'm/s')
    excess = np.abs(command.joint_velocities) - limits.reject_above * max_velocity
    worst = int(np.argmax(excess))
    if excess[worst] > 0.0:
        value = abs(float(command.joint_velocities[worst]))
        return Finding('jump', value, limits.reject_above * float(max_velocity[worst]), 'rad/s')
    return None
