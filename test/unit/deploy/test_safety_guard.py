"""The guard's rules, one by one."""

from dataclasses import replace
import math

import numpy as np
import pytest

from lpgftw_ros.deploy.arm.kinematics import ArmKinematics
from lpgftw_ros.deploy.safety.guard import SafetyGuard
from lpgftw_ros.deploy.safety.limits import load_limits
from lpgftw_ros.deploy.safety.report import (
    CODES,
    Finding,
    Level,
    Mode,
    SafetyRefused,
    worst,
)
from lpgftw_ros.deploy.safety.watch import ArmCommand
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.resources import data_folder

OBJECT = np.array([0.0, 0.6, 0.02])


class Cell:
    """A guard with a perfect arm and a steady stream of messages."""

    def __init__(
        self,
        kinematics,
        limits,
        joints,
        activate=True,
        command_period=0.05,
        interface='trajectory',
    ):
        self.guard = SafetyGuard(limits, kinematics, 'hash', command_period, interface)
        self.kinematics, self.limits, self.interface = kinematics, limits, interface
        self.joints, self.now, self.sequence = joints.copy(), 10.0, 0
        self.follows, self.slept, self.sent, self.stamp, self.pace = True, 0.0, [], None, 1.0
        self.send_joints = self.send_object = self.send_action = True
        self.command = ArmCommand(0, 'hash', joints, np.zeros(7), np.zeros(3), 0.0, 1.0)
        self.push(np.array([0.0, 0.0, 0.05]))
        self.measure()
        for _ in range(2):  # an arm reports before anyone moves it
            self.measure()
        if activate:
            self.guard.activate(self.now)

    def push(self, hand_velocity):
        inverse = np.linalg.pinv(self.kinematics.jacobian(self.joints))
        velocities = inverse[:, :3] @ hand_velocity
        self.command = replace(
            self.command, joint_velocities=velocities, hand_velocity=hand_velocity
        )

    def measure(self):
        if self.send_joints:
            self.guard.joint_state(self.joints, self.now, self.stamp and self.stamp())
        if self.send_object:
            self.guard.object_pose(OBJECT, self.now)

    def request(self, **changes):
        self.sequence += 1
        command = replace(self.command, sequence=self.sequence, joint_positions=self.joints.copy())
        return self.guard.request(replace(command, **changes), self.now)

    def run(self, n_ticks):
        for _ in range(n_ticks):
            self.now += self.limits.period
            self.measure()
            if self.send_action:
                self.request()
            command = self.guard.tick(self.now, self.slept)
            if not command.silent:
                self.sent.append(command)
                if self.follows:
                    self.obey(command)
        return command

    def obey(self, command):
        moved = self.joints + self.pace * command.joint_velocities * self.limits.period
        self.joints = command.joints if self.interface == 'trajectory' else moved

    def ticks(self, seconds):
        return math.floor(seconds / self.limits.period + 1e-6)


@pytest.fixture
def cell(kinematics, limits, at_reset):
    return Cell(kinematics, limits, at_reset)


def test_a_good_command_moves_the_hand_as_asked(cell):
    command = cell.run(10)
    np.testing.assert_allclose(command.hand_velocity, [0.0, 0.0, 0.05], atol=2e-3)


def test_a_good_command_is_reported_as_ok(cell):
    cell.run(20)
    assert (cell.guard.report.level, cell.guard.report.count) == (Level.OK, 0)


def test_an_inactive_guard_never_moves(kinematics, limits, at_reset):
    cell = Cell(kinematics, limits, at_reset, activate=False)
    assert not cell.run(20).moving


@pytest.mark.parametrize(
    ('stream', 'timeout', 'code'),
    [
        ('send_joints', 'joints_timeout', 'stale_joints'),
        ('send_object', 'object_timeout', 'stale_object'),
        ('send_action', 'action_timeout', 'stale_action'),
    ],
)
def test_silence_of_an_input_stops_the_arm_within_its_watchdog_time(cell, stream, timeout, code):
    cell.run(20)
    setattr(cell, stream, False)
    command = cell.run(cell.ticks(getattr(cell.limits, timeout)))
    assert (command.moving, cell.guard.report.code) == (False, code)


def test_a_lost_link_stays_latched_when_it_is_back(cell):
    cell.run(20)
    cell.send_action = False
    cell.run(20)
    cell.send_action = True
    assert not cell.run(20).moving


def test_the_emergency_stop_stands_within_the_stop_time(cell):
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    assert not cell.run(cell.limits.stop_ticks).moving


def test_nothing_moves_after_an_emergency_stop(cell):
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    rest = cell.run(cell.limits.stop_ticks).joints
    cell.guard.emergency_stop(False, cell.now)
    np.testing.assert_array_equal(cell.run(50).joints, rest)


def test_reset_is_refused_while_the_button_is_pressed(cell):
    cell.guard.emergency_stop(True, cell.now)
    cell.run(10)
    with pytest.raises(SafetyRefused, match='pressed: button'):
        cell.guard.reset(cell.now)


def test_the_release_of_one_button_does_not_release_another(cell):
    cell.guard.emergency_stop(True, cell.now, 'left')
    cell.guard.emergency_stop(True, cell.now, 'right')
    cell.guard.emergency_stop(False, cell.now, 'right')
    cell.run(10)
    with pytest.raises(SafetyRefused, match='pressed: left'):
        cell.guard.reset(cell.now)
    cell.guard.emergency_stop(False, cell.now, 'left')
    cell.guard.reset(cell.now)


def test_a_button_that_is_released_but_was_never_pressed_changes_nothing(cell):
    cell.run(5)
    cell.guard.emergency_stop(False, cell.now, 'left')
    assert cell.run(5).moving


def test_an_emergency_stop_replaces_an_earlier_cause_and_no_other_does(cell):
    cell.guard.latch(Finding('second_writer'), cell.now)
    cell.guard.latch(Finding('contract'), cell.now)
    first = cell.guard.report.code
    cell.guard.emergency_stop(True, cell.now)
    assert (first, cell.guard.report.code) == ('second_writer', 'emergency_stop')


def test_reset_is_refused_while_the_arm_ramps(cell):
    cell.run(20)
    cell.guard.latch(Finding('emergency_stop'), cell.now)
    cell.run(1)
    with pytest.raises(SafetyRefused, match='ramping'):
        cell.guard.reset(cell.now)


def test_the_arm_moves_again_after_a_reset(cell):
    cell.run(20)
    cell.guard.latch(Finding('emergency_stop'), cell.now)
    cell.run(20)
    cell.guard.reset(cell.now)
    assert cell.run(20).moving


def test_reset_of_an_inactive_guard_leaves_it_inactive(kinematics, limits, at_reset):
    cell = Cell(kinematics, limits, at_reset, activate=False)
    cell.guard.latch(Finding('emergency_stop'), cell.now)
    cell.guard.reset(cell.now)
    assert cell.guard.mode is Mode.INACTIVE


def test_activation_is_refused_while_latched(kinematics, limits, at_reset):
    cell = Cell(kinematics, limits, at_reset, activate=False)
    cell.guard.emergency_stop(True, cell.now)
    with pytest.raises(SafetyRefused, match='reset it first'):
        cell.guard.activate(cell.now)


def test_activation_is_refused_outside_the_box(kinematics, limits, at_reset):
    away = replace(limits, box_low=[0.2, 0.5, 0.1], box_high=[0.4, 0.7, 0.3])
    with pytest.raises(SafetyRefused, match='workspace'):
        Cell(kinematics, away, at_reset)


def test_activation_is_refused_without_a_joint_state(kinematics, limits):
    with pytest.raises(SafetyRefused, match='joint state'):
        SafetyGuard(limits, kinematics, 'hash', 0.05).activate(0.0)


@pytest.mark.parametrize(
    ('spoiled', 'code'),
    [
        ({'joint_velocities': np.full(7, math.nan)}, 'not_finite'),
        ({'joint_velocities': np.zeros(3)}, 'not_finite'),
        ({'gripper': math.inf}, 'not_finite'),
        ({'policy_hash': 'another'}, 'contract'),
        ({'joint_positions': np.zeros(7)}, 'jump'),
        ({'hand_velocity': np.array([1.0, 0.0, 0.0])}, 'jump'),
        ({'joint_velocities': np.full(7, 10.0)}, 'jump'),
    ],
)
def test_a_spoiled_command_is_dropped_and_counted(cell, spoiled, code):
    cell.run(5)
    accepted = cell.request(**spoiled)
    cell.send_action = False
    cell.run(1)
    assert (accepted, cell.guard.report.code, cell.guard.report.counts[code]) == (False, code, 1)


def test_a_command_older_than_the_last_is_ignored_and_counted(cell):
    cell.run(20)
    accepted = cell.request(sequence=3)
    assert (accepted, cell.guard.report.counts) == (False, {'sequence': 1})
    assert cell.run(1).moving


def test_a_dropped_command_brakes_and_a_good_one_goes_on(cell):
    cell.run(20)
    cell.request(joint_velocities=np.full(7, math.nan))
    cell.send_action = False
    slower = np.linalg.norm(cell.run(2).hand_velocity)
    cell.send_action = True
    assert slower < 0.04 < np.linalg.norm(cell.run(10).hand_velocity)


def test_the_first_command_must_start_where_the_arm_is(cell):
    assert not cell.request(joint_positions=cell.joints + 0.06)


def test_an_object_may_be_put_elsewhere_while_the_hand_stands(cell):
    cell.push(np.zeros(3))
    cell.run(20)
    assert cell.guard.object_pose(OBJECT + 0.5, cell.now)


def test_an_object_that_jumps_while_the_hand_moves_is_not_believed(cell):
    cell.run(20)
    assert not cell.guard.object_pose(OBJECT + 0.5, cell.now)
    assert cell.guard.dropped == CODES['jump']


def test_the_gripper_is_not_told_anything_before_it_is_asked_for(cell):
    cell.send_action = False
    assert math.isnan(cell.run(5).gripper)


def test_the_gripper_starts_from_its_first_command_and_keeps_its_rate(cell):
    cell.command = replace(cell.command, gripper=-1.0)
    first = cell.run(2).gripper
    cell.command = replace(cell.command, gripper=1.0)
    step = cell.limits.gripper_rate * cell.limits.period
    assert (first, cell.run(1).gripper) == (-1.0, pytest.approx(-1.0 + step))


def test_a_gripper_moved_by_hand_is_left_alone_on_activation(cell):
    cell.run(5)
    cell.guard.deactivate(cell.now)
    cell.run(10)
    cell.guard.activate(cell.now)
    cell.send_action = False
    assert math.isnan(cell.run(1).gripper)


def test_the_box_is_approached_but_not_left(kinematics, limits, at_reset):
    low = replace(limits, box_high=[0.505, 1.005, 0.22])
    cell = Cell(kinematics, low, at_reset)
    command = cell.run(100)
    assert 0.215 < command.hand[2] <= 0.22


def test_a_push_into_the_wall_is_reported_with_value_and_limit(kinematics, limits, at_reset):
    low = replace(limits, box_high=[0.505, 1.005, 0.22])
    cell = Cell(kinematics, low, at_reset)
    cell.run(100)
    report = cell.guard.report
    assert (report.level, report.code, report.limit) == (Level.LIMITED, 'workspace', 0.22)


def test_zero_is_a_legal_speed_limit(kinematics, limits, at_reset):
    cell = Cell(kinematics, replace(limits, max_speed=0.0), at_reset)
    cell.run(30)
    np.testing.assert_array_equal(cell.joints, at_reset)


def test_the_arm_stops_while_the_deadman_is_released(kinematics, limits, at_reset):
    cell = Cell(kinematics, replace(limits, deadman_timeout=0.3), at_reset)
    cell.run(20)
    assert cell.guard.report.code == 'deadman'


def test_a_deadman_that_says_released_stops_though_it_is_fresh(kinematics, limits, at_reset):
    cell = Cell(kinematics, replace(limits, deadman_timeout=0.5), at_reset)
    cell.guard.deadman(True, cell.now)
    assert cell.run(5).moving
    cell.guard.deadman(False, cell.now)
    assert not cell.run(cell.limits.stop_ticks + 1).moving
    assert (cell.guard.report.code, cell.guard.mode) == ('deadman', Mode.RUNNING)


def test_the_commanded_way_is_the_sum_of_the_ramp(cell):
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    before, way = cell.joints, np.zeros(7)
    for _ in range(cell.limits.stop_ticks):
        way += cell.run(1).joint_velocities * cell.limits.period
    np.testing.assert_allclose(cell.joints - before, way, atol=1e-12)
    assert np.abs(way).max() > 1e-3


def test_joints_accelerate_no_harder_than_the_arm_may(kinematics, limits, at_reset):
    cell, turn = Cell(kinematics, limits, at_reset), np.zeros(7)
    turn[-1] = 1.3  # in place: only the joint's own limit holds
    cell.command = replace(cell.command, joint_velocities=turn, hand_velocity=np.zeros(3))
    speeds = [cell.run(1).joint_velocities[-1] for _ in range(8)]
    steps = np.diff([0.0, *speeds]) / limits.period
    assert steps.max() == pytest.approx(kinematics.arm.joint_acceleration[-1], rel=0.05)


def test_the_patience_with_commands_is_their_period_and_a_twentieth_of_a_second(limits):
    most = limits.react_after(limits.action_timeout) - 0.05
    limits.require_commands_every(most)
    with pytest.raises(InvalidConfig, match=r'action_timeout to at least 0\.421 s'):
        limits.require_commands_every(most + 1e-3)


def test_the_arm_moves_while_the_deadman_is_held(kinematics, limits, at_reset):
    cell = Cell(kinematics, replace(limits, deadman_timeout=0.5), at_reset)
    cell.guard.deadman(True, cell.now)
    assert cell.run(10).moving


@pytest.mark.parametrize('jump', [-1.0, 1.0, math.nan])
def test_a_jump_of_the_clock_stops_and_latches(cell, jump):
    cell.run(20)
    cell.now += jump
    cell.guard.tick(cell.now)
    assert cell.guard.mode is Mode.LATCHED


def test_a_machine_that_slept_is_stopped(cell):
    cell.run(20)
    cell.slept += 5.0  # the steady clock did not notice
    assert not cell.run(1).moving
    assert (cell.guard.report.code, cell.guard.mode) == ('clock', Mode.LATCHED)
    assert cell.guard.report.value == pytest.approx(5.0)


@pytest.mark.parametrize('interface', ['velocity', 'twist', 'trajectory'])
def test_a_guard_that_was_away_does_not_start_a_standing_arm_again(
    kinematics, limits, at_reset, interface
):
    cell = Cell(kinematics, limits, at_reset, interface=interface)
    cell.run(20)
    cell.now += 2.0  # SIGSTOP: meanwhile the arm stands by its own time-out
    cell.sent.clear()
    here = cell.joints
    cell.run(20)
    assert not any(command.joint_velocities.any() for command in cell.sent)
    np.testing.assert_array_equal(cell.joints, here)


@pytest.mark.parametrize('interface', ['velocity', 'twist', 'trajectory'])
def test_a_guard_that_is_away_too_long_latches_and_one_that_is_late_does_not(
    kinematics, limits, at_reset, interface
):
    cell = Cell(kinematics, limits, at_reset, interface=interface)
    cell.run(20)
    cell.now += limits.longest_gap - limits.period - 1e-3
    cell.run(1)
    assert cell.guard.mode is Mode.RUNNING
    cell.now += limits.longest_gap - limits.period + 1e-3
    assert not cell.run(1).moving
    assert (cell.guard.report.code, cell.guard.mode) == ('clock', Mode.LATCHED)


def test_a_late_guard_knows_how_far_a_velocity_interface_went_on(kinematics, limits, at_reset):
    cell = Cell(kinematics, limits, at_reset, interface='velocity')
    before = cell.run(20)
    elapsed = 0.09
    cell.now += elapsed
    cell.joints = cell.joints + before.joint_velocities * (elapsed - limits.period)
    cell.measure()
    cell.request()
    command = cell.guard.tick(cell.now)
    there = cell.joints + command.joint_velocities * limits.period
    np.testing.assert_allclose(command.joints, there, atol=1e-6)


def test_a_machine_that_slept_before_is_not_stopped_for_it(cell):
    cell.slept = 5.0
    cell.run(20)
    assert cell.guard.mode is Mode.RUNNING


@pytest.fixture(params=['velocity', 'twist', 'trajectory'])
def any_cell(request, kinematics, limits, at_reset):
    return Cell(kinematics, limits, at_reset, interface=request.param)


def test_an_arm_that_follows_is_believed_for_long(any_cell):
    for i in range(12):
        any_cell.push(np.array([0.0, 0.0, 0.05 * (-1) ** i]))
        any_cell.run(40)
    assert (any_cell.guard.report.level, any_cell.guard.report.count) == (Level.OK, 0)


def test_an_arm_that_stands_still_is_stopped_in_time(any_cell):
    any_cell.run(10)
    any_cell.follows, limits, moved = False, any_cell.limits, 0.0
    while any_cell.guard.mode is Mode.RUNNING and moved < 0.1:
        moved += np.linalg.norm(any_cell.run(1).hand_velocity) * limits.period
    unseen = 0.05 * (limits.tracking_delay + 3.0 * limits.period)
    assert any_cell.guard.report.code == 'standstill'
    assert limits.hand_error < moved < limits.hand_error + unseen


@pytest.mark.parametrize(('pace', 'code'), [(0.85, 'tracking'), (0.95, 'ok'), (1.15, 'tracking')])
def test_a_velocity_interface_may_be_a_little_off_its_pace(
    kinematics, limits, at_reset, pace, code
):
    cell = Cell(kinematics, limits, at_reset, interface='velocity')
    cell.pace = pace
    for _ in range(100):
        cell.push(np.array([0.0, 0.0, 0.07]))
        cell.run(1)
    assert cell.guard.report.code == code


def test_slow_motion_that_is_not_measured_is_stopped_too(any_cell):
    any_cell.push(np.array([0.0, 0.0, 0.004]))
    any_cell.follows = False
    any_cell.run(any_cell.ticks(5.0))
    assert any_cell.guard.report.code == 'standstill'


def test_trembling_does_not_hide_a_drift_that_is_not_measured(any_cell):
    any_cell.follows = False
    for i in range(400):
        any_cell.push(np.array([0.09 * (-1) ** (i // 3), 0.0, 0.01]))
        any_cell.run(1)
    assert any_cell.guard.mode is Mode.LATCHED


def test_joints_that_leave_the_commanded_ones_are_stopped(kinematics, limits, at_reset):
    wide = replace(limits, hand_error=0.1)
    cell = Cell(kinematics, wide, at_reset)
    cell.run(10)
    cell.joints = cell.joints + np.array([0, 0, 0, 0, 0, 0, 0.11])  # the hand turns in place
    cell.run(1)
    report = cell.guard.report
    assert (report.code, report.text[-16:]) == ('tracking', '(tracking_error)')
    assert report.limit == pytest.approx(0.9 * limits.tracking_error)  # a little before it is met


@pytest.mark.parametrize('interface', ['velocity', 'twist', 'trajectory'])
def test_an_arm_may_be_late_by_the_tracking_delay(kinematics, limits, at_reset, interface):
    cell = Cell(kinematics, limits, at_reset, interface=interface)
    late, past = round(limits.tracking_delay / limits.period) - 1, []
    obey = cell.obey

    def obey_late(command):
        past.append(command)
        if len(past) > late:
            obey(past[-1 - late])

    cell.obey = obey_late
    for direction in (0.08, -0.08, 0.08):
        for _ in range(15):
            cell.push(np.array([direction, 0.0, 0.0]))
            cell.run(1)
    assert cell.guard.mode is Mode.RUNNING


@pytest.mark.parametrize('interface', ['velocity', 'twist', 'trajectory'])
def test_whichever_joints_jam_the_others_do_not_throw_the_hand(
    kinematics, limits, at_reset, interface
):
    cell, most = Cell(kinematics, limits, at_reset, interface=interface), 0.0
    for i in range(60):
        cell.push(0.1 * np.array([math.sin(i / 9), 0.0, math.cos(i / 9)]))
        start = cell.joints
        command = cell.run(1)
        velocities = command.joint_velocities
        if interface == 'twist':
            velocities = kinematics.least_velocity(start, command.hand_velocity)
        most = max(most, kinematics.jam_speed(start, velocities))
    allowed = limits.jam_factor * limits.max_speed
    assert 0.9 * allowed < most < 1.02 * allowed  # the arm lags the commanded joints a little


def test_a_motion_that_a_jam_would_make_too_fast_is_reduced_and_reported(
    kinematics, limits, at_reset
):
    speeds = []
    for factor in (limits.jam_factor, 100.0):
        cell = Cell(kinematics, replace(limits, jam_factor=factor), at_reset)
        cell.push(np.array([0.0, 0.068, 0.068]))  # here the joints work against each other
        speeds.append(np.linalg.norm(cell.run(10).hand_velocity))
        text = cell.guard.report.text
        assert text.endswith('(jam_factor max_speed)') is (factor < 100.0)
    assert 0.07 < speeds[0] < 0.9 * speeds[1] < limits.max_speed


def test_on_twist_the_arm_may_choose_its_joints(kinematics, limits, at_reset):
    cell = Cell(kinematics, limits, at_reset, interface='twist')
    cell.run(10)
    cell.joints = cell.joints + np.array([0, 0, 0, 0, 0, 0, 0.11])
    cell.run(5)
    assert cell.guard.mode is Mode.RUNNING


def test_the_guard_does_not_believe_a_hand_far_from_where_it_takes_it_to_be(any_cell):
    any_cell.run(10)
    moved = np.linalg.pinv(any_cell.kinematics.jacobian(any_cell.joints))[:, 0] * 0.014
    any_cell.joints = any_cell.joints + moved
    any_cell.run(2)
    assert any_cell.guard.report.code == 'tracking'


def test_stamps_that_stand_still_stop_the_arm(cell):
    cell.stamp = lambda: cell.now
    cell.run(20)
    frozen = cell.now
    cell.stamp = lambda: frozen
    cell.run(cell.ticks(cell.limits.joints_timeout))
    assert (cell.guard.report.code, cell.guard.report.count) == ('stale_joints', 1)


def test_stamps_that_stand_still_are_not_believed_while_the_arm_ramps(cell):
    cell.stamp = lambda: cell.now
    cell.run(20)
    frozen, here = cell.now, cell.joints
    cell.guard.emergency_stop(True, cell.now)
    assert cell.guard.joint_state(here, cell.now, frozen)
    assert cell.guard._joints.time == frozen
    assert cell.run(1).moving
    cell.guard.joint_state(here + 0.1, cell.now, frozen)
    np.testing.assert_array_equal(cell.guard._joints.value, here)


def test_a_stamp_from_the_past_is_dropped_and_counted(cell):
    cell.stamp = lambda: cell.now
    cell.run(20)
    assert not cell.guard.joint_state(cell.joints, cell.now, cell.now - 1.0)
    assert cell.guard.report.counts == {'sequence': 1}


def test_a_clock_that_was_set_back_is_accepted_while_nothing_runs(cell):
    cell.stamp = lambda: cell.now
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    cell.stamp = lambda: cell.now - 1000.0
    cell.run(20)
    cell.guard.emergency_stop(False, cell.now)
    cell.guard.reset(cell.now)
    assert cell.run(20).moving


def displaced(cell, by=0.15):
    return cell.joints + np.array([by, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_a_latched_guard_tells_a_position_interface_once_to_stay(cell):
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    cell.run(cell.limits.stop_ticks)
    told = len(cell.sent)
    assert not cell.sent[-1].moving
    assert cell.sent[-2].moving
    cell.joints = displaced(cell)
    assert (cell.run(50).silent, len(cell.sent)) == (True, told)


@pytest.mark.parametrize('interface', ['velocity', 'twist'])
def test_a_latched_guard_keeps_telling_a_velocity_interface_zero(
    kinematics, limits, at_reset, interface
):
    cell = Cell(kinematics, limits, at_reset, interface=interface)
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    cell.run(cell.limits.stop_ticks)
    cell.sent.clear()
    cell.joints = displaced(cell)
    cell.run(50)
    assert (len(cell.sent), any(command.joint_velocities.any() for command in cell.sent)) == (
        50,
        False,
    )


def test_an_arm_displaced_while_it_ramps_is_not_driven_back(cell):
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    cell.run(2)
    cell.follows, cell.joints = False, displaced(cell)
    cell.sent.clear()
    cell.run(20)
    assert cell.sent == []


def test_the_first_target_after_a_reset_is_the_measured_pose(cell):
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    cell.run(20)
    cell.guard.emergency_stop(False, cell.now)
    cell.joints = displaced(cell, 0.1)
    cell.measure()
    cell.guard.reset(cell.now)
    cell.joints = displaced(cell, 0.05)  # and once more before the first command
    here = cell.joints
    cell.push(np.array([0.0, 0.0, 0.05]))
    first = (cell.sent.clear(), cell.run(3))[1]
    assert cell.guard.mode is Mode.RUNNING
    assert first.moving
    np.testing.assert_allclose(cell.sent[0].joints, here, atol=5e-3)


def test_an_arm_moved_out_of_the_box_before_the_first_command_stays_there(
    kinematics, limits, at_reset
):
    cell = Cell(kinematics, replace(limits, box_high=[0.505, 1.005, 0.22]), at_reset)
    up = np.linalg.pinv(kinematics.jacobian(at_reset))[:, 2] * 0.05
    cell.joints = at_reset + up
    cell.run(10)
    assert (cell.guard.report.code, cell.sent) == ('workspace', [])


def test_a_position_interface_is_given_time_for_a_small_displacement(cell):
    cell.run(20)
    usual = cell.sent[-1].seconds
    back = np.linalg.pinv(cell.kinematics.jacobian(cell.joints))[:, 0] * 0.009
    cell.joints, cell.follows = cell.joints + back, False
    seconds = cell.run(1).seconds
    assert usual == pytest.approx(cell.limits.period, abs=2e-3)
    assert seconds > usual + 0.007 / cell.limits.max_speed


def paces(cell, offsets, stop_at=-1):
    """Return the hand speeds of an arm that takes the time it is given, tick by tick.

    The joint states are off by a share of 6 mm, one share per tick.
    """
    cell.follows, speeds, period = False, [], cell.limits.period
    aside = np.linalg.pinv(cell.kinematics.jacobian(cell.joints))[:, 0] * 0.006
    arm, target, pace = cell.joints, cell.joints, np.zeros(7)
    for i, offset in enumerate(offsets):
        cell.joints = arm + offset * aside
        if i == stop_at:
            cell.guard.emergency_stop(True, cell.now)
        command = cell.run(1)
        if not command.silent:
            target, pace = command.joints, (command.joints - arm) / command.seconds
        gap = np.abs(target - arm)
        there = arm + np.clip(pace * period, -gap, gap)
        hands = [cell.kinematics.pose(joints).position for joints in (arm, there)]
        speeds.append(np.linalg.norm(hands[1] - hands[0]) / period)
        arm = there
    return np.array(speeds)


def test_a_position_interface_that_was_given_time_does_not_catch_up(cell):
    cell.push(np.array([0.0, 0.0, 0.09]))
    speeds = paces(cell, [0.0] * 10 + [1.0] * 10 + [0.0] * 25)
    assert speeds[10] < 0.05  # it is given time
    assert 0.089 < speeds[-1] <= speeds.max() < 0.093


def test_a_position_interface_is_never_sent_far_ahead(cell):
    cell.push(np.array([0.0, 0.0, 0.09]))
    speeds = paces(cell, [0.0] * 10 + [1.5] * 20)  # 9 mm: a guard that ignores it goes on
    assert cell.guard.mode is Mode.RUNNING
    assert speeds[-1] < 0.5 * speeds[9]
    left = cell.sent[-1].seconds * speeds[-1]
    assert left < 2.02 * cell.limits.period * 0.093


def test_a_position_interface_that_trails_stops_within_the_stop_time(cell):
    cell.push(np.array([0.0, 0.0, 0.09]))
    speeds = paces(cell, [0.0] * 10 + [0.5] * 25, stop_at=25)
    assert speeds[24] > 0.07
    assert not speeds[24 + cell.limits.stop_ticks :].any()


def test_a_stopped_guard_leaves_the_gripper_alone(cell):
    cell.run(20)
    cell.guard.emergency_stop(True, cell.now)
    assert math.isnan(cell.run(1).gripper)


def test_limits_are_named_by_their_parameter(kinematics, limits, at_reset):
    cell = Cell(kinematics, limits, at_reset)
    cell.push(np.array([0.0, 0.0, 0.2]))
    cell.run(5)
    assert cell.guard.report.text == f'{CODES["speed"]} (max_speed)'
    cell.send_action = False
    cell.run(cell.ticks(limits.action_timeout))
    assert cell.guard.report.text.endswith('(action_timeout)')


def test_since_tells_when_the_state_began(cell):
    cell.run(20)
    began = cell.now
    cell.guard.emergency_stop(True, cell.now)
    cell.run(20)
    assert cell.guard.report.since == began


def test_every_code_of_the_guard_has_a_text():
    assert all(CODES.values())


@pytest.mark.parametrize('name', ['box_low', 'max_speed', 'action_timeout', 'deadman_timeout'])
def test_a_missing_limit_is_an_error(name):
    with pytest.raises(InvalidConfig, match=f'missing safety limits: {name}'):
        load_limits({key: 0.0 for key in load_limits().__dataclass_fields__ if key != name})


def test_a_file_that_still_has_the_command_period_is_told_where_it_went(tmp_path):
    path, shipped = tmp_path / 'limits.yaml', data_folder('sim/sawyer') / 'safety.yaml'
    path.write_text(shipped.read_text() + 'command_period: 0.05\n')
    with pytest.raises(InvalidConfig, match=r'command_period.*rate.*remove'):
        load_limits(path)


@pytest.mark.parametrize(('command_period', 'code'), [(0.05, 'ok'), (0.02, 'acceleration')])
def test_what_is_too_hard_depends_on_the_time_between_commands(
    kinematics, limits, at_reset, command_period, code
):
    cell = Cell(kinematics, limits, at_reset, command_period=command_period)
    cell.push(np.array([0.0, 0.0, 0.09]))
    cell.run(1)
    assert cell.guard.report.code == code


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'max_speed': math.inf}, 'finite'),
        ({'max_speed': 0.4}, 'speed_cap_raised'),
        ({'max_speed': -0.1}, 'from 0 to 1'),
        ({'max_speed': 1e300}, 'from 0 to 1'),
        ({'max_acceleration': 1e300}, 'max_acceleration must be finite'),
        ({'period': 1e-7}, 'period must be finite, from 0.002'),
        ({'period': 0.0}, 'period must be finite'),
        ({'tracking_error': 1e300}, 'tracking_error must be finite'),
        ({'hand_error': 1e300}, 'hand_error must be finite'),
        ({'joints_timeout': 1e300}, 'joints_timeout must be finite'),
        ({'deadman_timeout': 1e300}, 'deadman_timeout must be finite'),
        ({'box_high': [1e300, 1.0, 1.0]}, 'further than 3'),
        ({'box_high': [0.5, 1.0, True]}, 'three finite numbers'),
        ({'box_high': [0.5, 1.0, 10**400]}, 'three finite numbers'),
        ({'reject_above': 0.5}, 'reject_above'),
        ({'joint_velocity_scale': 1.1}, 'joint_velocity_scale'),
        ({'jam_factor': 0.9}, 'jam_factor must be finite, from 1 to 100'),
        ({'arm_delay': 0.6}, 'arm_delay must be finite, from 0 to 0.5'),
        ({'arm_delay': 0.2}, r'joints_timeout 0\.37 s must be more than .* 0\.395 s'),
        ({'stop_time': 0.03, 'max_speed': 0.05}, 'shorter than period'),
        ({'tracking_timeout': 0.2}, 'tracking_timeout'),
        ({'hand_error': 0.003}, 'moves in a period'),
        ({'start_distance': 0.15}, 'start_distance 0.15 rad must not be above tracking_error'),
        ({'tracking_error': 0.25}, 'tracking_error 0.25 rad must not be above joint_jump'),
        ({'speed_cap_raised': 1}, 'true or false'),
        ({'max_tilt': True}, 'number'),
        ({'box_low': [0.0, math.nan, 0.0]}, 'finite'),
        ({'box_low': [2.0, 2.0, 2.0]}, 'above box_high'),
        ({'box_low': 'low'}, 'three finite numbers'),
        ({'action_timeout': 0.05}, 'action_timeout'),
        ({'stop_time': 0.04}, 'cannot stop'),
        ({'stop_time': 1.6, 'action_timeout': 2.0}, 'stop_time must be finite, from 0 to 1.5'),
        ({'joint_margin': None}, 'number'),
    ],
)
def test_limits_that_protect_nobody_are_errors(limits, changes, message):
    with pytest.raises(InvalidConfig, match=message):
        replace(limits, **changes)


def test_the_speed_cap_can_be_raised_explicitly(limits):
    fast = replace(
        limits, max_speed=0.4, max_acceleration=4.0, speed_cap_raised=True, hand_error=0.03
    )
    assert fast.max_speed == 0.4


def test_the_ramp_begins_a_period_its_own_time_and_the_arms_before_the_time_out(limits):
    assert limits.stop_within == pytest.approx(5 * 0.0325 + 0.10)
    assert limits.react_after(0.5) == pytest.approx(0.5 - limits.stop_within)
    assert limits.tracking_delay == limits.longest_gap == pytest.approx(0.1075)


def test_the_margin_is_kept_from_both_ends_of_every_joint(limits, arm):
    low, high = limits.joint_range(arm)
    np.testing.assert_allclose(low - arm.joint_low, limits.joint_margin)
    np.testing.assert_allclose(arm.joint_high - high, limits.joint_margin)


@pytest.mark.parametrize('sign', [-1.0, 1.0])
def test_a_joint_stops_before_its_margin(kinematics, limits, at_reset, sign):
    # Room for the last joint to turn: the hand stays in place, only its limit can stop it.
    room = 0.15
    arm = replace_last_limit(kinematics, at_reset[-1], room)
    loose = replace(limits, joint_margin=0.1)
    cell = Cell(arm, loose, at_reset)
    turn = np.zeros(7)
    turn[-1] = 0.2 * sign
    cell.command = replace(cell.command, joint_velocities=turn, hand_velocity=np.zeros(3))
    cell.run(60)
    travelled = sign * (cell.joints[-1] - at_reset[-1])
    assert 0.03 < travelled <= room - 0.1 + 1e-9
    assert cell.guard.report.code == 'joint_limit'


def replace_last_limit(kinematics, centre, room):
    low, high = kinematics.arm.joint_low.copy(), kinematics.arm.joint_high.copy()
    low[-1], high[-1] = centre - room, centre + room
    arm = replace(kinematics.arm, joint_low=low, joint_high=high)
    return ArmKinematics(kinematics.model, arm)


def test_a_request_at_the_reject_limit_is_reduced_and_one_above_is_dropped(cell):
    cell.run(5)
    most = cell.limits.reject_above * cell.limits.max_speed
    assert cell.request(hand_velocity=np.array([0.0, 0.0, most]))
    assert not cell.request(hand_velocity=np.array([0.0, 0.0, most + 1e-6]))


def test_the_report_names_the_coordinate_furthest_outside():
    low, high = np.zeros(3), np.ones(3)
    above = worst('workspace', np.array([1.2, -0.1, 0.5]), low, high, 'm', 'box')
    below = worst('workspace', np.array([1.1, -0.3, 0.5]), low, high, 'm', 'box')
    assert (above.value, above.limit, below.value, below.limit) == (1.2, 1.0, -0.3, 0.0)


def test_interventions_are_counted_from_activation_on(cell):
    cell.guard.drop('jump')
    assert cell.guard.report.count == 1
    cell.guard.deactivate(cell.now)
    cell.guard.activate(cell.now)
    assert cell.guard.report.count == 0


def test_what_is_measured_after_the_fact_is_not_fresh(cell):
    cell.run(5)
    assert not cell.guard._joints.fresh(cell.now - 1.0, cell.limits)


@pytest.mark.parametrize(('valid_for', 'moving'), [(0.32, False), (1.0, True)])
def test_valid_for_shortens_the_watchdog_of_a_command(cell, valid_for, moving):
    cell.command = replace(cell.command, valid_for=valid_for)
    assert cell.run(20).moving
    cell.send_action = False
    assert cell.run(cell.ticks(0.32 - cell.limits.arm_delay)).moving is moving


@pytest.mark.parametrize('spike', [0.02, 0.19, 0.4])
def test_one_wrong_joint_state_at_the_start_moves_nothing(kinematics, limits, at_reset, spike):
    guard = SafetyGuard(limits, kinematics, '', 0.05, 'trajectory')
    now, up, told = 0.0, np.array([0.0, 0.0, 0.05]), []
    for _ in range(3):
        guard.joint_state(at_reset, now)
    guard.activate(now)
    for tick in range(6):
        now += limits.period
        seen = at_reset.copy()
        seen[0] += spike if tick == 0 else 0.0
        guard.object_pose(np.zeros(3), now)
        guard.joint_state(at_reset, now)
        guard.joint_state(seen, now)
        push = kinematics.least_velocity(at_reset, up)
        guard.request(ArmCommand(tick, '', at_reset, push, up, 0.0, 1.0), now)
        command = guard.tick(now)
        if not command.silent:
            told.append(command.joints[0] - at_reset[0])
    assert told
    assert np.max(np.abs(told)) < 0.005
    assert guard.mode is Mode.RUNNING


@pytest.mark.parametrize('spoiled', ['deadman', 'request'])
def test_an_arm_that_may_not_move_leaves_the_gripper_alone(kinematics, limits, at_reset, spoiled):
    limits = replace(limits, deadman_timeout=0.5)
    guard, now, grips = SafetyGuard(limits, kinematics, '', 0.05, 'velocity'), 0.0, []
    for _ in range(3):
        guard.joint_state(at_reset, now)
    guard.activate(now)
    for tick in range(18):
        now += limits.period
        over = tick >= 15
        guard.joint_state(at_reset, now)
        guard.object_pose(np.zeros(3), now)
        guard.deadman(not (over and spoiled == 'deadman'), now)
        asked = np.full(7, np.nan if over and spoiled == 'request' else 0.0)
        guard.request(ArmCommand(tick, '', at_reset, asked, np.zeros(3), 1.0, 1.0), now)
        grips.append(guard.tick(now).gripper)
    assert np.isfinite(grips[:15]).all()
    assert np.isnan(grips[15:]).all()
