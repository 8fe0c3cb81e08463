"""The safety guard: a deterministic state machine between a request and the arm.

It has no clock of its own and does no input or output: the caller says when each message was
received and when a period begins, on one steady clock. It never trusts its inputs: a message that
is not finite, too far from the last one or too old is dropped and counted, and leads to a ramp to
standstill. It believes measurements, not itself: an arm that does not follow its commands is
stopped.

    inactive --activate--> waiting --first good command--> running --fault--> latched
                              ^                                                  |
                              +--------- reset by hand, commanded to stand ------+
"""

import math

import numpy as np

from lpgftw_ros.deploy.arm.kinematics import ArmKinematics
from lpgftw_ros.deploy.safety.limits import SafetyLimits
from lpgftw_ros.deploy.safety.motion import SafeMotion
from lpgftw_ros.deploy.safety.report import (
    CODES,
    Finding,
    Level,
    Mode,
    Reporter,
    SafetyRefused,
    SafetyReport,
)
from lpgftw_ros.deploy.safety.watch import (
    ArmCommand,
    ArmTracker,
    command_fault,
    SafeCommand,
    Watch,
)
from lpgftw_ros.learning.arrays import Array

STANDING = 0.01
"""m/s. A hand commanded slower than this counts as standing: objects may be put back around it."""
_RELAX = 0.9
"""A position interface that was slowed down gets faster by this factor per period."""


class SafetyGuard:
    """The only way from a request to the arm."""

    def __init__(
        self,
        limits: SafetyLimits,
        kinematics: ArmKinematics,
        policy_hash: str,
        command_period: float,
        interface: str = 'trajectory',
        shortest: float | None = None,
    ) -> None:
        """Accept only commands of the policy with this hash, for one of `INTERFACES`."""
        self.limits, self.mode, self._active = limits, Mode.INACTIVE, False
        self._positions = interface == 'trajectory'
        self._motion = SafeMotion(limits, kinematics, command_period, interface, shortest)
        self._arm = ArmTracker(limits, kinematics, interface)
        self._reporter, self._hash = Reporter(), policy_hash
        joints, thing = limits.joints_timeout, limits.object_timeout
        self._joints = Watch('stale_joints', joints, limits.joint_jump, 'rad', 'joints')
        self._object = Watch('stale_object', thing, limits.object_jump, 'm', 'object')
        self._action = Watch('stale_action', limits.action_timeout, math.inf, '', 'action')
        self._deadman = Watch('deadman', limits.deadman_timeout or 0.0, math.inf, '', 'deadman')
        self._wanted: Array = np.zeros(len(kinematics.arm.joints))
        self._wanted_gripper, self._gripper = math.nan, math.nan
        self._sequence, self._stamp = -1, -math.inf
        self._pressed: set[str] = set()
        self._now, self._slept = -math.inf, math.nan
        self._seconds, self._told, self._silent = 0.0, True, True
        self._fault, self._rejected = Finding('inactive'), Finding('ok')
        self.dropped = ''
        """Why the last rejected message was rejected."""

    @property
    def report(self) -> SafetyReport:
        """The current state, for people and logs."""
        return self._reporter.report()

    @property
    def sequence(self) -> int:
        """Number of the last accepted request; -1 if there is none."""
        return self._sequence

    def joint_state(self, positions: Array, now: float, stamp: float | None = None) -> bool:
        """Take a measurement of the joints; like all inputs, return whether it was accepted.

        `now` is when it was received, however long it waited to be looked at. A stamp that does
        not grow while the arm runs means that nothing was measured.
        """
        running = self.mode is Mode.RUNNING
        if stamp is not None:
            moves = running or not self._motion.motion.at_rest
            if moves and not stamp > self._stamp:
                return stamp == self._stamp or self.drop('sequence')
            self._stamp = stamp
        if not self._take(self._joints, positions, len(self._wanted), now, running):
            return False
        self._arm.measured(self._joints.value, now)
        return True

    def object_pose(self, position: Array, now: float) -> bool:
        """Take a measurement of the object; it may jump while the hand stands."""
        hand = self._motion.motion.hand_velocity
        moves = self.mode is Mode.RUNNING and math.sqrt(hand @ hand) > STANDING
        return self._take(self._object, position, 3, now, moves)

    def deadman(self, pressed: bool, now: float) -> bool:
        """Take the state of the deadman switch."""
        return self._take(self._deadman, np.array([float(pressed)]), 1, now, False)

    def request(self, command: ArmCommand, now: float) -> bool:
        """Take a request; a rejected one also ends the one before it."""
        if self.mode in (Mode.INACTIVE, Mode.LATCHED):
            return False
        if command.sequence <= self._sequence:  # late or repeated: it ends nothing
            return self.drop('sequence')
        first, most = self.mode is Mode.WAITING, self._motion.max_velocity
        measured = self._joints.value
        fault = command_fault(command, self.limits, most, measured, self._hash, first)
        self._rejected = fault or Finding('ok')
        if fault is not None:
            self._wanted = np.zeros(len(self._wanted))
            return self.drop(fault.code)
        self._sequence = command.sequence
        self._wanted = command.joint_velocities.astype(np.float64)
        self._wanted_gripper = min(max(command.gripper, -1.0), 1.0)
        self._action.timeout = min(self.limits.action_timeout, command.valid_for)
        self._action.take(np.zeros(1), now)
        return True

    def drop(self, code: str) -> bool:
        """Count a rejected message; always False."""
        self._reporter.count(code)
        self.dropped = CODES[code]
        return False

    def emergency_stop(self, pressed: bool, now: float, button: str = 'button') -> None:
        """Take the state of one button; releasing it neither resets nor releases another."""
        if pressed:
            self._pressed.add(button)
            self.latch(Finding('emergency_stop'), now)
        else:
            self._pressed.discard(button)

    def activate(self, now: float) -> None:
        """Get ready to move; raise `SafetyRefused` with the reason if that is not safe."""
        if self.mode is Mode.LATCHED:
            raise SafetyRefused(f'latched, {self._fault.text}: reset it first')
        self._place(now)
        self._reporter.clear()
        self._active = True

    def reset(self, now: float) -> None:
        """Leave a latched stop; raise `SafetyRefused` with the reason if that is not safe."""
        if self.mode is not Mode.LATCHED:
            raise SafetyRefused('there is nothing to reset')
        if self._pressed:
            names = ', '.join(sorted(self._pressed))
            raise SafetyRefused(f'the emergency stop is still pressed: {names}')
        self._place(now)
        if not self._active:
            self.deactivate(now)

    def deactivate(self, now: float) -> None:
        """Take no more requests; keep calling `tick` until the command is not moving."""
        self._active = False
        if self.mode is not Mode.LATCHED:
            self.mode = Mode.INACTIVE
        self._state(now)

    def tick(self, now: float, slept: float = 0.0) -> SafeCommand:
        """Begin a period: judge the inputs and return the command to the arm.

        `slept` is the time the machine was suspended since it started, s.
        """
        elapsed = now - self._now
        self._check_clock(now, slept)
        self._motion.pass_time(elapsed)
        self._arm.moved(self._motion.motion, now, elapsed)
        stopped, limited = self._judge(now), None
        if self.mode is Mode.RUNNING and stopped is None:
            limited = self._motion.advance(self._wanted, self._arm.whereabouts(self._joints))
            self._grip()
        else:
            self._motion.brake()
        self._state(now, stopped, limited)
        return self._command(stopped is None)

    def _command(self, free: bool) -> SafeCommand:
        """Return the command to the arm.

        At rest a velocity interface gets zeros for ever. A position interface gets its position
        once and then nothing, so that a person can move the arm. Only an arm that is `free` to
        move gets commands for its gripper.
        """
        m, period = self._motion.motion, self.limits.period
        self._silent = self._positions and m.at_rest and self._told
        self._told = m.at_rest
        slow = period + self._arm.slack(self._motion.max_velocity)
        self._seconds = max(slow, _RELAX * self._seconds, period)
        gripper = self._gripper if free and self.mode is Mode.RUNNING else math.nan
        joints, hand = m.joints, m.hand
        if self._positions:
            if not self._silent:
                self._arm.send(m, self._seconds, self._motion.max_velocity)
            joints, hand = self._arm.target, self._arm.target_hand
        return SafeCommand(
            joints=joints,
            joint_velocities=m.velocity,
            hand=hand,
            hand_velocity=m.hand_velocity,
            gripper=gripper,
            moving=not m.at_rest,
            seconds=self._seconds,
            silent=self._silent,
        )

    def _grip(self) -> None:
        """Move the gripper as requested; its position is unknown before the first command."""
        wanted, step = self._wanted_gripper, self.limits.gripper_rate * self.limits.period
        start = wanted if math.isnan(self._gripper) else self._gripper
        self._gripper = start + min(max(wanted - start, -step), step)

    def _judge(self, now: float) -> Finding | None:
        """Return why the arm may not move now; latch causes that need a person."""
        watches = (self._joints, self._object, self._action)
        stale = next((w for w in watches if not w.fresh(now, self.limits)), None)
        astray = self._arm.astray(self._joints, self._motion.motion)
        if self.mode is Mode.RUNNING and stale is not None:
            self.latch(stale.finding(now, self.limits), now)
        if self.mode is Mode.RUNNING and astray is not None:
            self.latch(astray, now)
        if astray is not None and self._positions and not self._motion.motion.at_rest:
            self._halt()  # measured or commanded, one is wrong: no position is safe to be sent
        if self.mode in (Mode.LATCHED, Mode.INACTIVE):
            return self._fault
        if stale is not None:
            return Finding('waiting')
        held = self._deadman.fresh(now, self.limits) and self._deadman.value[0] > 0.0
        if self.limits.deadman_timeout is not None and not held:
            return self._deadman.finding(now, self.limits)
        if self.mode is Mode.WAITING:
            if not self._arm.confirmed(self._motion.max_velocity):
                return Finding('waiting')
            if (found := self._settle(now)) is not None:
                self.latch(found, now)
                return found
        self.mode = Mode.RUNNING
        return None if self._rejected.code == 'ok' else self._rejected

    def _place(self, now: float) -> None:
        """Take the measured joints as the commanded ones and wait for a first command."""
        if not self._motion.motion.at_rest:
            raise SafetyRefused('the arm is still ramping to a stop')
        if not self._joints.fresh(now, self.limits):
            raise SafetyRefused(CODES['stale_joints'])
        if (found := self._settle(now)) is not None:
            raise SafetyRefused(f'{found.text}: {found.value:.4g}, limit {found.limit:.4g}')
        self.mode, self._sequence, self._rejected = Mode.WAITING, -1, Finding('ok')
        self._gripper = math.nan  # a person may have moved it meanwhile
        self._action.forget()
        self._state(now)

    def _settle(self, now: float) -> Finding | None:
        """Start at rest from the measured joints; return what forbids it, if anything."""
        if (found := self._motion.place(self._joints.value)) is None:
            self._arm.start(self._motion.motion, now)
            self._seconds, self._told, self._silent = 0.0, True, True
        return found

    def _take(self, watch: Watch, value: Array, size: int, now: float, check_jump: bool) -> bool:
        if (fault := watch.fault(value, size, check_jump)) is None:
            watch.take(value, now)
            return True
        return self.drop(fault.code)

    def _check_clock(self, now: float, slept: float) -> None:
        gap, asleep, most = now - self._now, slept - self._slept, self.limits.longest_gap
        self._now, self._slept = now, slept
        if 0.0 <= gap <= most and abs(asleep) <= most:
            return
        if not self._motion.motion.at_rest:
            self._halt()  # the arm may stand by its own time-out: a ramp would start it again
        if self.mode is Mode.RUNNING:
            lost = asleep if 0.0 <= gap <= most else gap
            self.latch(Finding('clock', lost, most, 's', 'joints_timeout'), now)

    def _halt(self) -> None:
        """Stop at once; a position interface gets no further command."""
        self._motion.halt()
        self._told = True

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
