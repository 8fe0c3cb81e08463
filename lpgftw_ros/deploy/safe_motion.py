r"""The motion the guard commands: safe by construction, because a way to stop is always known.

The guard never trusts a request. It keeps the commanded joints q and velocities, and with them a
ramp: the rest of the motion if nothing is asked for any more, joint velocities falling linearly
to zero over `stop_ticks` periods. A new velocity is taken only if the next step *and the whole
ramp after it* keep every limit, checked tick by tick on the forward kinematics. Otherwise it is
drawn towards the ramp (half, quarter, ...), and at last the ramp itself is followed, which was
checked when it was made. So from the first tick on there is always a checked way to standstill.

Hand velocity means :math:`(p_{k+1} - p_k) / dt` of commanded positions: what is checked is
exactly what is sent.
"""

from dataclasses import dataclass
import math

import numpy as np

from lpgftw_ros.deploy.kinematics import ArmKinematics
from lpgftw_ros.deploy.safety_limits import SafetyLimits
from lpgftw_ros.deploy.safety_report import Finding, worst
from lpgftw_ros.learning.arrays import Array

ANCHOR = 0.2
"""Usual share of the tracking error taken over per period by velocity interfaces."""
_SHARES = (1.0, 0.5, 0.25, 0.125, 0.03)
_SLACK = 0.97
"""Requests are scaled this far below a limit, so that the exact check rarely fails."""
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
        kinematics: ArmKinematics,
        command_period: float,
        anchor: float = 0.0,
        shortest: float | None = None,
    ) -> None:
        """Take over the share `anchor` (0..1) of the tracking error in each period.

        Requests come every `command_period` seconds.

        Velocity interfaces drift, so there the commanded joints follow the measured ones. They
        may also be told something new before a period is over: distances are counted with the
        whole period, accelerations with `shortest`, so that both hold for any time between.
        Position interfaces are told exactly once per period and hold what they were told.
        """
        arm, n = kinematics.arm, limits.stop_ticks
        self._limits, self._kinematics, self._anchor = limits, kinematics, anchor
        self._command_period = command_period
        self._n, self._dt, self._shortest = n, limits.period, shortest or limits.period
        self._low, self._high = limits.joint_range(arm)
        self.max_velocity = limits.joint_velocity_scale * arm.joint_velocity
        self._max_change = arm.joint_acceleration * self._shortest
        # Displacement after 0..n ticks of a ramp that starts with one full tick.
        self._travel = self._dt * np.cumsum([0.0, *(1.0 - np.arange(n) / n)])[:, None]  # (n+1, 1)
        self._upright = math.cos(min(limits.max_tilt, math.pi))
        rest = np.zeros(len(arm.joints))
        # Not a place to be sent to: before `place` there is none.
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

    def advance(self, request: Array, measured: Array) -> Finding | None:
        """Move as requested for one period as far as the limits allow.

        Returns the limit that was met, if any.
        """
        start = self.motion.joints
        if self._anchor:
            start = start + self._anchor * (measured - start)
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
            finding = Finding('speed', speed, limits.max_speed, 'm/s')
            scale = _SLACK * limits.max_speed / speed
        size = np.abs(request)
        if (size * scale > self.max_velocity).any():
            ratios = self.max_velocity / np.maximum(size, _TINY)
            worst, scale = int(np.argmin(ratios)), float(np.min(ratios))
            fast, allowed = float(size[worst]), float(self.max_velocity[worst])
            finding = Finding('joint_speed', fast, allowed, 'rad/s')
        change, turn = request * scale - motion.velocity, hand * scale - motion.hand_velocity
        hard, allowed = math.sqrt(turn @ turn), limits.max_acceleration * self._shortest
        # A step between two requests is smoothed; too hard is what their own period cannot do.
        if hard > limits.max_acceleration * self._command_period * 1.05:
            value = hard / self._command_period
            finding = Finding('acceleration', value, limits.max_acceleration, 'm/s2')
        shares = (
            1.0,
            _SLACK * allowed / max(hard, _TINY),
            float(np.min(self._max_change / np.maximum(np.abs(change), _TINY))),
        )
        return motion.velocity + min(shares) * change, finding

    def _check(self, start: Array, trial: Array) -> tuple[Finding | None, Array]:
        """Check one period of `trial` and the ramp after it.

        Returns the first limit that would be broken, and the hand positions (n + 1, 3).
        """
        joints = start + self._travel * trial  # (n + 1, j)
        points, tools = self._kinematics.path(joints)
        return self._joint_fault(joints[-1], trial) or self._hand_fault(points, tools), points

    def _joint_fault(self, last: Array, trial: Array) -> Finding | None:
        """Check the joints: the ramp is monotone, so its last point decides about positions."""
        if (last < self._low).any() or (last > self._high).any():
            return worst('joint_limit', last, self._low, self._high, 'rad')
        size = np.abs(trial)
        if (size > self.max_velocity).any():
            return worst('joint_speed', size, -size, self.max_velocity, 'rad/s')
        change = np.maximum(np.abs(trial - self.motion.velocity), size / self._n)
        if (change > self._max_change).any():
            rates = change / self._shortest, self._max_change / self._shortest
            return worst('joint_acceleration', rates[0], -rates[0], rates[1], 'rad/s2')
        return None

    def _hand_fault(self, points: Array, tools: Array) -> Finding | None:
        """Check box, tilt, speed and acceleration of the hand at every tick of the ramp."""
        limits, dt = self._limits, self._dt
        outside = np.maximum(limits.box_low - points, points - limits.box_high)
        if outside.max() > 0.0:
            furthest = points[int(outside.max(axis=1).argmax())]
            return worst('workspace', furthest, limits.box_low, limits.box_high, 'm')
        highest = float(tools[:, 2].max())
        if highest > -self._upright:
            return Finding(
                'tilt', math.acos(min(max(-highest, -1.0), 1.0)), limits.max_tilt, 'rad'
            )
        velocities = np.zeros((self._n + 2, 3))  # before, each tick, standstill
        velocities[0], velocities[1:-1] = (
            self.motion.hand_velocity,
            (points[1:] - points[:-1]) / dt,
        )
        speed = math.sqrt(np.square(velocities[1:]).sum(axis=1).max())
        if speed > limits.max_speed:
            return Finding('speed', speed, limits.max_speed, 'm/s')
        change = math.sqrt(np.square(velocities[1:] - velocities[:-1]).sum(axis=1).max())
        if (hard := change / self._shortest) > limits.max_acceleration:
            return Finding('acceleration', hard, limits.max_acceleration, 'm/s2')
        return None
