"""Policy, bridge, guard and a joint-level arm over real DDS, from refusals to a crash."""

import os
from pathlib import Path
import signal
import time

import numpy as np
import pytest
from std_msgs.msg import Float64MultiArray

from lpgftw_interfaces.msg import ArmCommand, PolicyContract, RolloutKey, SafetyState
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.safety_guard import CONTRACT_AGE

from .arm_cell import (
    ACTIVATE,
    ArmCell,
    CONFIGURE,
    DEACTIVATE,
    GOAL,
    LIMITS,
    PATIENCE,
    STARVED,
    TRIES,
    write_limits,
    write_reach_policy,
    write_suite,
)

pytestmark = [pytest.mark.ros, pytest.mark.alone]


@pytest.fixture(scope='module')
def cell(ros_domain, tmp_path_factory):
    folder = tmp_path_factory.mktemp('cell')
    cell = ArmCell(
        policy_file=write_reach_policy(folder),
        suite=write_suite(folder, horizon=45),
        limits_file=write_limits(folder),
        reward='reach',
        joint_noise=1.6e-3,
        object_noise=1e-3,
    )
    yield cell
    cell.stop()


@pytest.fixture(scope='module')
def ready(cell):
    cell.ready()
    return cell


def test_nothing_starts_by_itself(cell):
    cell.watch(3.0)
    assert (cell.sent, cell.asked) == ([], [])


def middleware(process):
    """Return what the threads of DDS in a process are for."""
    threads = {path.read_text() for path in Path(f'/proc/{process.pid}/task').glob('*/comm')}
    return {thread.split('.')[1] for thread in threads if thread.startswith('dds.')}


def test_no_process_can_be_held_up_by_shared_memory(cell):
    for name, process in cell.processes.items():
        assert cell.until(lambda p=process: 'udp' in middleware(p), 60.0), name
    cell.watch(1.0)
    for name, process in cell.processes.items():
        assert 'shm' not in middleware(process), name


def test_every_thread_of_the_guard_goes_first_where_the_system_allows_it(cell):
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        wanted = {'safety_guard': {50}, 'arm_bridge': {49}, 'policy': {49}, 'sawyer_sim': {50}}
    except PermissionError:
        wanted = {name: {0} for name in cell.processes}
    for name, process in cell.processes.items():
        assert cell.until(lambda p=process: 'udp' in middleware(p), 60.0), name
        threads = Path(f'/proc/{process.pid}/task').iterdir()
        found = {
            (each / 'comm').read_text().strip(): os.sched_getparam(int(each.name)).sched_priority
            for each in threads
        }
        assert set(found.values()) == wanted[name], (name, found)


def test_a_guard_beside_a_second_writer_is_refused(cell):
    assert cell.change('safety_guard', CONFIGURE)
    assert cell.until(lambda: len(cell.speeds) > 20)
    topic = 'joint_velocity_command'
    intruder = cell.node.create_publisher(Float64MultiArray, topic, 1)
    cell.watch(1.0)
    try:
        assert not cell.change('safety_guard', ACTIVATE)
    finally:
        cell.node.destroy_publisher(intruder)
        cell.watch(1.0)
        assert cell.change('safety_guard', 2)  # cleanup


def test_an_episode_reaches_its_goal(ready):
    answer = ready.whole_episode()
    assert (answer.success, answer.success_rate) == (True, 1.0), answer.message


def test_words_of_another_run_change_nothing_and_are_counted(ready):
    for _ in range(TRIES):
        ready.states.clear()
        speak_of_another_run(ready)
        if ready.code not in STARVED:
            break
        ready.reset()
    assert {state.level for state in ready.states} == {SafetyState.OK}, ready.states[-1:]


def speak_of_another_run(ready):
    """Send a contract and a command of another run, and see both counted."""
    before = int(ready.told['safety_guard']['foreign_messages'])
    contracts = ready.node.create_publisher(PolicyContract, 'policy_contract', qos.LATCHED)
    commands = ready.node.create_publisher(ArmCommand, 'arm_command', qos.LOCK_STEP)
    ready.watch(1.0)
    contracts.publish(PolicyContract(run_id='another', task='reach', hash='0' * 64))
    last = ready.asked[-1]
    last.sequence += 10**9  # the guard would wait for higher numbers for ever
    last.key = RolloutKey(run_id='another', task='reach')
    commands.publish(last)
    foreign = lambda: int(ready.told['safety_guard']['foreign_messages'])  # noqa: E731
    assert ready.until(lambda: foreign() >= before + 2, 20.0), ready.told['safety_guard']
    ready.watch(2.0)
    ready.node.destroy_publisher(contracts)
    ready.node.destroy_publisher(commands)


def test_the_emergency_stop_stops_and_only_a_reset_lets_go(ready):
    result = ready.moving_episode()
    assert ready.trigger('safety_guard/emergency_stop').success
    assert ready.until(ready.stands, LIMITS.stop_within + PATIENCE)
    ready.expect_still(1.5)
    assert ready.code == 'emergency_stop'
    assert ready.until(result.done, 20.0)
    assert not result.result().result.success


def test_another_task_is_refused(ready):
    from lpgftw_interfaces.srv import LoadTask

    answer = ready.call(LoadTask, 'load_task', LoadTask.Request(task='hammer', n=1))
    assert (answer.success, 'reach' in answer.message) == (False, True)


def test_an_inactive_guard_sends_nothing(ready):
    if ready.level == SafetyState.LATCHED:
        ready.reset()
    assert ready.change('safety_guard', DEACTIVATE)
    ready.watch(0.5)
    ready.sent.clear()
    ready.watch(1.5)
    assert ready.sent == []
    ready.insist('safety_guard', ACTIVATE)


def test_a_killed_policy_stops_the_arm_until_it_is_reset(ready):
    ready.moving_episode()
    ready.processes['policy'].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    assert ready.until(lambda: ready.code == 'stale_action', 10.0), ready.states[-1:]
    assert ready.until(ready.stands, 2.0)
    assert ready.last_motion() - killed < LIMITS.action_timeout + PATIENCE
    ready.start_again('policy')
    ready.expect_still(2.0)
    assert ready.level == SafetyState.LATCHED


def test_a_policy_that_no_longer_tells_its_contract_stops_the_arm(ready):
    for _ in range(TRIES):
        ready.reset()
        ready.processes['policy'].send_signal(signal.SIGSTOP)  # the bridge goes on to hold the arm
        try:
            assert ready.until(lambda: ready.level == SafetyState.LATCHED, 20.0)
        finally:
            ready.processes['policy'].send_signal(signal.SIGCONT)
        if ready.code not in ('clock', 'stale_joints', 'stale_object'):
            break
        ready.watch(CONTRACT_AGE)
    assert ready.code == 'contract', ready.states[-1:]


def test_another_policy_is_refused(ready, tmp_path):
    other = write_reach_policy(tmp_path, GOAL + np.array([0.05, 0.0, 0.0]))
    assert ready.change('safety_guard', DEACTIVATE)
    ready.processes['policy'].send_signal(signal.SIGINT)
    ready.processes['policy'].wait(10.0)
    ready.add_words('policy', '-p', f'policy_from:={other}')
    gone = ready.contracts[-1].hash
    ready.start('policy')
    assert ready.until(lambda: ready.contracts[-1].hash != gone, 60.0)
    ready.watch(CONTRACT_AGE + 0.5)  # the guard may hear it later than we do
    if ready.level == SafetyState.LATCHED:
        ready.trigger('safety_guard/reset')
    assert not ready.change('safety_guard', ACTIVATE)
