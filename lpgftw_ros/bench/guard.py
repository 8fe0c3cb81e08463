"""`lpgftw bench guard`: the safety guard against an arm that fails or lies.

Each sequence drives the guard and a kinematic arm behind real delays, then lets one thing go
wrong. What counts is the true hand of the arm, never the commanded one: how far it leaves the box,
how fast it is, and when it stands. Motion imposed from outside is not counted.

Silence, stops and stalls count from the moment they happen. An arm that does something else than
it is told looks healthy at first. So a healthy twin hears the same commands, and such a fault
shows from the moment its report is further than the arm's resolution (`hand_error`,
`tracking_error`) from all that a healthy arm could report. How long that takes is in the table.
"""

import argparse
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
import json
import math
from multiprocessing import get_context
from typing import Any

import numpy as np

from lpgftw_ros import arguments
from lpgftw_ros.deploy.arm.env import load_chain
from lpgftw_ros.deploy.arm.kinematics import ArmKinematics, DifferentialIK
from lpgftw_ros.deploy.arm.sawyer import load_arm
from lpgftw_ros.deploy.controller import TOOL_DOWN
from lpgftw_ros.deploy.safety.guard import SafetyGuard
from lpgftw_ros.deploy.safety.limits import load_limits, SafetyLimits
from lpgftw_ros.deploy.safety.motion import INTERFACES, SHORTEST
from lpgftw_ros.deploy.safety.report import Mode
from lpgftw_ros.deploy.safety.watch import ArmCommand, FORGET, SafeCommand
from lpgftw_ros.learning.arrays import Array

FAULTS = (
    'none',
    'blocked',
    'jammed',
    'frozen',
    'delayed',
    'offset',
    'scaled',
    'displaced',
    'silent',
    'unasked',
    'stalled',
    'stopped',
    'stopped_displaced',
)
AT_ONCE = ('silent', 'unasked', 'stalled', 'stopped', 'stopped_displaced')
"""Faults that count from the moment they happen."""
STAYS = ('blocked', 'jammed', 'frozen', *AT_ONCE)
"""Faults that must end in a latched stop once they show."""
EXCURSION, OVERSPEED, CREEP = 0.02, 1.5, 1e-3
"""What the true hand may do: m outside the box, multiples of `max_speed`, m once it stands."""
STILL = 0.005
"""m/s. A hand slower than this stands."""
COMMAND_PERIOD = 0.05
AT_RESET = np.array([1.8893, -0.5758, -0.9767, 1.642, 0.9429, 1.0437, 2.2928])
"""Joints after a Meta-World reset, the hand near (0, 0.6, 0.2)."""
_STEP = 0.011
"""Longest step of the arm, s; it reports once in each."""
_LATENCY, _LAG, _COMMAND_TIMEOUT = 0.02, 0.03, 0.2
_DELAY = 2.0 * _LATENCY + _LAG
"""s from a command to the report of its motion by a healthy arm."""
_QUEUE = 5
"""Reports that wait for a guard that is not called; older ones are lost."""
_STOPPED_BEFORE = 0.6
"""s between a stop and the displacement of the stopped arm."""
_OBJECT = np.array([0.0, 0.6, 0.02])


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong at a time."""

    kind: str
    at: float
    joints: Array
    """Mask of blocked joints, or an offset or displacement. Shape (j,)."""
    size: float = 0.0
    """Delay in s, factor, or duration of a displacement or a stall in s."""
    of_report: bool = True
    """Whether a factor spoils the report or the motion."""
    stamped: bool = True
    """Whether frozen reports carry new stamps."""


class FaultyArm:
    """A kinematic arm behind delays: it obeys late, lags, and reports late."""

    def __init__(
        self, kinematics: ArmKinematics, interface: str, joints: Array, fault: Fault | None
    ) -> None:
        self._kinematics, self._interface, self._fault = kinematics, interface, fault
        self.joints: Array = joints.copy()
        self._target: Array = joints.copy()
        self._setpoint: Array = joints.copy()
        self._velocity: Array = np.zeros(len(joints))
        self._pace: Array = np.zeros(len(joints))
        self._ordered = -math.inf
        self._orders: deque[tuple[float, SafeCommand]] = deque()
        self._past: deque[tuple[float, Array]] = deque(maxlen=100)
        self._reports: deque[tuple[float, Array, Array, float]] = deque()
        self._began: Array | None = None
        self.imposed = False
        """Whether something outside moves the arm now."""

    def obey(self, command: SafeCommand, now: float) -> None:
        """Put a command on its way to the servos."""
        if not command.silent:
            self._orders.append((now + _LATENCY, command))

    def step(self, now: float, dt: float, noise: Array) -> None:
        """Move for dt seconds up to now and put a report on its way."""
        while self._orders and self._orders[0][0] <= now:
            self._accept(self._orders.popleft()[1], now)
        fault = self._fault if self._fault is not None and now >= self._fault.at else None
        if fault is not None and self._began is None:
            self._began = self.joints.copy()
        before, share = self.joints, 1.0 - math.exp(-dt / _LAG)
        if self._interface == 'trajectory':
            gap = self._target - self._setpoint
            self._setpoint = self._setpoint + np.clip(self._pace * dt, -np.abs(gap), np.abs(gap))
            self.joints = before + share * (self._setpoint - before)
        else:
            silent = now - self._ordered > _COMMAND_TIMEOUT
            wanted = np.zeros(len(before)) if silent else self._pace
            self._velocity = self._velocity + share * (wanted - self._velocity)
            self.joints = before + self._velocity * dt
        if fault is not None:
            self._suffer(fault, before, now, dt)
        self._past.append((now, self.joints))
        self._report(fault, now, noise)

    def arrived(self, now: float) -> Iterator[tuple[Array, Array, float]]:
        """Yield the reports that arrive until now, without and with noise, and their stamps."""
        while self._reports and self._reports[0][0] <= now:
            yield self._reports.popleft()[1:]

    def _accept(self, command: SafeCommand, now: float) -> None:
        self._ordered = now
        if self._interface == 'velocity':
            self._pace = command.joint_velocities
        elif self._interface == 'twist':
            self._pace = self._kinematics.least_velocity(self.joints, command.hand_velocity)
        else:
            self._target = command.joints
            self._pace = (command.joints - self._setpoint) / command.seconds

    def _suffer(self, fault: Fault, before: Array, now: float, dt: float) -> None:
        if fault.kind in ('blocked', 'jammed'):
            held = fault.joints > 0.0
            self.joints = np.where(held, before, self.joints)
            self._velocity = np.where(held, 0.0, self._velocity)
        elif fault.kind == 'scaled' and not fault.of_report:
            self.joints = before + fault.size * (self.joints - before)
        elif fault.kind in ('displaced', 'stopped_displaced'):
            self.imposed = now < fault.at + fault.size
            if self.imposed:
                # Drives are off or give way: the set-point goes with the arm.
                self.joints = before + fault.joints * (dt / fault.size)
                self._setpoint, self._velocity = self.joints, np.zeros(len(before))
                self._target, self._pace = self.joints, np.zeros(len(before))

    def _report(self, fault: Fault | None, now: float, noise: Array) -> None:
        stamp, joints = now, self.joints
        if fault is not None and fault.kind == 'silent':
            return
        if fault is not None and self._began is not None:
            if fault.kind == 'frozen':
                joints = self._began
                stamp, noise = (now, noise) if fault.stamped else (fault.at, 0.0 * noise)
            elif fault.kind == 'delayed':
                late = [q for t, q in self._past if t <= now - fault.size]
                joints = late[-1] if late else self._past[0][1]
            elif fault.kind == 'offset':
                joints = joints + fault.joints
            elif fault.kind == 'scaled' and fault.of_report:
                joints = self._began + fault.size * (joints - self._began)
        self._reports.append((now + _LATENCY, joints, joints + noise, stamp))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the true hand did in one sequence."""

    fault: str
    excursion: float
    """Furthest outside the box by the guard's doing, m."""
    speed: float
    """Fastest by the guard's doing, m/s."""
    hidden: float
    """s from the fault to the moment it shows; 0 if it shows at once or never."""
    rest: float
    """s from the moment the fault shows to standstill; 0 if it never shows."""
    creep: float
    """Motion after standstill while latched, m."""
    latched: bool
    late: bool
    """Whether the arm did not come to rest in its watchdog time."""
    unnoticed: bool
    """Whether a fault that shows and stays did not latch, although the arm had been started."""


class Sequence:
    """One guard, one arm, one fault."""

    def __init__(
        self,
        rng: np.random.Generator,
        kinematics: ArmKinematics,
        limits: SafetyLimits,
        interface: str,
        start: Array,
        kind: str,
    ) -> None:
        self._rng, self._kinematics, self._limits = rng, kinematics, limits
        self._interface, self._now, self._sequence = interface, 0.0, 0
        velocities = interface != 'trajectory'
        shortest = limits.period * (SHORTEST if velocities else 1.0)
        self._guard = SafetyGuard(limits, kinematics, '', COMMAND_PERIOD, interface, shortest)
        self._fault = self._draw_fault(kind, start)
        faulty = None if kind in ('none', 'unasked', 'stalled', 'stopped') else self._fault
        self._arm = FaultyArm(kinematics, interface, start, faulty)
        self._twin = FaultyArm(kinematics, interface, start, None)
        self._compared = kind != 'none' and kind not in AT_ONCE
        self._noise = float(rng.choice([0.0, 4e-4, 1.6e-3]))
        self._seen, self._told, self._twin_told = start.copy(), start.copy(), start.copy()
        self._push = self._draw_push()
        self._dither = float(rng.choice([0.0, 0.0, 0.05]))
        self._rows: list[tuple[float, Array, Array, Array, bool, bool]] = []
        self._started = False

    def run(self) -> Outcome:
        """Drive until well after the fault."""
        guard, rng = self._guard, self._rng
        for _ in range(4):
            self._pass(0.01)
        guard.object_pose(_OBJECT, self._now)
        guard.activate(self._now)
        fault, end, ask = self._fault, self._fault.at + 1.3, self._now
        while self._now < end:
            if guard.mode is Mode.LATCHED:
                over = fault.at + fault.size * fault.kind.endswith('displaced')
                end = min(end, max(self._now, over) + 0.6)
            asked = fault.kind != 'unasked' or self._now < fault.at
            if self._now >= ask and asked:
                self._ask()
                ask += COMMAND_PERIOD
            if fault.kind.startswith('stopped') and self._now >= self._begins:
                guard.emergency_stop(True, self._now)
            guard.object_pose(_OBJECT, self._now)
            command = guard.tick(self._now)
            self._started |= guard.mode is Mode.RUNNING
            self._arm.obey(command, self._now)
            if self._compared:
                self._twin.obey(command, self._now)
            share = 1.0 if self._interface == 'trajectory' else rng.uniform(SHORTEST, 1.0)
            self._pass(share * self._limits.period)
            if fault.kind == 'stalled' and fault.at <= self._now < fault.at + 0.1:
                self._pass(fault.size, heard=False)
        return self._judge()

    @property
    def _begins(self) -> float:
        """When the thing happens that has to stop the arm, s."""
        early = _STOPPED_BEFORE if self._fault.kind == 'stopped_displaced' else 0.0
        return self._fault.at - early

    def _pass(self, seconds: float, heard: bool = True) -> None:
        """Let time pass for the arm and its twin; reports come in, if the guard is called."""
        n = math.ceil(seconds / _STEP)
        waiting: deque[tuple[Array, Array, float]] = deque(maxlen=_QUEUE)
        for i in range(n):
            self._now += seconds / n
            noise = self._noise * self._rng.standard_normal(len(self._seen))
            self._arm.step(self._now, seconds / n, noise)
            if self._compared:
                self._twin.step(self._now, seconds / n, noise)
            waiting.extend(self._arm.arrived(self._now))
            while waiting and (heard or i == n - 1):
                self._told, self._seen, stamp = waiting.popleft()
                self._guard.joint_state(self._seen, self._now, stamp)
            for joints, _, _ in self._twin.arrived(self._now):
                self._twin_told = joints
            latched = self._guard.mode is Mode.LATCHED
            row = (self._now, self._arm.joints, self._told, self._twin_told)
            self._rows.append((*row, self._arm.imposed, latched))

    def _ask(self) -> None:
        """Ask for a hand velocity from where the arm is reported."""
        rng = self._rng
        if rng.random() < 0.03:
            self._push = self._draw_push()
        push = self._push + self._dither * rng.standard_normal(3)
        velocities = self._kinematics.least_velocity(self._seen, push)
        most = self._limits.joint_velocity_scale * self._kinematics.arm.joint_velocity
        share = min(1.0, float(np.min(most / np.maximum(np.abs(velocities), 1e-9))))
        velocities, push = share * velocities, share * push
        self._sequence += 1
        self._guard.request(
            ArmCommand(self._sequence, '', self._seen, velocities, push, 0.0, 1.0), self._now
        )

    def _draw_push(self) -> Array:
        """Draw a hand velocity, as a rule towards the nearest wall."""
        rng, limits = self._rng, self._limits
        hand = self._kinematics.pose(self._seen).position
        room = np.concatenate([hand - limits.box_low, limits.box_high - hand])
        push = rng.normal(size=3)
        if rng.random() < 0.6:
            wall = int(np.argmin(room))
            push *= 0.3
            push[wall % 3] = -1.0 if wall < 3 else 1.0
        speed = limits.max_speed * rng.choice([0.05, 0.3, 0.6, 0.95, 1.1])
        return np.asarray(push * (speed / float(np.linalg.norm(push))))

    def _draw_fault(self, kind: str, start: Array) -> Fault:
        rng, n = self._rng, len(start)
        at = float(rng.uniform(0.3, 0.9)) + _STOPPED_BEFORE * (kind == 'stopped_displaced')
        joints, size, of_report = np.zeros(n), 0.0, True
        if kind == 'blocked':
            joints = np.ones(n)
        elif kind == 'jammed':
            joints = (rng.random(n) < 0.4).astype(float)
        elif kind == 'delayed':
            size = float(rng.uniform(0.1, 0.6))
        elif kind == 'stalled':
            size = float(rng.uniform(0.12, 0.6))
        elif kind == 'scaled':
            size = float(rng.choice([rng.uniform(0.2, 0.8), rng.uniform(1.2, 1.45)]))
            of_report = self._interface == 'trajectory' or bool(rng.random() < 0.5)
        elif kind in ('offset', 'displaced', 'stopped_displaced'):
            joints = rng.normal(size=n)
            joints *= rng.choice([0.01, 0.04, 0.15]) / float(np.max(np.abs(joints)))
            size = float(rng.uniform(0.2, 0.5))
        return Fault(kind, at, joints, size, of_report, bool(rng.random() < 0.7))

    def _judge(self) -> Outcome:
        times = np.array([row[0] for row in self._rows])
        imposed = np.array([row[4] for row in self._rows])
        latched = np.array([row[5] for row in self._rows])
        hands = self._kinematics.path(np.array([row[1] for row in self._rows]))[0]
        limits, kind = self._limits, self._fault.kind
        steps = np.linalg.norm(np.diff(hands, axis=0), axis=1)
        speeds = np.append(0.0, steps / np.diff(times))
        own = ~imposed & ~np.append(False, imposed[:-1])
        outside = np.maximum(limits.box_low - hands, hands - limits.box_high).max(axis=1)
        outside = np.maximum(outside, 0.0)
        if imposed.any():  # what the hand was carried out by is not the guard's
            last = int(np.flatnonzero(imposed)[-1])
            outside[last:] = np.maximum(outside[last:] - outside[last], 0.0)
            outside[imposed] = 0.0
        shows, watchdog = self._shows(times)
        moving = own & (speeds > STILL) & (times > shows)
        rest = float(times[moving][-1] - shows) if moving.any() else 0.0
        creep = 0.0
        if latched.any():
            began = times[np.flatnonzero(latched)[0]]
            settled = (times > began + limits.stop_within) & latched & own
            creep = float(steps[settled[1:]].sum())
        stays = kind in STAYS and self._started and shows + watchdog < times[-1]
        return Outcome(
            fault=kind,
            excursion=float(outside.max()),
            speed=float(speeds[own].max()),
            hidden=shows - self._begins if math.isfinite(shows) else 0.0,
            rest=rest,
            creep=creep,
            latched=bool(latched[-1]),
            late=bool(rest > watchdog),
            unnoticed=bool(stays and not latched[-1]),
        )

    def _shows(self, times: Array) -> tuple[float, float]:
        """Return when the fault shows in what is reported, and the watchdog that starts then."""
        limits, fault = self._limits, self._fault
        if fault.kind.startswith('stopped'):
            return self._begins, limits.stop_within
        if fault.kind in ('silent', 'stalled') or (fault.kind == 'frozen' and not fault.stamped):
            return fault.at, limits.joints_timeout
        if fault.kind == 'unasked':
            return fault.at, limits.action_timeout
        if not self._compared:
            return math.inf, math.inf
        told, twin = (np.array([row[i] for row in self._rows]) for i in (2, 3))
        hands = [self._kinematics.path(each)[0] for each in (told, twin)]
        shows = self._differ(times, hands[0], hands[1], limits.hand_error)
        if self._interface != 'twist':  # there the arm chooses its joints itself
            shows = min(shows, self._differ(times, told, twin, limits.tracking_error))
        return shows, limits.tracking_timeout

    def _differ(self, times: Array, told: Array, twin: Array, tolerance: float) -> float:
        """Return when what is told is nothing a healthy arm could tell; infinite if never.

        A healthy arm is as fast as the twin or obeys later, up to `tracking_delay`, or at once.
        Where velocities are commanded, its pace may be off by `FORGET`.
        """
        first = int(np.searchsorted(times, self._fault.at))
        pace = 0.0 if self._interface == 'trajectory' else FORGET
        earlier, later = self._limits.tracking_delay - _DELAY, _DELAY
        for i in range(first, len(times)):
            near = twin[(times >= times[i] - earlier) & (times <= times[i] + later)]
            if _distance(told[i], twin[first - 1], near, pace) > tolerance:
                return float(times[i])
        return math.inf


def _distance(point: Array, began: Array, ends: Array, pace: float) -> float:
    """Return the distance of a point to the nearest way's end, each up to `pace` off."""
    ways = ends - began  # (n, k)
    sizes = np.maximum(np.square(ways).sum(axis=1), 1e-18)
    shares = np.clip(((point - began) * ways).sum(axis=1) / sizes, 1.0 - pace, 1.0 + pace)
    gaps = point - began - shares[:, None] * ways
    return math.sqrt(np.square(gaps).sum(axis=1).min())


def kinematics() -> ArmKinematics:
    """Return the Sawyer's kinematics."""
    arm = load_arm()
    return ArmKinematics(load_chain('', arm), arm)


def starts(chain: ArmKinematics, limits: SafetyLimits, count: int) -> list[Array]:
    """Return joints all over the box, many of them near a wall, the tool down."""
    rng, ik = np.random.default_rng(0), DifferentialIK(chain, TOOL_DOWN, AT_RESET, 0.1, 1.0)
    joints, found = AT_RESET.copy(), []
    for _ in range(count):
        target = rng.uniform(limits.box_low + 0.02, limits.box_high - 0.02)
        if rng.random() < 0.6:
            axis, low = int(rng.integers(3)), bool(rng.random() < 0.5)
            gap = rng.uniform(0.01, 0.06)
            target[axis] = limits.box_low[axis] + gap if low else limits.box_high[axis] - gap
        for _ in range(25):
            step = np.clip(target - chain.pose(joints).position, -0.04, 0.04)
            joints = joints + ik.solve(joints, np.zeros(7), step / 0.1, 0.1) * 0.1
        if np.linalg.norm(target - chain.pose(joints).position) < 0.01:
            found.append(joints.copy())
    return found


def outcomes(interface: str, count: int, seed: int, first: int = 0) -> Iterator[Outcome]:
    """Yield the outcomes of sequences first .. first + count; each has a seed of its own."""
    chain, limits, places = _cell()
    for i in range(first, first + count):
        rng = np.random.default_rng([seed, INTERFACES.index(interface), i])
        start, kind = places[rng.integers(len(places))], FAULTS[i % len(FAULTS)]
        yield Sequence(rng, chain, limits, interface, start, kind).run()


@cache
def _cell() -> tuple[ArmKinematics, SafetyLimits, list[Array]]:
    """Return the Sawyer, its limits and where its sequences start."""
    chain, limits = kinematics(), load_limits()
    return chain, limits, starts(chain, limits, 150)


def table(found: list[Outcome], limits: SafetyLimits) -> dict[str, dict[str, Any]]:
    """Return the worst of each fault and how often a promise was broken."""
    rows: dict[str, dict[str, Any]] = {}
    for kind in FAULTS:
        mine = [each for each in found if each.fault == kind]
        if mine:
            rows[kind] = {
                'sequences': len(mine),
                'excursion_mm': round(1e3 * max(each.excursion for each in mine), 1),
                'speed_m_s': round(max(each.speed for each in mine), 3),
                'hidden_s': round(max(each.hidden for each in mine), 3),
                'rest_s': round(max(each.rest for each in mine), 3),
                'creep_mm': round(1e3 * max(each.creep for each in mine), 2),
                'latched': sum(each.latched for each in mine),
                'broken': sum(bool(broken(each, limits)) for each in mine),
            }
    return rows


def broken(outcome: Outcome, limits: SafetyLimits) -> str:
    """Return the promise a sequence broke; empty if none."""
    if outcome.excursion > EXCURSION:
        return 'excursion'
    if outcome.speed > OVERSPEED * limits.max_speed:
        return 'speed'
    if outcome.late:
        return 'rest'
    if outcome.creep > CREEP:
        return 'creep'
    if outcome.unnoticed:
        return 'unnoticed'
    return 'latched' if outcome.fault == 'none' and outcome.latched else ''


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    parser.add_argument(
        '--count', type=arguments.count, default=1000, help='sequences per interface'
    )
    parser.add_argument('--seed', type=int, default=0, help='seed of the sequences')
    parser.add_argument('--workers', type=arguments.count, default=1, help='processes')


def run(args: argparse.Namespace) -> int:
    """Run all sequences; print a table or one JSON object. Fail if a promise was broken."""
    limits = load_limits()
    report = {
        interface: table(_spread(interface, args.count, args.seed, args.workers), limits)
        for interface in INTERFACES
    }
    if args.json:
        print(json.dumps({'count': args.count, 'seed': args.seed, 'interfaces': report}))
    else:
        _print(report)
    rows = [row for each in report.values() for row in each.values()]
    return int(any(row['broken'] for row in rows))


def _spread(interface: str, count: int, seed: int, workers: int) -> list[Outcome]:
    size = math.ceil(count / workers)
    jobs = [(interface, min(size, count - first), seed, first) for first in range(0, count, size)]
    if workers == 1:
        return _collect(*jobs[0])
    with get_context('spawn').Pool(workers) as pool:
        return [each for part in pool.starmap(_collect, jobs) for each in part]


def _collect(interface: str, count: int, seed: int, first: int) -> list[Outcome]:
    return list(outcomes(interface, count, seed, first))


def markdown(report: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the worst of each fault as the table of docs/safety.md."""
    lines = ['| fault | ' + ' | '.join(report) + ' |', '|---' * (1 + len(report)) + '|']
    for kind in FAULTS:
        cells = (
            '{excursion_mm} mm, {speed_m_s} m/s, {hidden_s} s, {rest_s} s'.format(**rows[kind])
            for rows in report.values()
        )
        lines.append(f'| {kind} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def _print(report: dict[str, dict[str, dict[str, Any]]]) -> None:
    names = next(iter(next(iter(report.values())).values())).keys()
    print(f'{"interface":11}{"fault":18}' + ''.join(f'{name:>13}' for name in names))
    for interface, rows in report.items():
        for kind, row in rows.items():
            numbers = ''.join(f'{row[name]:>13}' for name in names)
            print(f'{interface:11}{kind:18}{numbers}')
