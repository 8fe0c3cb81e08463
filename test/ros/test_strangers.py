"""Two graphs in one place, dead and living namesakes, strangers on the graph's own topics."""

from collections.abc import Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
import numpy as np
import pytest
import rclpy

from lpgftw_interfaces.action import EvaluateTask, TrainTask
from lpgftw_interfaces.msg import ActiveTask, ErrorCode, Knowledge, TaskPolicy
from lpgftw_ros.graph.admission import Seal
from lpgftw_ros.graph.admission import TaskPolicy as Training
from lpgftw_ros.learning.policies import PolicySpec, TaskFactors
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import (
    knowledge_from_msg,
    knowledge_to_msg,
    task_policy_to_msg,
)
from lpgftw_ros.nodes.steering import Probe

from .lifelong_graph import GraphClient, kill, metrics, options, train, wait_for, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]


@pytest.fixture
def begin(start) -> Iterator[object]:
    """Start graphs that end with their test."""
    begun = []

    def make(*words: str):
        begun.append(start(*words))
        return begun[-1]

    yield make
    for up in begun:
        up.stop()


@pytest.fixture
def client(ros_domain: int) -> Iterator[GraphClient]:
    client = GraphClient()
    yield client
    client.close()


def test_a_second_graph_in_the_same_place_is_refused_in_one_line(begin, tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    first = begin('--no-autotrain', *options(suite, tmp_path / 'first'))
    assert wait_for(lambda: 'active' in first.output, 60.0), first.output
    second = begin(*options(suite, tmp_path / 'second'))
    assert second.process.wait(90) == 2
    assert len(second.lines) == 1
    assert all(word in second.lines[0] for word in ('/lifelong/sim_bridge', 'alive', 'namespace'))
    assert not (tmp_path / 'second').exists()
    assert kill(first, 'policy')  # a node of the first still comes back at once
    assert wait_for(lambda: first.output.count('policy]: active') == 2, 60.0), first.output


def test_a_node_yields_to_its_namesake_and_takes_over_from_a_dead_one(node_process) -> None:
    first = node_process('policy')
    assert first.up(), first.output
    second = node_process('policy')
    assert second.process.wait(60) == 2
    assert 'another /policy is alive' in second.output
    first.process.kill()
    first.process.wait()
    started = time.monotonic()
    third = node_process('policy')
    assert third.up(), third.output
    assert time.monotonic() - started < 20.0


def test_a_node_yields_to_a_namesake_of_another_machine(node_process, client: GraphClient) -> None:
    ours = node_process('policy')
    assert ours.up(), ours.output
    values = {'started': '1.000000', 'host': 'elsewhere', 'pid': '1', 'run_id': 'theirs'}
    status = DiagnosticStatus(
        name='/policy: policy', values=[KeyValue(key=k, value=v) for k, v in values.items()]
    )
    publisher = client.node.create_publisher(DiagnosticArray, '/diagnostics', 10)

    def tell() -> bool:
        publisher.publish(DiagnosticArray(status=[status]))
        client.spin(0.1)
        return ours.process.poll() is not None

    assert not client.until(tell, 5.0), ours.output  # as a bag repeats it: nobody is there
    theirs = rclpy.create_node('policy', context=client.node.context)
    assert client.until(tell, 30.0), ours.output
    theirs.destroy_node()
    assert ours.process.returncode == 2
    assert "another /policy is alive (run 'theirs', process 1 on elsewhere)" in ours.output


def test_policies_of_a_stranger_are_counted_and_not_acted_with(
    begin, client: GraphClient, tmp_path: Path
) -> None:
    suite, out = write_suite(tmp_path, horizon=60), tmp_path / 'up'
    train(options(suite, tmp_path / 'train', iterations=6))
    up = begin('--run-id', 'known', *options(suite, out, iterations=6))
    client.listen(Knowledge, 'knowledge')
    client.listen(ActiveTask, 'active_task')
    assert client.until(
        lambda: len(metrics(out)) > 1 and {'knowledge', 'active_task'} <= client.latest.keys()
    ), up.output
    theirs = knowledge_from_msg(client.latest['knowledge'], None)
    knowledge = client.node.create_publisher(Knowledge, 'knowledge', qos.LATCHED)
    training = client.node.create_publisher(TaskPolicy, 'task_policy', qos.LATCHED)
    spec, zeros = PolicySpec(17, 6, ()), np.zeros(108)
    probe, reported = Probe(), []

    def disturb() -> bool:
        active = client.latest['active_task']
        versions = (active.policy_version, active.knowledge_version)
        evil = Training(
            active.task, *versions, spec, TaskFactors(zeros[:0], zeros, zeros[:0], zeros[:6])
        )
        knowledge.publish(knowledge_to_msg(theirs, 'known', Seal('guessed')))
        knowledge.publish(knowledge_to_msg(theirs, 'other', Seal('guessed')))
        training.publish(task_policy_to_msg(evil, 'known', Seal('guessed')))
        client.spin()
        probe.look(0.05)
        report = probe.reports.get('/lifelong/policy')
        if report is not None and int(report.values.get('foreign_messages', 0)) > 3:
            reported.append(report)
        return up.process.poll() is not None

    client.until(disturb, 100.0)
    probe.close()
    assert up.process.wait(60) == 0, up.output
    assert metrics(out) == metrics(tmp_path / 'train')
    assert any(report.level == 1 for report in reported)
    assert any(int(report.values['foreign_publishers']) >= 2 for report in reported)


def test_cancelled_goals_get_results_and_the_run_is_not_called_complete(
    begin, client: GraphClient, tmp_path: Path
) -> None:
    suite, out = write_suite(tmp_path, horizon=60), tmp_path / 'run'
    up = begin('--tasks', 'g-08', *options(suite, out, iterations=2000))
    client.listen(ActiveTask, 'active_task')
    assert client.until(lambda: len(metrics(out)) > 1), up.output
    first = client.send_goal(TrainTask, 'train_task', task='g-08')
    refused = client.result(client.send_goal(TrainTask, 'train_task', task='g-12'), 30.0)
    assert refused.result.error_code == ErrorCode.BUSY
    assert 'g-08' in refused.result.message
    second = client.send_goal(TrainTask, 'train_task', task='g-12', preempt=True)
    result = client.result(first, 60.0).result
    assert (result.error_code, result.success) == (ErrorCode.SUPERSEDED, False)
    evaluation = client.send_goal(EvaluateTask, 'evaluate_task', task='g-08', trajectories=2000)
    client.spin(0.5)
    evaluation.cancel_goal_async()
    done = client.result(evaluation, 60.0)
    assert (done.status, done.result.error_code) == (
        GoalStatus.STATUS_CANCELED,
        ErrorCode.CANCELED,
    )
    assert client.until(lambda: client.latest['active_task'].task == 'g-12'), up.output
    before = client.latest['active_task'].policy_version
    assert client.until(lambda: client.latest['active_task'].policy_version > before), up.output
    second.cancel_goal_async()
    done = client.result(second, 60.0)
    assert done.status == GoalStatus.STATUS_CANCELED
    assert (done.result.parked, done.result.error_code) == (True, ErrorCode.CANCELED)
    third = client.send_goal(TrainTask, 'train_task', task='g-08')
    third.cancel_goal_async()
    assert client.result(third, 60.0).status == GoalStatus.STATUS_CANCELED
    client.until(lambda: False, 3.0)
    assert up.process.poll() is None, up.output
    assert 'all tasks are learned' not in up.output


PARENT = r"""
import os, subprocess, sys, time
words = [sys.executable, '-m', 'lpgftw_ros.nodes.policy']
prefix = ['sh', '-c', 'exec "$@" & echo $!; wait', 'sh'] if sys.argv[1] == 'prefix' else []
environment = {**os.environ, 'LPGFTW_PARENT': str(os.getpid())}
child = subprocess.Popen([*prefix, *words], env=environment)
sys.stdout.write(f'{child.pid}\n')  # in one piece: the shell writes to the same pipe
sys.stdout.flush()
time.sleep(600)
"""


@pytest.mark.parametrize('how', ['direct', 'prefix'])
def test_nodes_end_with_the_process_that_started_them(ros_domain: int, how: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, '-c', PARENT, how], stdout=subprocess.PIPE, text=True
    )
    try:
        pids = [int(parent.stdout.readline()) for _ in range(2 if how == 'prefix' else 1)]
        probe = Probe()
        assert wait_for(lambda: '/policy' in probe.reports, 40.0, lambda: probe.look(0.2))
        pid = int(probe.reports['/policy'].values['pid'])
        probe.close()
        assert pid in pids
    finally:
        parent.send_signal(signal.SIGTERM)
        parent.wait(10)
    gone = wait_for(lambda: not Path(f'/proc/{pid}').exists(), 6.0)
    if not gone:
        os.kill(pid, signal.SIGKILL)
    assert gone
