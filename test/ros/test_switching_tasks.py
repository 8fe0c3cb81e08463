"""Switching tasks by service while training goes on."""

from collections.abc import Iterator
import math
from pathlib import Path
import statistics
import time
from types import SimpleNamespace

from action_msgs.msg import GoalStatus
import numpy as np
import pytest
from std_srvs.srv import Trigger

from lpgftw_interfaces.action import EvaluateTask, TrainTask
from lpgftw_interfaces.msg import ActiveTask, Knowledge, LearningStatus, TaskPolicy
from lpgftw_interfaces.srv import ListTasks, LoadKnowledge, SaveKnowledge, SwitchTask
from lpgftw_ros.graph.deployment import deploy_options, describe_deployment
from lpgftw_ros.learning.adaptive.recognise import Verdict
from lpgftw_ros.nodes.conversions import knowledge_from_msg, Refused
from lpgftw_ros.nodes.learner_actions import _Training, LearnerActions

from .lifelong_graph import GraphClient, metrics, options, train, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]


@pytest.fixture
def graph(start, tmp_path: Path) -> Iterator[tuple[GraphClient, object, Path]]:
    """Bring up a graph that waits for orders."""
    suite = write_suite(tmp_path, horizon=60)
    out = tmp_path / 'run'
    up = start('--no-autotrain', *options(suite, out, iterations=5))
    client = GraphClient()
    for kind, topic in (
        (ActiveTask, 'active_task'),
        (LearningStatus, 'status'),
        (Knowledge, 'knowledge'),
        (TaskPolicy, 'task_policy'),
    ):
        client.listen(kind, topic)
    assert client.until(lambda: 'status' in client.latest), up.output
    yield client, up, out
    client.close()
    up.stop()


def knowledge(client: GraphClient):
    return knowledge_from_msg(client.latest['knowledge'], None)


def finished(client: GraphClient, task: str) -> bool:
    listed = client.call(ListTasks, 'list_tasks').tasks
    return any(t.task == task and t.state == 'finished' for t in listed)


def test_park_and_continue(graph, tmp_path: Path) -> None:
    client, up, out = graph
    whole = tmp_path / 'whole'
    suite = str(tmp_path / 'tiny.yaml')
    train([*options(suite, whole, iterations=5), '--tasks', 'g-08,g-12'])
    assert client.call(SwitchTask, 'switch_task', task='g-08', learn=True).success
    assert client.until(lambda: finished(client, 'g-08')), up.output
    theta = knowledge(client).policy('g-08').theta
    assert client.call(SwitchTask, 'switch_task', task='g-12', learn=True).success
    assert client.until(lambda: any(r['task'] == 'g-12' for r in metrics(out)))
    answer = client.call(SwitchTask, 'switch_task', task='g-08', learn=False)
    assert answer.success
    assert client.until(lambda: client.latest['active_task'].task == 'g-08', 10.0)
    assert client.latest['active_task'].mode == ActiveTask.ACTING
    assert client.latest['active_task'].policy_version == 0  # that of the knowledge base
    assert client.until(lambda: 'g-12' in knowledge(client).tasks, 10.0)
    np.testing.assert_array_equal(knowledge(client).policy('g-08').theta, theta)
    parked = {t.task: t.state for t in client.call(ListTasks, 'list_tasks').tasks}
    assert parked['g-12'] == 'parked'
    assert client.call(SwitchTask, 'switch_task', task='g-12', learn=True).success
    assert client.until(lambda: finished(client, 'g-12')), up.output
    assert metrics(out) == metrics(whole)
    assert not np.array_equal(knowledge(client).policy('g-08').theta, theta)  # through L alone


def test_an_unknown_task_changes_nothing_and_lists_the_names(graph) -> None:
    client, _, out = graph
    answer = client.call(SwitchTask, 'switch_task', task='g-99', learn=True)
    assert not answer.success
    assert list(answer.tasks) == ['g-08', 'g-12', 'g-06', 'g-10']
    assert 'g-08' in answer.message
    assert metrics(out) == []
    assert not client.call(SwitchTask, 'switch_task', task='g-08', learn=False).success


def test_train_action_gives_feedback_and_a_cancelled_revisit_restores_everything(graph) -> None:
    client, up, _ = graph
    heard: list[TrainTask.Feedback] = []
    for task in ('g-08', 'g-12', 'g-06'):
        handle = client.send_goal(
            TrainTask, 'train_task', lambda f: heard.append(f.feedback), task=task
        )
        result = client.result(handle)
        assert result.status == GoalStatus.STATUS_SUCCEEDED, up.output
        assert result.result.success
    assert [f.iteration for f in heard[:3]] == [1, 2, 3]
    before = knowledge(client)
    handle = client.send_goal(
        TrainTask, 'train_task', lambda f: heard.append(f.feedback), task='g-08', iterations=500
    )
    count = len(heard)
    assert client.until(lambda: len(heard) > count)
    cancelled = handle.cancel_goal_async()
    assert client.until(cancelled.done)
    result = client.result(handle)
    assert result.status == GoalStatus.STATUS_CANCELED
    assert client.until(lambda: not client.latest['status'].state.startswith('sampling'), 10.0)
    after = knowledge(client)
    np.testing.assert_array_equal(after.basis, before.basis)
    for task in before.tasks:
        np.testing.assert_array_equal(after.policy(task).theta, before.policy(task).theta)
    unknown = client.result(client.send_goal(TrainTask, 'train_task', task='nowhere'))
    assert unknown.status == GoalStatus.STATUS_ABORTED
    assert 'g-08' in unknown.result.message


def test_services_answer_at_once_in_the_middle_of_training(graph) -> None:
    client, up, out = graph
    client.send_goal(TrainTask, 'train_task', task='g-08', iterations=100_000)
    assert client.until(lambda: not math.isnan(client.latest['status'].return_mean)), up.output
    seconds = []
    for i in range(200):
        started = time.monotonic()
        kind = (ListTasks, 'list_tasks') if i % 2 else (SwitchTask, 'switch_task')
        fields = {} if i % 2 else {'task': 'nowhere'}
        client.call(*kind, **fields)
        seconds.append(time.monotonic() - started)
    print(f'median {statistics.median(seconds):.4f} s, worst {max(seconds):.4f} s')
    assert client.latest['status'].task == 'g-08'  # it went on learning meanwhile
    assert client.latest['status'].iterations == 100_000
    assert client.call(Trigger, 'pause').success
    assert client.until(lambda: client.latest['status'].state == 'paused', 20.0)
    done = len(metrics(out))
    assert not client.until(lambda: len(metrics(out)) > done, 2.0)
    assert client.call(Trigger, 'resume').success
    assert client.until(lambda: len(metrics(out)) > done + 2, 20.0)
    assert client.call(Trigger, 'stop').success
    assert client.until(lambda: client.latest['status'].state == 'idle', 20.0)
    done = len(metrics(out))
    assert not client.until(lambda: len(metrics(out)) > done, 2.0)


def test_evaluate_save_and_load(graph, tmp_path: Path) -> None:
    client, up, _ = graph
    for task in ('g-08', 'g-12'):
        assert client.result(client.send_goal(TrainTask, 'train_task', task=task)).result.success
    measured = client.result(client.send_goal(EvaluateTask, 'evaluate_task', task='g-08'))
    again = client.result(client.send_goal(EvaluateTask, 'evaluate_task', task='g-08'))
    assert measured.result.success
    assert measured.result.return_mean == again.result.return_mean
    unknown = client.result(client.send_goal(EvaluateTask, 'evaluate_task', task='g-06'))
    assert unknown.status == GoalStatus.STATUS_ABORTED
    path = tmp_path / 'knowledge.safetensors'
    assert client.call(SaveKnowledge, 'save_knowledge', path=str(path)).success
    assert client.until(path.exists, 20.0), up.output
    theta = knowledge(client).policy('g-08').theta
    assert client.result(client.send_goal(TrainTask, 'train_task', task='g-06')).result.success
    loaded = client.call(LoadKnowledge, 'load_knowledge', path=str(path))
    assert (loaded.success, list(loaded.tasks)) == (True, ['g-08', 'g-12'])
    assert client.until(lambda: knowledge(client).version == loaded.version, 20.0)
    np.testing.assert_array_equal(knowledge(client).policy('g-08').theta, theta)
    spoilt = tmp_path / 'spoilt.safetensors'
    spoilt.write_bytes(path.read_bytes()[:-100])
    for wrong in ('/nowhere', str(spoilt)):
        answer = client.call(LoadKnowledge, 'load_knowledge', path=wrong)
        assert (answer.success, answer.version) == (False, loaded.version)
    again = client.result(client.send_goal(EvaluateTask, 'evaluate_task', task='g-08'))
    assert again.result.success
    assert client.result(client.send_goal(TrainTask, 'train_task', task='g-10')).result.success


def test_no_policy_is_tried_in_a_task_without_a_name_where_an_arm_is_attached() -> None:
    actions = object.__new__(LearnerActions)
    actions._arm, actions._worker = True, SimpleNamespace()
    actions._admit = lambda task, trajectories: None
    goal = SimpleNamespace(request=TrainTask.Goal(task='reach', unknown=True))
    with pytest.raises(Refused, match='an arm is attached'):
        actions._train_one(goal).send(None)
    for rehearse in (True, False):
        values = {'limits_file': '' if rehearse else 'limits.yaml', 'reward': 'reach'}
        graph = describe_deployment(deploy_options(values | {'rehearse': rehearse}))
        (learner,) = [p.parameters['learner'] for p in graph.processes if 'learner' in p.nodes]
        assert learner['limits_file']


class Handle:
    """A goal handle that notes how its goal ended."""

    def __init__(self, **fields: object) -> None:
        self.request, self.ended = TrainTask.Goal(**fields), ''
        self.is_cancel_requested = False

    def succeed(self) -> None:
        self.ended = 'succeeded'

    def abort(self) -> None:
        self.ended = 'aborted'


@pytest.mark.parametrize(
    ('kind', 'task', 'ended', 'switched'),
    [
        ('known', 'g-12', 'succeeded', []),
        ('new', 'g-12', 'aborted', ['g-12']),  # learned: the visit ends the goal later
        ('new', 'g-08', 'aborted', []),  # this run has it under this name
    ],
)
def test_what_a_task_without_a_name_is_decides_what_its_goal_does(
    kind: str, task: str, ended: str, switched: list[str]
) -> None:
    begun: list[str] = []
    lifelong = SimpleNamespace(current=SimpleNamespace(number=0), visits=[])
    worker = SimpleNamespace(
        recognise=lambda task, given_up: Verdict(kind, 'g-08', {'g-08': 0.25}, 60),
        knowledge=SimpleNamespace(tasks={'g-08': None}, version=3),
        session=SimpleNamespace(lifelong=lifelong, last_row=None),
        switch=lambda task, learn, iterations, trajectories: begun.append(task),
    )
    actions = object.__new__(LearnerActions)
    actions._worker = worker
    handle = Handle(task=task, unknown=True)
    future = SimpleNamespace(set_result=lambda result: None)
    training = _Training(handle, future)
    actions._begin(training, handle.request)
    assert begun == switched
    assert training.ended == (not switched)
    result = actions._train_result(training)
    assert (handle.ended, result.success) == (ended, kind == 'known')
    assert (result.verdict, result.nearest) == (kind, 'g-08')
    if not switched:
        assert 'distance to g-08 0.25' in result.message
