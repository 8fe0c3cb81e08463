"""The guard's node between its decision and the arm."""

import time
from types import SimpleNamespace
from unittest.mock import MagicMock

from builtin_interfaces.msg import Time
import numpy as np
import pytest
from rclpy.serialization import deserialize_message
from std_msgs.msg import Bool, Float64MultiArray

from lpgftw_ros.deploy.safety.guard import SafetyGuard
from lpgftw_ros.deploy.safety.report import Mode
from lpgftw_ros.deploy.safety.watch import ArmCommand
from lpgftw_ros.graph.parameters import GuardParameters
from lpgftw_ros.nodes import arm_writer, safety_guard
from lpgftw_ros.nodes.arm_writer import ArmWriter
from lpgftw_ros.nodes.conversions import COMMAND_TOPICS
from lpgftw_ros.nodes.safety_guard import SafetyGuardNode
from lpgftw_ros.resources import data_folder

JOINTS = np.array([1.8893, -0.5758, -0.9767, 1.642, 0.9429, 1.0437, 2.2928])


class Clocks:
    """The clocks of a process; it may be stopped, or its machine sleep, while it is decided."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def __init__(self) -> None:
        self.now, self.slept = 100.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(1e9 * (1e6 + self.now))

    def clock_gettime(self, clock: int) -> float:
        return self.now + self.slept


@pytest.fixture
def clock(monkeypatch):
    clock = Clocks()
    for module in (safety_guard, arm_writer):
        monkeypatch.setattr(module, 'time', clock)
    return clock


@pytest.fixture(params=['velocity', 'twist', 'trajectory'])
def node(request, clock):
    """A node that moves the arm, and what it sent."""
    config = GuardParameters(
        limits_file=str(data_folder('sim/sawyer') / 'safety.yaml'), interface=request.param
    )
    side, ros = config.arm_side(), MagicMock()
    ros.get_clock().now().to_msg.return_value = Time()
    guard = SafetyGuard(side.limits, side.kinematics, '', 0.05, request.param)
    node = SimpleNamespace(_side=side, _guard=guard, _writer=ArmWriter(ros, config, side))
    node.sent = node._writer._command = MagicMock()
    push = side.kinematics.least_velocity(JOINTS, np.array([0.05, 0.0, 0.0]))
    for _ in range(3):
        guard.joint_state(JOINTS, clock.now)
    guard.object_pose(np.zeros(3), clock.now)
    guard.activate(clock.now)
    for i in range(6):
        clock.now += side.limits.period
        guard.joint_state(JOINTS, clock.now)
        guard.object_pose(np.zeros(3), clock.now)
        command = ArmCommand(i, '', JOINTS, push, np.array([0.05, 0.0, 0.0]), 0.0, 1.0)
        assert guard.request(command, clock.now)
        SafetyGuardNode._send(node)
    assert node.sent.publish.call_count == 6
    return node


@pytest.mark.parametrize('clock_that_goes_on', ['now', 'slept'])
def test_a_command_decided_before_the_process_was_stopped_is_not_sent(
    node, clock, monkeypatch, clock_that_goes_on
):
    clock.now += node._side.limits.period
    tick, decided = node._guard.tick, []

    def tick_and_be_stopped(now, slept):
        decided.append(tick(now, slept))
        if len(decided) == 1:
            setattr(clock, clock_that_goes_on, getattr(clock, clock_that_goes_on) + 2.0)
        return decided[-1]

    monkeypatch.setattr(node._guard, 'tick', tick_and_be_stopped)
    command = SafetyGuardNode._send(node)
    assert decided[0].moving
    assert (node._guard.mode, command.moving) == (Mode.LATCHED, False)
    sent = [call.args[0] for call in node.sent.publish.call_args_list[6:]]
    if command.silent:
        assert sent == []
    else:
        kind = COMMAND_TOPICS[node._writer._config.interface][1]
        (told,) = (deserialize_message(each, kind) for each in sent)
        numbers = told.data if kind is Float64MultiArray else told.twist.linear
        assert not np.any(getattr(numbers, 'x', numbers))


def test_a_command_in_time_is_sent(node, clock):
    clock.now += node._side.limits.period
    assert SafetyGuardNode._send(node).moving
    assert node.sent.publish.call_count == 7


@pytest.mark.parametrize('held', [True, False])
@pytest.mark.parametrize('publishers', [1, 2])
def test_only_a_deadman_with_one_publisher_can_be_held(held, publishers):
    node = MagicMock()
    node.resolve_topic_name = {'deadman': '/pendant'}.get
    node.count_publishers = {'/pendant': publishers}.get
    node._senders = lambda topic: SafetyGuardNode._senders(node, topic)
    SafetyGuardNode._on_deadman(node, Bool(data=held))
    assert node._guard.deadman.call_args.args[0] is (held and publishers == 1)


@pytest.mark.parametrize('publishers', [1, 2])
def test_the_publishers_of_a_remapped_button_are_counted(publishers):
    node = MagicMock()
    node.resolve_topic_name = {'emergency_stop': '/button'}.get
    node.count_publishers = lambda topic: {'/button': publishers}.get(topic, 0)
    node._senders = lambda topic: SafetyGuardNode._senders(node, topic)
    SafetyGuardNode._on_button(node, 'emergency_stop', Bool(data=False))
    assert node._guard.emergency_stop.called is (publishers == 1)


@pytest.mark.parametrize(
    ('waited', 'age'), [(0.0, 0.0), (0.04, 0.04), (-3600.0, 0.0), (3600.0, 0.1)]
)
def test_a_measurement_is_as_old_as_it_waited_within_what_a_clock_may_say(clock, waited, age):
    stamp = clock.time_ns() - int(1e9 * waited)
    assert safety_guard.received_at(stamp, 0.1) == pytest.approx(clock.now - age)


def test_a_measurement_without_a_time_of_receipt_counts_as_new(clock):
    assert safety_guard.received_at(0, 0.1) == clock.now
