"""The guard under fire: whatever comes in, what goes out keeps every limit."""

from dataclasses import dataclass, field, replace
import math
import os

import numpy as np
import pytest

from lpgftw_ros.deploy.arm.kinematics import DifferentialIK
from lpgftw_ros.deploy.safety.guard import SafetyGuard
from lpgftw_ros.deploy.safety.report import Mode, SafetyRefused
from lpgftw_ros.deploy.safety.watch import ArmCommand

N_SEQUENCES = int(os.environ.get('LPGFTW_SEQUENCES', '10000'))  # test/mutants.py: fewer
TOLERANCE = 1e-9
HASH, COMMAND_PERIOD = 'agreed', 0.05
DOWN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])


@dataclass
class Record:
    """What the guard commanded, tick by tick."""

    joints: list = field(default_factory=list)
    rush: list = field(default_factory=list)
    velocities: list = field(default_factory=list)
    hands: list = field(default_factory=list)
    hand_velocities: list = field(default_factory=list)
    latched: list = field(default_factory=list)
    halted: list = field(default_factory=list)
    ticks_since_accept: list = field(default_factory=list)
    moving: list = field(default_factory=list)


class World:
    """Drives one guard through one random sequence."""

    def __init__(self, rng, limits, kinematics, start, steer, interface):
        self.rng, self.limits, self.interface = rng, limits, interface
        self.guard = SafetyGuard(limits, kinematics, HASH, COMMAND_PERIOD, interface)
        self.joints, self.steer, self.now, self.sequence = start.copy(), steer, 100.0, 0
        self.record, self.since_accept, self.push = Record(), 0, rng.normal(size=3)
        # A stop may come at once where a ramp would trust a clock or a measurement that failed.
        self.halted, halt = False, self.guard._halt
        self.guard._halt = lambda: (halt(), setattr(self, 'halted', True))
        self.guard.joint_state(self.joints, self.now)
        self.guard.object_pose(np.zeros(3), self.now)
        self.guard.activate(self.now)

    def run(self, n_ticks, fault_rate):
        for _ in range(n_ticks):
            faults = self.rng.random(4) < fault_rate
            self._clock(faults[0])
            self._measure(faults[1])
            self._request(faults[2])
            if faults[3] and self.rng.random() < 0.3:
                self.guard.emergency_stop(bool(self.rng.random() < 0.7), self.now)
            if self.guard.mode is Mode.LATCHED and self.rng.random() < 0.2:
                self._reset()
            self._tick()
        return self.record

    def _clock(self, fault):
        self.now += self.limits.period
        if fault:
            self.now += self.rng.choice([-5.0, -0.01, 0.03, 0.3, 10.0, math.nan])
            if math.isnan(self.now):
                self._tick()
                self.now = 100.0

    def _measure(self, fault):
        measured, seen = self.joints + self.rng.normal(size=7) * 1e-4, np.zeros(3)
        if fault:
            kind = self.rng.integers(4)
            if kind == 0:
                return
            if kind == 1:
                measured[self.rng.integers(7)] = self.rng.choice([math.nan, math.inf, 9.0])
            elif kind == 2:
                measured = measured + self.rng.normal(size=7)
            else:
                seen = np.full(3, self.rng.choice([math.nan, 5.0]))
        self.guard.joint_state(measured, self.now)
        self.guard.object_pose(seen, self.now)

    def _request(self, fault):
        self.since_accept += 1
        if self.rng.random() < 0.2:
            self.push = self.rng.normal(size=3) * self.rng.choice([0.02, 0.1, 0.3])
        velocities = self.steer @ self.push + self.rng.normal(size=7) * 0.02
        command = ArmCommand(
            self.sequence,
            HASH,
            self.joints,
            velocities,
            self.push,
            0.5,
            self.limits.action_timeout,
        )
        self.sequence += 1
        if fault:
            spoil = self.rng.integers(7)
            if spoil == 0:
                return
            bad = velocities.copy()
            bad[self.rng.integers(7)] = self.rng.choice([math.nan, -math.inf, 50.0])
            command = (
                replace(command, joint_velocities=bad),
                replace(command, joint_velocities=10.0 * velocities),
                replace(command, policy_hash='other'),
                replace(command, sequence=-5),
                replace(command, gripper=math.nan),
                replace(command, joint_velocities=velocities[:3]),
            )[spoil - 1]
        if self.guard.request(command, self.now):
            self.since_accept = 0

    def _reset(self):
        try:
            self.guard.reset(self.now)
        except SafetyRefused:
            return
        self.record.latched.append(None)  # a person allowed motion again

    def _tick(self):
        waiting = self.guard.mode is Mode.WAITING
        command = self.guard.tick(self.now)
        if waiting and self.guard.mode is Mode.RUNNING:
            self.record.latched.append(None)  # it starts where the arm is measured
        # Velocity interfaces integrate what they are sent; position interfaces go where they are.
        moved = self.joints + command.joint_velocities * self.limits.period
        positions = self.joints if command.silent else command.joints
        self.joints = positions if self.interface == 'trajectory' else moved
        record = self.record
        if self.interface == 'trajectory' and not command.silent:
            pace, told = self.guard._arm._pace, command.joint_velocities
            record.rush.append(np.linalg.norm(pace) - np.linalg.norm(told))
        record.joints.append(command.joints)
        record.velocities.append(command.joint_velocities)
        record.hands.append(command.hand)
        record.hand_velocities.append(command.hand_velocity)
        record.latched.append(self.guard.mode is Mode.LATCHED)
        record.halted.append(self.halted)
        self.halted = False
        record.ticks_since_accept.append(self.since_accept)
        record.moving.append(command.moving)


def ticks_to_rest(latched, moving):
    """Return the longest time, in ticks, from a latch to standstill, and motion after it."""
    flags = iter(moving)
    worst = run = 0
    for state in latched:
        if state is None:
            run = 0
            continue
        moves = next(flags)
        run = run + 1 if state else 0
        if state and moves:
            worst = max(worst, run)
    return worst


@pytest.fixture(scope='module')
def starts(kinematics, at_reset, limits):
    """Joints all over the box, with the matrix that turns hand into joint velocities."""
    rng = np.random.default_rng(0)
    ik = DifferentialIK(kinematics, DOWN, at_reset, 0.1, 1.0)
    joints, found = at_reset.copy(), []
    for _ in range(120):
        target = rng.uniform(limits.box_low + 0.01, limits.box_high - 0.01)
        for _ in range(12):
            pose = kinematics.pose(joints)
            step = np.clip(target - pose.position, -0.04, 0.04)
            joints = joints + ik.solve(joints, np.zeros(7), step / 0.1, 0.1) * 0.1
        inverse = np.linalg.pinv(kinematics.jacobian(joints), rcond=1e-2)
        found.append((joints.copy(), inverse[:, :3]))
    return found


def variants(limits):
    """Return limits of several shapes, the guard at 20 Hz."""
    slow = replace(limits, period=0.05, joints_timeout=0.35, action_timeout=0.35)
    tight = replace(slow, max_speed=0.05, max_acceleration=0.6, joint_velocity_scale=0.1)
    fast = replace(slow, max_speed=0.25, max_acceleration=2.5, hand_error=0.03)
    return slow, tight, fast, replace(slow, max_speed=0.0), limits


def sequences(starts, limits, n):
    """Yield (limits, interface, record) of n random sequences."""
    rng = np.random.default_rng(1)
    shapes, kinematics = variants(limits), starts[1]
    for _ in range(n):
        joints, steer = starts[0][rng.integers(len(starts[0]))]
        shape = shapes[rng.choice(len(shapes), p=[0.4, 0.2, 0.25, 0.05, 0.1])]
        here = kinematics.pose(joints).position
        if rng.random() < 0.2:  # a box that is just around the hand
            room = rng.uniform(0.0, 0.03, size=(2, 3))
            shape = replace(shape, box_low=here - room[0], box_high=here + room[1])
        interface = str(rng.choice(['trajectory', 'trajectory', 'velocity']))
        world = World(rng, shape, kinematics, joints, steer, interface)
        yield shape, interface, world.run(14, fault_rate=rng.choice([0.0, 0.03, 0.15]))


@pytest.fixture(scope='module')
def findings(starts, kinematics, limits):
    """Run all sequences once; return by how much each rule was broken at worst."""
    worst = {}

    def note(name, excess):
        worst[name] = max(worst.get(name, -np.inf), float(np.max(excess)))

    moved = 0
    for shape, interface, record in sequences((starts, kinematics), limits, N_SEQUENCES):
        joints, velocities = np.array(record.joints), np.array(record.velocities)
        hands, speeds = np.array(record.hands), np.array(record.hand_velocities)
        low, high = shape.joint_range(kinematics.arm)
        dt = shape.period
        note('box', np.maximum(shape.box_low - hands, hands - shape.box_high))
        note('speed', np.linalg.norm(speeds, axis=1) - shape.max_speed)
        ramped = ~np.array(record.halted)
        changes = np.diff(speeds, axis=0, prepend=np.zeros((1, 3)))[ramped]
        note(
            'acceleration',
            np.append(np.linalg.norm(changes, axis=1) / dt, 0.0) - shape.max_acceleration,
        )
        note('joints', np.maximum(low - joints, joints - high))
        allowed = shape.joint_velocity_scale * kinematics.arm.joint_velocity
        note('joint speed', np.abs(velocities) - allowed)
        changes = np.diff(velocities, axis=0, prepend=np.zeros((1, 7)))[ramped]
        changes = np.vstack([changes, np.zeros(7)])
        note('joint acceleration', np.abs(changes) / dt - kinematics.arm.joint_acceleration)
        note('finite', ~np.isfinite(np.hstack([joints, velocities, hands, speeds])))
        note('forward', np.abs(kinematics.path(joints[-1:])[0] - hands[-1:]))
        if interface == 'trajectory':
            note('rush', [*record.rush, -np.inf])
        note('latched', ticks_to_rest(record.latched, record.moving) - shape.stop_ticks)
        since, moving = np.array(record.ticks_since_accept), np.array(record.moving)
        silent = moving & (since * dt > shape.action_timeout)
        note('silence', silent)
        moved += bool(np.linalg.norm(hands[-1] - hands[0]) > 1e-3)
    worst['moved'] = moved
    return worst


@pytest.mark.parametrize(
    'rule',
    ['box', 'speed', 'acceleration', 'joints', 'joint speed', 'joint acceleration', 'forward'],
)
def test_commands_keep_the_limit(findings, rule):
    assert findings[rule] <= TOLERANCE


def test_commands_are_finite(findings):
    assert findings['finite'] == 0.0


def test_a_position_interface_is_never_sent_faster_than_the_commanded_velocities(findings):
    assert findings['rush'] <= TOLERANCE


def test_every_latched_stop_stands_within_the_stop_time_and_nothing_moves_after(findings):
    assert findings['latched'] < 0.0


def test_nothing_moves_once_the_last_command_is_older_than_its_watchdog(findings):
    assert findings['silence'] == 0.0


def test_the_sequences_do_move_the_arm(findings):
    assert findings['moved'] > N_SEQUENCES / 4
