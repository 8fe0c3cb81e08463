"""What the guard believes: requests and measurements, checked on arrival.

`Watch` judges one input by itself: finite, not too far from the last value, not too old.
`ArmTracker` judges the arm: commanded motion is compared with measured motion, and neither
corrects the other.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import numpy as np

from lpgftw_ros.deploy.safety.limits import SafetyLimits
from lpgftw_ros.deploy.safety.motion import Motion
from lpgftw_ros.deploy.safety.report import Finding
from lpgftw_ros.learning.arrays import Array

if TYPE_CHECKING:  # slow to import
    from lpgftw_ros.deploy.arm.kinematics import ArmKinematics

FORGET = 0.1
"""Share of a deviation forgotten per tolerance of commanded motion: velocities add up errors."""
_RETURN = 0.66
"""Share of the speed limit at which a position interface makes up for a deviation: while it is
measured, it grows."""
_AHEAD = 2.0
"""Periods of motion a position interface is sent ahead at most: it goes there if the guard dies,
and an arm that is not where it was sent is slowed down."""
_EARLY = 0.9
"""Share of a tolerance at which the arm is stopped: what it did meanwhile is measured later."""
_JUDGED = 8
"""Measurements of a period that are judged, the last ones: noise on one of them hides nothing."""
_AGREE = 3
"""Measurements in a row that must agree before the arm starts from the last of them."""
_STEP = 1e-3
"""m or rad. Measurements of an arm that stands may always differ by this."""
_TINY = 1e-18


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
    """A requested motion; only the guard turns it into a command for the arm."""

    sequence: int
    """Grows from command to command."""
    policy_hash: str
    """The policy that requests it; must be the agreed one."""
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
    """The command to the arm for one period."""

    joints: Array
    """Positions at the end of the period, rad. Shape (j,)."""
    joint_velocities: Array
    """rad/s. Shape (j,)."""
    hand: Array
    """Hand position at the end of the period, m. Shape (3,)."""
    hand_velocity: Array
    """m/s. Shape (3,)."""
    gripper: float
    """-1 open .. 1 closed; NaN: no command."""
    moving: bool
    seconds: float = 0.0
    """Time in which `joints` are to be reached: longer if the arm is not where it was sent."""
    silent: bool = False
    """True: send nothing. A position interface that stands has been told so."""


class Watch:
    """The latest believed value of one input and the time it was received."""

    def __init__(self, code: str, timeout: float, max_step: float, unit: str, name: str) -> None:
        """Say `code` when the value is older than `timeout`; drop steps above `max_step`.

        The limits are `<name>_timeout` and `<name>_jump`.
        """
        self.code, self.timeout = code, timeout
        self._max_step, self._unit, self._name = max_step, unit, name
        self.time, self.value = math.nan, np.zeros(0)

    def fault(self, value: Array, size: int, check_jump: bool) -> Finding | None:
        """Return why a value is rejected, if so."""
        if value.shape != (size,) or not np.isfinite(value).all():
            return Finding('not_finite')
        if check_jump and len(self.value):
            step = float(np.max(np.abs(value - self.value)))
            if step > self._max_step:
                parameter = f'{self._name.removesuffix("s")}_jump'
                return Finding('jump', step, self._max_step, self._unit, parameter)
        return None

    def take(self, value: Array, now: float) -> None:
        """Accept a value received now."""
        self.value, self.time = value.astype(np.float64), now

    def forget(self) -> None:
        """Count as never received."""
        self.time = math.nan

    def fresh(self, now: float, limits: SafetyLimits) -> bool:
        """Return whether the arm may move on; a time in the future or NaN is not fresh."""
        return 0.0 <= now - self.time <= limits.react_after(self.timeout)

    def finding(self, now: float, limits: SafetyLimits) -> Finding:
        """Return the staleness as a finding, with the age at which the arm began to stop."""
        react, parameter = limits.react_after(self.timeout), f'{self._name}_timeout'
        return Finding(self.code, now - self.time, react, 's', parameter)


class Following:
    """Whether a measured point follows a commanded one.

    An arm obeys late: at the time of a measurement it may be anywhere the commands put it in the
    last `delay` seconds. The deviation is the distance to that part of the way. Positions are
    compared as they are. Velocities only tell motion, so the place where it began is added, and a
    share `forget` of the deviation is forgotten each time the commanded point has gone on by
    `tolerance`: never at rest and never by trembling, so no drift stays hidden.
    """

    def __init__(self, tolerance: float, delay: float, forget: float) -> None:
        self.tolerance, self._delay, self._forget = tolerance, delay, forget
        self._times: list[float] = []
        self._points: list[Array] = []
        self._offset: Array = np.zeros(0)
        self._mark: Array = np.zeros(0)
        self._start: Array = np.zeros(0)
        self._measured: Array = np.zeros(0)
        self._gap: Array = np.zeros(0)
        self.nearest = 0.0
        """When the commands put the arm nearest to where it is measured."""

    def start(self, commanded: Array, measured: Array, now: float) -> None:
        """Begin at rest: both points are the same place."""
        self._times, self._points, self.nearest = [now], [commanded], now
        self._offset, self._mark = measured - commanded, commanded
        self._start, self._measured, self._gap = measured, measured, 0.0 * measured

    def command(self, point: Array, now: float, kept: float) -> None:
        """Note where the commands put the arm now; keep `kept` seconds of the past."""
        self._times.append(now)
        self._points.append(point)
        if len(self._times) > 2 and self._times[1] < now - kept:
            del self._times[0], self._points[0]
        on = point - self._mark
        if math.sqrt(on @ on) > self.tolerance:
            self._offset = self._offset - self._forget * self._gap
            self._mark, self._start = point, self._measured

    def deviation(self, measured: Array, received: float) -> float:
        """Return how far a measurement is from where the commands put the arm."""
        if not self._times:
            return 0.0
        start, end = received - self._delay, received
        inside = slice(bisect_right(self._times, start), bisect_left(self._times, end))
        times = [start, *self._times[inside], end]
        way = [self._place(start), *self._points[inside], self._place(end)]
        places = np.array(way) + self._offset  # (n, k)
        steps, to = places[1:] - places[:-1], measured - places[:-1]
        sizes = np.maximum(np.square(steps).sum(axis=1), _TINY)
        shares = ((to * steps).sum(axis=1) / sizes).clip(0.0, 1.0)
        gaps = shares[:, None] * steps - to
        found = int(np.square(gaps).sum(axis=1).argmin())
        self._gap, self._measured = gaps[found], measured
        share = float(shares[found])
        self.nearest = times[found] + share * (times[found + 1] - times[found])
        return math.sqrt(self._gap @ self._gap)

    def since(self, time: float) -> Array:
        """Return the motion commanded after a time."""
        return self._points[-1] - self._place(time)

    def _place(self, time: float) -> Array:
        """Return where the commands put the arm at a time."""
        times, points, after = self._times, self._points, bisect_right(self._times, time)
        if after in (0, len(times)):
            return points[min(after, len(times) - 1)]
        before = times[after - 1]
        share = (time - before) / (times[after] - before)
        return points[after - 1] + share * (points[after] - points[after - 1])

    def stands(self, deviation: float) -> bool:
        """Return whether the measured point moved less than a third of a deviation."""
        moved = self._measured - self._start
        return 3.0 * math.sqrt(moved @ moved) < deviation


class ArmTracker:
    """Compares what the arm was told with what it is measured to do."""

    def __init__(self, limits: SafetyLimits, kinematics: 'ArmKinematics', interface: str) -> None:
        self._limits, self._kinematics = limits, kinematics
        self._positions = interface == 'trajectory'
        forget, delay = 0.0 if self._positions else FORGET, limits.tracking_delay
        self._hand = Following(limits.hand_error, delay, forget)
        self._joints = Following(limits.tracking_error, delay, forget)
        self._judge_joints = interface != 'twist'  # there the arm chooses its joints itself
        n = len(kinematics.arm.joints)
        self.target: Array = np.full(n, math.nan)
        """Where a position interface was sent last. Shape (j,)."""
        self.target_hand: Array = np.full(3, math.nan)
        self._moved: Array = np.zeros(n)
        self._pace: Array = np.zeros(n)
        self._moved_hand: Array = np.zeros(3)
        self._off = self._off_joints = 0.0
        self._measured: deque[tuple[Array, float]] = deque(maxlen=_JUDGED)
        self._last: deque[Array] = deque(maxlen=_AGREE)
        self._started = False

    def start(self, m: Motion, now: float) -> None:
        """Begin where the arm is placed, at rest."""
        self._moved, self._moved_hand = m.joints.copy(), m.hand.copy()
        self.target, self.target_hand = self._moved, self._moved_hand
        self._pace = np.zeros(len(m.joints))
        self._hand.start(self._moved_hand, m.hand, now)
        self._joints.start(self._moved, m.joints, now)
        self._off = self._off_joints = 0.0
        self._measured.clear()
        self._started = True

    def measured(self, joints: Array, received: float) -> None:
        """Note a measurement; the next `astray` judges it."""
        self._measured.append((joints, received))
        self._last.append(joints)

    def confirmed(self, max_velocity: Array) -> bool:
        """Return whether the last measurements agree, so that a start from the last is safe.

        They may differ by what the arm may move in a period: a start from a wrong one is no
        faster than a limit.
        """
        if len(self._last) < _AGREE:
            return False
        hands = np.array([self._kinematics.pose(joints).position for joints in self._last])
        far, turned = np.ptp(hands, axis=0), np.ptp(np.array(self._last), axis=0)
        step = max(self._limits.max_speed * self._limits.period, _STEP)
        return bool(
            math.sqrt(far @ far) <= step
            and (turned <= np.maximum(max_velocity * self._limits.period, _STEP)).all()
        )

    def send(self, m: Motion, seconds: float, max_velocity: Array) -> None:
        """Send a position interface towards `m.joints`, where it would be in `seconds`.

        With more time than a period the arm trails behind. It must not catch up, neither when it
        gets less time nor after the commands stand: it is sent no further than it comes at the
        commanded velocity, never far ahead, and at no pace that breaks a limit.
        """
        gap, v = m.joints - self._moved, m.velocity
        far = min(seconds, _AHEAD * self._limits.period)
        ahead = far * math.sqrt(float(v @ v) / max(float(gap @ gap), _TINY))
        share = min(1.0, ahead, self._allowed(gap / seconds, max_velocity))
        self._pace, self.target, self.target_hand = share * gap / seconds, m.joints, m.hand
        if share < 1.0:
            self.target = self._moved + share * gap
            self.target_hand = self._kinematics.pose(self.target).position

    def _allowed(self, pace: Array, max_velocity: Array) -> float:
        """Return the share of a pace that keeps the speed limits, whichever joints jam."""
        limits, here = self._limits, self._moved
        hand, most = self._kinematics.jacobian(here)[:3] @ pace, max(limits.max_speed, _TINY)
        jammed = self._kinematics.jam_speed(here, pace) / (limits.jam_factor * most)
        joints = float(np.max(np.abs(pace) / np.maximum(max_velocity, _TINY)))
        return 1.0 / max(math.sqrt(hand @ hand) / most, jammed, joints, _TINY)

    def moved(self, m: Motion, now: float, elapsed: float) -> None:
        """Note the motion commanded for the time since the last tick."""
        if not self._started or not elapsed > 0.0:  # no time passed, or nobody knows how much
            return
        limits = self._limits
        dt = min(elapsed, limits.action_timeout)
        if self._positions:
            gap = self.target - self._moved
            self._moved = self._moved + np.clip(self._pace * dt, -np.abs(gap), np.abs(gap))
            self._moved_hand = self._kinematics.pose(self._moved).position
        else:
            self._moved = self._moved + m.velocity * dt
            self._moved_hand = self._moved_hand + m.hand_velocity * dt
        kept = limits.tracking_delay + limits.joints_timeout
        self._joints.command(self._moved, now, kept)
        self._hand.command(self._moved_hand, now, kept)

    def whereabouts(self, joints: Watch) -> Array:
        """Return the joints now: as measured, and moved by what the arm was told since.

        How old a measurement is, shows the place on the commanded way its hand is nearest to. A
        position interface goes where it was sent last.
        """
        if self._positions:
            return self.target
        return joints.value + self._joints.since(self._hand.nearest)

    def slack(self, max_velocity: Array) -> float:
        """Return the seconds a position interface is given to make up for its deviation."""
        if not self._positions or not self._off:
            return 0.0
        fast = _RETURN * max(self._limits.max_speed, 1e-3)
        return max(self._off / fast, self._off_joints / max(float(np.min(max_velocity)), 1e-3))

    def astray(self, joints: Watch, m: Motion) -> Finding | None:
        """Return how the measured arm differs from the commanded one, if it does too much.

        Every measurement since the last call is judged; without a new one, the last once more.
        """
        if not self._started or not math.isfinite(joints.time):
            return None
        judged = [*self._measured] or [(joints.value, joints.time)]
        self._measured.clear()
        found = [self._strays(*each) for each in judged]
        if (first := next((each for each in found if each is not None), None)) is not None:
            return first
        if not self._positions:
            where = self._kinematics.pose(self.whereabouts(joints)).position
            gap = m.hand - where
            if (off := math.sqrt(gap @ gap)) > _EARLY * self._limits.hand_error:
                return self._finding('hand_error', off, 'm', self._hand)
        return None

    def _strays(self, joints: Array, received: float) -> Finding | None:
        """Return how one measurement differs from where the commands put the arm."""
        hand = self._kinematics.pose(joints).position
        self._off = self._hand.deviation(hand, received)
        if self._off > _EARLY * self._limits.hand_error:
            return self._finding('hand_error', self._off, 'm', self._hand)
        if self._judge_joints:
            self._off_joints = self._joints.deviation(joints, received)
            if self._off_joints > _EARLY * self._limits.tracking_error:
                return self._finding('tracking_error', self._off_joints, 'rad', self._joints)
        return None

    def _finding(self, parameter: str, off: float, unit: str, what: Following) -> Finding:
        code = 'standstill' if what.stands(off) else 'tracking'
        return Finding(code, off, _EARLY * getattr(self._limits, parameter), unit, parameter)


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
        code, name = ('first_command', 'start_distance') if first else ('jump', 'joint_jump')
        return Finding(code, distance, allowed, 'rad', name)
    speed, most = math.sqrt(hand @ hand), limits.reject_above * limits.max_speed
    if speed > most:
        return Finding('jump', speed, most, 'm/s', 'reject_above max_speed')
    excess = np.abs(command.joint_velocities) - limits.reject_above * max_velocity
    worst = int(np.argmax(excess))
    if excess[worst] > 0.0:
        value, most = abs(float(command.joint_velocities[worst])), float(max_velocity[worst])
        name = 'reject_above joint_velocity_scale'
        return Finding('jump', value, limits.reject_above * most, 'rad/s', name)
    return None
