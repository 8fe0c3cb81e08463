"""The guard's numbers: where each limit begins, and what its reports say of it."""

from dataclasses import replace
import math
from pathlib import Path
import re

import numpy as np
import pytest

from lpgftw_ros.deploy.arm.kinematics import velocity_bounds
from lpgftw_ros.deploy.safety.guard import SafetyGuard
from lpgftw_ros.deploy.safety.limits import Nearness
from lpgftw_ros.deploy.safety.motion import INTERFACES, SafeMotion
from lpgftw_ros.deploy.safety.report import Finding, Level, Mode
from lpgftw_ros.deploy.safety.watch import Following, Watch
from lpgftw_ros.errors import InvalidConfig

from .test_safety_guard import Cell

ROOT = Path(__file__).resolve().parents[3]
TOOL_DOWN = np.array([0.0, 0.0, -1.0])


@pytest.fixture
def cell(kinematics, limits, at_reset):
    return Cell(kinematics, limits, at_reset)


@pytest.fixture
def motion(kinematics, limits, at_reset):
    motion = SafeMotion(limits, kinematics, 0.05, 'trajectory')
    assert motion.place(at_reset) is None
    return motion


# -- requests ----------------------------------------------------------------------------------


def test_a_guard_is_inactive_until_it_accepts_a_request_and_says_so(kinematics, limits, at_reset):
    guard = SafetyGuard(limits, kinematics, 'hash', 0.05)
    assert (guard.sequence, guard.report.code, guard.report.since) == (-1, 'inactive', 0.0)
    cell = Cell(kinematics, limits, at_reset)
    cell.send_action = False
    cell.run(2)
    assert (cell.guard.report.level, cell.guard.report.code) == (Level.STOPPED, 'waiting')
    assert cell.request()
    assert cell.guard.sequence == 1


@pytest.mark.parametrize(('asked', 'told'), [(5.0, 1.0), (-5.0, -1.0), (0.3, 0.3)])
def test_the_gripper_stays_between_open_and_closed(cell, asked, told):
    cell.command = replace(cell.command, gripper=asked)
    assert cell.run(2).gripper == told


def test_a_latched_guard_stays_latched_when_it_is_deactivated(cell):
    cell.guard.emergency_stop(True, cell.now)
    cell.guard.deactivate(cell.now)
    assert (cell.guard.mode, cell.guard.report.level) == (Mode.LATCHED, Level.LATCHED)


def test_a_deadman_that_is_no_longer_heard_stops_the_arm_in_its_time(kinematics, limits, at_reset):
    cell = Cell(kinematics, replace(limits, deadman_timeout=0.5), at_reset)
    cell.guard.deadman(True, cell.now)
    assert cell.run(5).moving
    assert not cell.run(cell.ticks(0.5) - 5).moving
    assert (cell.guard.report.code, cell.guard.mode) == ('deadman', Mode.RUNNING)


def test_a_sleep_as_long_as_a_gap_may_be_is_forgiven(cell):
    cell.run(5)
    cell.slept = cell.limits.longest_gap
    cell.run(1)
    assert cell.guard.mode is Mode.RUNNING
    cell.slept = math.nextafter(2.0 * cell.slept, math.inf)
    cell.run(1)
    report = cell.guard.report
    assert (report.code, report.limit, report.unit) == ('clock', cell.limits.longest_gap, 's')
    assert report.text.endswith('(joints_timeout)')


# -- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', ['joints', 'object', 'action', 'tracking', 'deadman'])
def test_a_time_out_is_longer_than_a_stop_and_a_period(limits, name):
    shortest = limits.stop_within + limits.period
    with pytest.raises(InvalidConfig, match=f'{name}_timeout'):
        replace(limits, **{f'{name}_timeout': shortest})
    replace(limits, **{f'{name}_timeout': math.nextafter(shortest, 1.0)})


def test_a_margin_that_leaves_one_joint_no_range_is_refused(limits, arm):
    high = arm.joint_high.copy()
    high[3] = arm.joint_low[3] + 2.0 * limits.joint_margin
    limits.joint_range(replace(arm, joint_high=high + 1e-9))
    high[3] -= 1e-9
    with pytest.raises(InvalidConfig, match='no range'):
        limits.joint_range(replace(arm, joint_high=high))


@pytest.mark.parametrize(
    ('value', 'low', 'high', 'share'),
    [(3.0, 2.0, 4.0, 0.0), (4.0, 2.0, 4.0, 1.0), (1.0, 2.0, 4.0, 2.0), (2.0, 2.0, 2.0, math.inf)],
)
def test_nearness_counts_from_the_middle_of_what_is_allowed(value, low, high, share):
    assert Nearness('box', 'hand x', value, low, high, 'm').share == share


def test_an_arm_takes_one_of_three_kinds_of_commands():
    assert set(INTERFACES) == {'velocity', 'trajectory', 'twist'}


def test_levels_are_the_numbers_of_the_message():
    text = (ROOT / 'lpgftw_interfaces' / 'msg' / 'SafetyState.msg').read_text()
    constants = dict(re.findall(r'^uint8 (\w+)=(\d+)', text, flags=re.MULTILINE))
    assert {name: int(number) for name, number in constants.items()} == {
        level.name: level.value for level in Level
    }


# -- motion ------------------------------------------------------------------------------------


def test_a_joint_is_held_to_its_share_of_the_arms_speed(kinematics, limits, at_reset):
    cell, turn = Cell(kinematics, limits, at_reset), np.zeros(7)
    most = limits.joint_velocity_scale * kinematics.arm.joint_velocity[-1]
    turn[-1] = 1.5 * most  # in place: the hand stands
    cell.command = replace(cell.command, joint_velocities=turn, hand_velocity=np.zeros(3))
    command, report = cell.run(12), cell.guard.report
    assert command.joint_velocities[-1] == pytest.approx(most)
    found = (report.code, report.value, report.limit, report.unit)
    assert found == ('joint_speed', pytest.approx(1.5 * most), pytest.approx(most), 'rad/s')
    assert report.text.endswith('(joint_velocity_scale)')


def test_a_request_that_is_too_fast_is_slowed_to_a_little_below_the_limit(cell):
    cell.push(np.array([0.0, 0.0, 0.2]))
    speed = np.linalg.norm(cell.run(12).hand_velocity)
    assert speed == pytest.approx(0.97 * cell.limits.max_speed, rel=0.01)


def test_a_request_just_at_the_speed_limit_passes(kinematics, limits, at_reset):
    cell = Cell(kinematics, limits, at_reset)
    ahead = at_reset + cell.command.joint_velocities * limits.period
    way = kinematics.pose(ahead).position - kinematics.pose(at_reset).position
    step = way / limits.period
    speed = math.sqrt(step @ step)
    cell = Cell(kinematics, replace(limits, max_speed=speed, jam_factor=100.0), at_reset)
    np.testing.assert_array_equal(cell.run(1).hand_velocity, step)
    assert cell.guard.report.code == 'ok'


@pytest.mark.parametrize(('speed', 'code'), [(0.081, 'ok'), (0.087, 'acceleration')])
def test_a_request_a_twentieth_above_the_acceleration_limit_is_reported(
    kinematics, limits, at_reset, speed, code
):
    cell = Cell(kinematics, limits, at_reset, command_period=0.04)
    cell.push(np.array([0.0, 0.0, speed]))  # 1.01 and 1.09 of what 0.04 s can do
    cell.run(1)
    assert cell.guard.report.code == code
    if code == 'acceleration':
        assert cell.guard.report.value == pytest.approx(speed / 0.04, rel=0.01)


def test_a_velocity_interface_follows_the_measured_joints_by_a_fifth(kinematics, limits, at_reset):
    motion = SafeMotion(limits, kinematics, 0.05, 'velocity')
    motion.place(at_reset)
    motion.advance(np.zeros(7), at_reset + 1e-3)
    np.testing.assert_allclose(motion.motion.joints, at_reset + 0.2e-3, rtol=0.0, atol=1e-12)


def test_what_forbids_a_motion_of_joints_is_told_with_value_and_limit(motion, arm, at_reset):
    high = arm.joint_high - 0.1
    far, fast = at_reset.copy(), np.zeros(7)
    far[2] = high[2] + 0.25
    found = motion._joint_fault(far, fast)
    told = ('joint_limit', pytest.approx(far[2]), pytest.approx(high[2]), 'rad', 'joint_margin')
    assert (found.code, found.value, found.limit, found.unit, found.parameter) == told
    fast[2] = 1.1 * arm.joint_acceleration[2] * 0.0325
    found = motion._joint_fault(at_reset, fast)
    most = arm.joint_acceleration[2]
    assert (found.code, found.unit, found.parameter) == (
        'joint_acceleration',
        'rad/s2',
        'joint_acceleration',
    )
    assert (found.value, found.limit) == pytest.approx((1.1 * most, most))
    found = motion._jam_fault(at_reset, np.ones(7))
    assert (found.limit, found.unit) == (pytest.approx(1.35 * 0.1), 'm/s')
    assert motion._jam_fault(at_reset, np.full(7, 1e-4)) is None


def test_without_a_safe_way_to_obey_the_motion_follows_its_ramp(motion, at_reset, monkeypatch):
    turn = np.zeros(7)
    turn[-1] = 0.1  # in place
    assert motion.advance(turn, at_reset) is None
    n, velocity = motion._n, motion.motion.velocity
    monkeypatch.setattr(motion, '_check', lambda start, trial: (Finding('tilt'), None))
    for left in (n - 1, n - 2):
        assert motion.advance(turn, at_reset).code == 'tilt'
        np.testing.assert_allclose(motion.motion.velocity, velocity * left / n)


def straight(motion, speed):
    """Return hand positions that go up at one speed to the end of the ramp, and its tools."""
    n = motion._n + 2
    points = motion.motion.hand + np.outer(np.arange(n), [0.0, 0.0, speed * motion._dt])
    return points, np.tile(TOOL_DOWN, (n, 1))


@pytest.mark.parametrize(
    ('speed', 'code', 'value'),
    [(0.06, None, None), (0.07, 'acceleration', 0.07 / 0.0325), (0.11, 'speed', 0.11)],
)
def test_one_tick_of_a_ramp_decides_about_speed_and_acceleration(motion, speed, code, value):
    found = motion._hand_fault(*straight(motion, speed))
    assert (found and found.code) == code
    if found:
        assert found.value == pytest.approx(value)


@pytest.mark.parametrize('tilt', [0.34, 0.36, 3.0])
def test_the_tool_may_tilt_as_far_as_its_limit(motion, tilt):
    points, tools = straight(motion, 0.0)
    tools[3] = [math.sin(tilt), 0.0, -math.cos(tilt)]
    found = motion._hand_fault(points, tools)
    if tilt < 0.35:
        assert found is None
    else:
        assert (found.code, found.value, found.limit) == ('tilt', pytest.approx(tilt), 0.35)


@pytest.mark.parametrize('sign', [-1.0, 1.0])
def test_joints_driven_as_fast_as_allowed_reach_their_margin_and_do_not_pass_it(arm, sign):
    joints, velocity, dt = 0.5 * (arm.joint_low + arm.joint_high), np.zeros(7), 0.02
    for _ in range(600):
        low, high = velocity_bounds(arm, joints, velocity, dt, 0.1, 1.0)
        velocity = high if sign > 0.0 else low
        joints = joints + velocity * dt
        assert (np.abs(velocity) <= arm.joint_velocity).all()
    gap = arm.joint_high - joints if sign > 0.0 else joints - arm.joint_low
    assert (gap >= 0.1 - 1e-9).all()
    np.testing.assert_allclose(gap, 0.1, atol=0.01)


# -- what is measured --------------------------------------------------------------------------


def test_an_input_may_step_as_far_as_its_jump_limit():
    watch = Watch('stale_object', 1.0, 0.25, 'm', 'object')
    watch.take(np.zeros(3), 0.0)
    assert watch.fault(np.array([0.0, -0.25, 0.0]), 3, True) is None
    found = watch.fault(np.array([0.0, -0.5, 0.0]), 3, True)
    assert found == Finding('jump', 0.5, 0.25, 'm', 'object_jump')
    assert watch.fault(np.array([0.0, -0.5, 0.0]), 3, False) is None


def test_a_deviation_is_the_distance_to_the_way_of_the_last_moments():
    following = Following(tolerance=10.0, delay=1.5, forget=0.0)
    following.start(np.zeros(2), np.zeros(2), 10.0)
    for time in (11.0, 12.0, 13.0):
        following.command(np.array([time - 10.0, 0.0]), time, kept=100.0)
    for x, nearest, deviation in ((2.25, 12.25, 0.3), (1.5, 11.5, 0.3), (0.5, 11.5, 1.0440307)):
        assert following.deviation(np.array([x, 0.3]), 13.0) == pytest.approx(deviation)
        assert following.nearest == pytest.approx(nearest)
    np.testing.assert_allclose(following.since(11.25), [1.75, 0.0])
    np.testing.assert_allclose(following.since(9.0), [3.0, 0.0])
    np.testing.assert_allclose(following.since(14.0), [0.0, 0.0])
