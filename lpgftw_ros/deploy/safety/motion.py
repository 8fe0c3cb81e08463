r"""The motion the guard commands: safe by construction, because a way to stop is always known.

The guard never trusts a request. It keeps the commanded joints q and velocities, and with them a
ramp: the rest of the motion if no request follows, with joint velocities falling linearly to zero
over `stop_ticks` periods. A new velocity is accepted only if the next step *and the whole ramp
after it* keep every limit, checked tick by tick on the forward kinematics. Otherwise it is moved
towards the ramp (half, quarter, ...). In the end the ramp itself is followed, which was checked
when it was made. So from the first tick on there is always a checked way to standstill.

Hand velocity means :math:`(p_{k+1} - p_k) / dt` of commanded positions: what is checked is
exactly what is sent.
"""

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import numpy as np

from lpgftw_ros.deploy.safety.limits import SafetyLimits
from lpgftw_ros.deploy.safety.report import Finding, worst
from lpgftw_ros.learning.arrays import Array

if TYPE_CHECKING:  # slow to import
    from lpgftw_ros.deploy.arm.kinematics import ArmKinematics

INTERFACES = ('velocity', 'trajectory', 'twist')
"""Commands of an arm: joint velocities, joint positions, or the velocity of the hand."""
SHORTEST = 0.4
"""Share of a period after which a velocity interface may get a new command."""
_ANCHOR = 0.2
"""Share per period by which the joints of velocity interfaces move towards the measured ones."""
_SHARES = (1.0, 0.5, 0.25, 0.125, 0.03)
_SLACK = 0.97
"""Requests are scaled this far below a limit, so that the exact check rarely fails."""
_REPORTED = 1.05
"""Requests this far above what their own period can accelerate are reported; none passes."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Motion:
    """The commanded state of the arm."""

    joints: Array
    """Where the arm is sent. Shape (j,)."""
    velocity: Array
    """Joint velocities of this period. Shape (j,)."""
    hand: Array
    """Hand position that belongs to `joints`. Shape (3,)."""
    hand_velocity: Array
    """Shape (3,)."""

    @property
    def at_rest(self) -> bool:
        """True if nothing moves."""
        return not self.velocity.any()


class SafeMotion:
    """Turns requested joint velocities into commanded ones."""

    def __init__(
        self,
        limits: SafetyLimits,
        kinematics: 'ArmKinematics',
        command_period: float,
        interface: str,
        shortest: float | None = None,
    ) -> None:
        """Take requests every `command_period` seconds for one of `INTERFACES`.

        Position interfaces get one command per period and hold it. Velocity interfaces drift, so
        there the joints follow the measured ones. They may also get a new command before a period
        is over, or late: accelerations are counted with `shortest`, distances with the longest
        time the guard may be away, so that both hold for any time between.
        """
        arm, n = kinematics.arm, limits.stop_ticks
        self._limits, self._kinematics = limits, kinematics
        self._positions, self._twist = interface == 'trajectory', interface == 'twist'
        self._command_period = command_period
        self._n, self._dt, self._shortest = n, limits.period, shortest or limits.period
        self._low, self._high = limits.joint_range(arm)
        self.max_velocity = limits.joint_velocity_scale * arm.joint_velocity
        self._max_change = arm.joint_acceleration * self._shortest
        # Displacement after 0..n ticks of a ramp that starts with one full tick, and at its end
        # if that tick was late.
        travel = self._dt * np.cumsum([0.0, *(1.0 - np.arange(n) / n)])
        late = 0.0 if self._positions else max(limits.longest_gap - limits.period, 0.0)
        self._travel = np.append(travel, travel[-1] + late)[:, None]  # (n + 2, 1)
        self._upright = math.cos(min(limits.max_tilt, math.pi))
        rest = np.zeros(len(arm.joints))
        # No position to send before `place`.
        self.motion = Motion(rest * math.nan, rest, np.full(3, math.nan), np.zeros(3))
        self._ramp, self._ramp_left = rest, 0

    def place(self, joints: Array) -> Finding | None:
        """Start at rest from these joints; return what forbids it, if anything."""
        before, rest = self.motion, np.zeros(len(joints))
        self.motion = Motion(joints.copy(), rest, np.zeros(3), np.zeros(3))
        finding, points = self._check(joints, rest)
        if finding is not None:
            self.motion = before
            return finding
        self.motion = Motion(joints.copy(), rest, points[0], np.zeros(3))
        self._ramp, self._ramp_left = rest, 0
        return None

    def pass_time(self, elapsed: float) -> None:
        """Count the motion of a velocity interface for the time that passed."""
        m, longest = self.motion, self._limits.longest_gap
        if 0.0 < elapsed <= longest and not self._positions and not m.at_rest:
            joints = m.joints + m.velocity * (elapsed - self._dt)
            hand = self._kinematics.pose(joints).position
            self.motion = Motion(joints, m.velocity, hand, m.hand_velocity)

    def brake(self) -> None:
        """Follow the ramp for one period."""
        self._ramp_left = max(self._ramp_left - 1, 0)
        start, velocity = self.motion.joints, self._ramp * self._ramp_left
        if self._ramp_left == 0:  # at rest; no arithmetic that could move a joint by a rounding
            self.motion = Motion(start, velocity, self.motion.hand, np.zeros(3))
            return
        joints = start + velocity * self._dt
        hand = self._kinematics.pose(joints).position
        self.motion = Motion(joints, velocity, hand, (hand - self.motion.hand) / self._dt)

    def halt(self) -> None:
        """Stop at once, where the arm was sent last."""
        rest = np.zeros(len(self._ramp))
        self.motion = Motion(self.motion.joints, rest, self.motion.hand, np.zeros(3))
        self._ramp, self._ramp_left = rest, 0

    def advance(self, request: Array, where: Array) -> Finding | None:
        """Move as requested for one period as far as the limits allow.

        `where` the arm is now: as measurements put it, or where a position interface was sent.
        Returns the limit that was met.
        """
        start = self.motion.joints
        start = where if self._positions else start + _ANCHOR * (where - start)
        wanted, finding = self._within_limits(start, request)
        ramp = self._ramp * max(self._ramp_left - 1, 0)
        for share in _SHARES:
            trial = ramp + share * (wanted - ramp)
            violation, points = self._check(start, trial)
            if violation is None:
                self._ramp, self._ramp_left = trial / self._n, self._n
                hand_velocity = (points[1] - points[0]) / self._dt
                self.motion = Motion(start + trial * self._dt, trial, points[1], hand_velocity)
                return finding
            finding = finding or violation
        self.brake()
        return finding

    def _within_limits(self, start: Array, request: Array) -> tuple[Array, Finding | None]:
        """Scale a request to the speed limits, then its change to the acceleration limits."""
        limits, motion, finding, scale = self._limits, self.motion, None, 1.0
        after = self._kinematics.pose(start + request * self._dt).position
        hand = (after - self._kinematics.pose(start).position) / self._dt
        speed = math.sqrt(hand @ hand)
        if speed > limits.max_speed:
            finding = Finding('speed', speed, limits.max_speed, 'm/s', 'max_speed')
            scale = _SLACK * limits.max_speed / speed
        fast, most = self._jam_speed(start, request), limits.jam_factor * limits.max_speed
        if fast * scale > most:
            finding = Finding('speed', fast, most, 'm/s', 'jam_factor max_speed')
            scale = _SLACK * most / fast
        size = np.abs(request)
        if (size * scale > self.max_velocity).any():
            ratios = self.max_velocity / np.maximum(size, _TINY)
            worst, scale = int(np.argmin(ratios)), float(np.min(ratios))
            fast, allowed = float(size[worst]), float(self.max_velocity[worst])
            finding = Finding('joint_speed', fast, allowed, 'rad/s', 'joint_velocity_scale')
        change, turn = request * scale - motion.velocity, hand * scale - motion.hand_velocity
        hard, allowed = math.sqrt(turn @ turn), limits.max_acceleration * self._shortest
        # A step between two requests is smoothed; too hard is what their own period cannot do.
        if hard > limits.max_acceleration * self._command_period * _REPORTED:
            value = hard / self._command_period
            finding = self._too_hard(value)
        shares = (
            1.0,
            _SLACK * allowed / max(hard, _TINY),
            float(np.min(self._max_change / np.maximum(np.abs(change), _TINY))),
        )
        return motion.velocity + min(shares) * change, finding

    def _check(self, start: Array, trial: Array) -> tuple[Finding | None, Array]:
        """Check one period of `trial` and the ramp after it.

        Returns the first limit that would be broken, and the hand positions (n + 2, 3).
        """
        joints = start + self._travel * trial  # (n + 2, j)
        points, tools = self._kinematics.path(joints)
        finding = self._joint_fault(joints[-1], trial) or self._hand_fault(points, tools)
        return finding or self._jam_fault(start, trial), points

    def _jam_speed(self, start: Array, velocity: Array) -> float:
        """Return how fast the hand is if some joints jam; on `twist` the arm chooses theirs."""
        if self._twist:
            hand = self._kinematics.jacobian(start)[:3] @ velocity
            velocity = self._kinematics.least_velocity(start, hand)
        return self._kinematics.jam_speed(start, velocity)

    def _jam_fault(self, start: Array, trial: Array) -> Finding | None:
        most = self._limits.jam_factor * self._limits.max_speed
        if (fast := self._jam_speed(start, trial)) > most:
            return Finding('speed', fast, most, 'm/s', 'jam_factor max_speed')
        return None

    def _joint_fault(self, last: Array, trial: Array) -> Finding | None:
        """Check the joints: the ramp is monotone, so its last point decides about positions."""
        if (last < self._low).any() or (last > self._high).any():
            return worst('joint_limit', last, self._low, self._high, 'rad', 'joint_margin')
        size = np.abs(trial)
        if (size > self.max_velocity).any():
            most = self.max_velocity
            return worst('joint_speed', size, -size, most, 'rad/s', 'joint_velocity_scale')
        change = np.maximum(np.abs(trial - self.motion.velocity), size / self._n)
        if (change > self._max_change).any():
            rates = change / self._shortest, self._max_change / self._shortest
            name = 'joint_acceleration'
            return worst(name, rates[0], -rates[0], rates[1], 'rad/s2', name)
        return None

    def _hand_fault(self, points: Array, tools: Array) -> Finding | None:
        """Check box, tilt, speed and acceleration of the hand at every tick of the ramp."""
        limits, dt = self._limits, self._dt
        outside = np.maximum(limits.box_low - points, points - limits.box_high)
        if outside.max() > 0.0:
            furthest = points[int(outside.max(axis=1).argmax())]
            low, high = limits.box_low, limits.box_high
            return worst('workspace', furthest, low, high, 'm', 'box_low, box_high')
        highest = float(tools[:, 2].max())
        if highest > -self._upright:
            tilt = math.acos(min(max(-highest, -1.0), 1.0))
            return Finding('tilt', tilt, limits.max_tilt, 'rad', 'max_tilt')
        velocities = np.zeros((self._n + 2, 3))  # before, each tick, standstill
        velocities[0], velocities[1:-1] = (
            self.motion.hand_velocity,
            (points[1:-1] - points[:-2]) / dt,
        )
        speed = math.sqrt(np.square(velocities[1:]).sum(axis=1).max())
        if speed > limits.max_speed:
            return Finding('speed', speed, limits.max_speed, 'm/s', 'max_speed')
        change = math.sqrt(np.square(velocities[1:] - velocities[:-1]).sum(axis=1).max())
        if (hard := change / self._shortest) > limits.max_acceleration:
            return self._too_hard(hard)
        return None

    def _too_hard(self, value: float) -> Finding:
        most = self._limits.max_acceleration
        return Finding('acceleration', value, most, 'm/s2', 'max_acceleration')
