"""The safety guard: a deterministic state machine between a request and the arm.

It has no clock of its own and does no input or output: the caller says when each message was
received and when a period begins, on one steady clock. It never trusts its inputs: what is not
finite, too far from before or too old is dropped, counted, and ends in a ramp to standstill.

    inactive --activate--> waiting --first good command--> running --fault--> latched
                              ^                                                  |
                              +----------- reset by hand, standing still --------+
"""

import math

import numpy as np

from lpgftw_ros.deploy import safety_report
from lpgftw_ros.deploy.kinematics import ArmKinematics
from lpgftw_ros.deploy.safe_motion import SafeMotion
from lpgftw_ros.deploy.safety_limits import SafetyLimits
from lpgftw_ros.deploy.safety_report import CODES, Finding, Level, Mode, SafetyRefused
from lpgftw_ros.deploy.safety_watch import ArmCommand, command_fault, SafeCommand, Watch
from lpgftw_ros.learning.arrays import Array

STANDING = 0.01
"""m/s. A hand that is commanded slower than this stands: objects may be put back around it."""


class SafetyGuard:
    """The only way from a request to the arm."""

    def __init__(
        self,
        limits: SafetyLimits,
        kinematics: ArmKinematics,
        policy_hash: str,
        command_period: float,
        anchor: float = 0.0,
        shortest: float | None = None,
    ) -> None:
        """Accept only commands of the policy with this hash; the rest is `SafeMotion`'s."""
        self.limits, self.mode, self._active = limits, Mode.INACTIVE, False
        self._motion = SafeMotion(limits, kinematics, command_period, anchor, shortest)
        self._reporter, self._hash = safety_report.Reporter(), policy_hash
        self._joints = Watch('stale_joints', limits.joints_timeout, limits.joint_jump, 'rad')
        self._object = Watch('stale_object', limits.object_timeout, limits.object_jump, 'm')
        self._action = Watch('stale_action', limits.action_timeout, math.inf, '')
        self._deadman = Watch('deadman', limits.deadman_timeout or 0.0, math.inf, '')
        self._wanted: Array = np.zeros(len(kinematics.arm.joints))
        self._wanted_gripper, self._gripper = math.nan, math.nan
        self._sequence, self._button, self._now = -1, False, -math.inf
        self._fault, self._rejected = Finding('inactive'), Finding('ok')
        self.dropped = ''
        """Why the last message that was not believed was not."""

    @property
    def report(self) -> safety_report.SafetyReport:
        """The present state, for people and logs."""
        return self._reporter.report()

    @property
    def sequence(self) -> int:
        """Number of the last request that was believed; -1 if none was."""
        return self._sequence

    def joint_state(self, positions: Array, now: float) -> bool:
        """Take a measurement of the joints; like all inputs, return whether it was believed."""
        running = self.mode is Mode.RUNNING
        return self._take(self._joints, positions, len(self._wanted), now, running)

    def object_pose(self, position: Array, now: float) -> bool:
        """Take a measurement of the object; while the hand stands it may be put elsewhere."""
        hand = self._motion.motion.hand_velocity
        moves = self.mode is Mode.RUNNING and math.sqrt(hand @ hand) > STANDING
        return self._take(self._object, position, 3, now, moves)

    def deadman(self, pressed: bool, now: float) -> bool:
        """Take the state of the deadman switch."""
        return self._take(self._deadman, np.array([float(pressed)]), 1, now, False)

    def request(self, command: ArmCommand, now: float) -> bool:
        """Take a request; one that is not believed also ends the one before it."""
        if self.mode in (Mode.INACTIVE, Mode.LATCHED):
            return False
        if command.sequence <= self._sequence:  # late or repeated: it ends nothing
            return self._drop('sequence')
        first, most = self.mode is Mode.WAITING, self._motion.max_velocity
        measured = self._joints.value
        fault = command_fault(command, self.limits, most, measured, self._hash, first)
        self._rejected = fault or Finding('ok')
        if fault is not None:
            self._wanted = np.zeros(len(self._wanted))
            return self._drop(fault.code)
        self._sequence = command.sequence
        self._wanted = command.joint_velocities.astype(np.float64)
        self._wanted_gripper = min(max(command.gripper, -1.0), 1.0)
        self._action.timeout = min(self.limits.action_timeout, command.valid_for)
        self._action.take(np.zeros(1), now)
        return True

    def emergency_stop(self, pressed: bool, now: float) -> None:
        """Take the emergency stop; releasing the button does not reset it."""
        self._button = pressed
        if pressed:
            self.latch(Finding('emergency_stop'), now)

    def activate(self, now: float) -> None:
        """Get ready to move; raise `SafetyRefused` with the reason if that is not safe."""
        if self.mode is Mode.LATCHED:
            raise SafetyRefused(f'latched, {CODES[self._fault.code]}: reset it first')
        self._place(now)
        self._reporter.clear()
        self._active, self._gripper = True, math.nan  # a person may have moved it meanwhile

    def reset(self, now: float) -> None:
        """Leave a latched stop; raise `SafetyRefused` with the reason if that is not safe."""
        if self.mode is not Mode.LATCHED:
            raise SafetyRefused('there is nothing to reset')
        if self._button:
            raise SafetyRefused('the emergency stop is still pressed')
        self._place(now)
        if not self._active:
            self.deactivate(now)

    def deactivate(self, now: float) -> None:
        """Take no more requests; keep calling `tick` until the command is not moving."""
        self._active = False
        if self.mode is not Mode.LATCHED:
            self.mode = Mode.INACTIVE
        self._state(now)

    def tick(self, now: float) -> SafeCommand:
        """Begin a period: judge the inputs and return what the arm is told."""
        self._check_clock(now)
        stopped, limited = self._judge(now), None
        if self.mode is Mode.RUNNING and stopped is None:
            limited = self._motion.advance(self._wanted, self._joints.value)
            self._grip()
        else:
            self._motion.brake()
        self._state(now, stopped, limited)
        m = self._motion.motion
        moves = not m.at_rest
        return SafeCommand(m.joints, m.velocity, m.hand, m.hand_velocity, self._gripper, moves)

    def _grip(self) -> None:
        """Move the gripper as asked; where it is, is unknown until it was told once."""
        wanted, step = self._wanted_gripper, self.limits.gripper_rate * self.limits.period
        start = wanted if math.isnan(self._gripper) else self._gripper
        self._gripper = start + min(max(wanted - start, -step), step)

    def _judge(self, now: float) -> Finding | None:
        """Return why the arm may not move now; latch what a person has to look at."""
        watches = (self._joints, self._object, self._action)
        stale = next((w for w in watches if not w.fresh(now, self.limits)), None)
        if self.mode is Mode.RUNNING:
            if stale is not None:
                self.latch(stale.finding(now, self.limits), now)
            error = float(np.max(np.abs(self._joints.value - self._motion.motion.joints)))
            if error > self.limits.tracking_error:
                self.latch(Finding('tracking', error, self.limits.tracking_error, 'rad'), now)
        if self.mode in (Mode.LATCHED, Mode.INACTIVE):
            return self._fault
        if stale is not None:
            return Finding('waiting')
        held = self._deadman.fresh(now, self.limits) and self._deadman.value[0] > 0.0
        if self.limits.deadman_timeout is not None and not held:
            return self._deadman.finding(now, self.limits)
        self.mode = Mode.RUNNING
        return None if self._rejected.code == 'ok' else self._rejected

    def _place(self, now: float) -> None:
        """Take the measured joints as the commanded ones and wait for a first command."""
        if not self._motion.motion.at_rest:
            raise SafetyRefused('the arm is still ramping to a stop')
        if not self._joints.fresh(now, self.limits):
            raise SafetyRefused(CODES['stale_joints'])
        if (found := self._motion.place(self._joints.value)) is not None:
            raise SafetyRefused(f'{CODES[found.code]}: {found.value:.4g}, limit {found.limit:.4g}')
        self.mode, self._sequence, self._rejected = Mode.WAITING, -1, Finding('ok')
        self._action.forget()
        self._state(now)

    def _take(self, watch: Watch, value: Array, size: int, now: float, check_jump: bool) -> bool:
        if (fault := watch.fault(value, size, check_jump)) is None:
            watch.take(value, now)
            return True
        return self._drop(fault.code)

    def _drop(self, code: str) -> bool:
        self._reporter.count(code)
        self.dropped = CODES[code]
        return False

    def _check_clock(self, now: float) -> None:
        gap, most = now - self._now, self.limits.action_timeout
        if self.mode is Mode.RUNNING and not 0.0 <= gap <= most:
            self.latch(Finding('clock', gap, most, 's'), now)
        self._now = now

    def latch(self, finding: Finding, now: float) -> None:
        """Stop and hold until reset by hand; only an emergency stop replaces an earlier cause."""
        if self.mode is not Mode.LATCHED or finding.code == 'emergency_stop':
            self.mode, self._fault = Mode.LATCHED, finding
        self._state(now)

    def _state(
        self, now: float, stopped: Finding | None = None, limited: Finding | None = None
    ) -> None:
        if self.mode is Mode.LATCHED:
            self._reporter.state(Level.LATCHED, self._fault, now)
        elif self.mode is Mode.INACTIVE:
            self._reporter.state(Level.INACTIVE, Finding('inactive'), now)
        elif stopped or self.mode is Mode.WAITING:
            rejected = stopped is self._rejected
            self._reporter.state(Level.STOPPED, stopped or Finding('waiting'), now, not rejected)
        else:
            level = Level.LIMITED if limited else Level.OK
            self._reporter.state(level, limited or Finding('ok'), now)
