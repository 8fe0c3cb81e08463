"""The guard's rules, one by one."""

from dataclasses import replace
import math

import numpy as np
import pytest

from lpgftw_ros.deploy.safety import SafetyGuard
from lpgftw_ros.deploy.safety_limits import load_limits
from lpgftw_ros.deploy.safety_report import CODES, Finding, Level, Mode, SafetyRefused
from lpgftw_ros.deploy.safety_watch import ArmCommand
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.resources import data_folder

OBJECT = np.array([0.0, 0.6, 0.02])


class Cell:
    """A guard with a perfect arm and a steady stream of messages."""

    def __init__(self, kinematics, limits, joints, activate=True, command_period=0.05):
        self.guard = SafetyGuard(limits, kinematics, 'hash', command_period)
        self.kinematics, self.limits = kinematics, limits
        self.joints, self.now, self.sequence = joints.copy(), 10.0, 0
        self.send_joints = self.send_object = self.send_action = True
        self.command = ArmCommand(0, 'hash', joints, np.zeros(7), np.zeros(3), 0.0, 1.0)
        self.push(np.array([0.0, 0.0, 0.05]))
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
            self.guard.joint_state(self.joints, self.now)
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
            command = self.guard.tick(self.now)
            self.joints = command.joints
        return command

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
    with pytest.raises(SafetyRefused, match='pressed'):
        cell.guard.reset(cell.now)


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


def test_an_arm_that_does_not_follow_is_stopped(kinematics, limits, at_reset):
    far = replace(limits, tracking_error=0.01)
    stuck = Cell(kinematics, far, at_reset)
    for _ in range(40):
        stuck.now += far.period
        stuck.measure()
        stuck.request()
        stuck.guard.tick(stuck.now)  # the arm itself stays where it was
    assert stuck.guard.report.code == 'tracking'


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
        ({'max_speed': -0.1}, 'negative'),
        ({'box_low': [0.0, math.nan, 0.0]}, 'finite'),
        ({'box_low': [9.0, 9.0, 9.0]}, 'above box_high'),
        ({'box_low': 'low'}, 'three finite numbers'),
        ({'action_timeout': 0.05}, 'action_timeout'),
        ({'stop_time': 0.04}, 'cannot stop'),
        ({'stop_time': 1.6, 'action_timeout': 2.0}, 'told to end'),
        ({'joint_margin': None}, 'number'),
    ],
)
def test_limits_that_protect_nobody_are_errors(limits, changes, message):
    with pytest.raises(InvalidConfig, match=message):
        replace(limits, **changes)


def test_the_speed_cap_can_be_raised_explicitly(limits):
    fast = replace(limits, max_speed=0.4, max_acceleration=4.0, speed_cap_raised=True)
    assert fast.max_speed == 0.4
