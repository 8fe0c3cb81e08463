"""Messages that do not fit are dropped, counted and reported; late joiners know everything."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import Actions, Observations, RolloutKey, TaskPolicy, Trajectories
from lpgftw_interfaces.msg import Knowledge as KnowledgeMessage
from lpgftw_interfaces.srv import ListTasks, SwitchTask
from lpgftw_ros.graph.admission import Seal
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import knowledge_from_msg, knowledge_to_msg
from lpgftw_ros.nodes.steering import Probe

from .lifelong_graph import GraphClient, options, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]
SPEC = PolicySpec(17, 6, ())
NAN = float('nan')


def knowledge(version: int = 1, theta: float = 0.1) -> Knowledge:
    d = SPEC.n_parameters
    factors = TaskFactors(np.zeros(0), np.full(d, theta), np.zeros(0), np.zeros(6))
    return Knowledge(version, SPEC, np.zeros((d, 0)), {'g-08': factors})


class Stand:
    """Single nodes and a test that plays the others."""

    def __init__(self) -> None:
        self.client, self.probe = GraphClient('/'), Probe()

    def close(self) -> None:
        self.probe.close()
        self.client.close()

    def reports(self, node: str, condition, timeout: float = 15.0) -> bool:
        def seen() -> bool:
            self.probe.look(0.05)
            report = self.probe.reports.get(node)
            return report is not None and condition(report)

        return self.client.until(seen, timeout)

    def matched(self, topic: str) -> bool:
        return self.client.until(lambda: self.client.node.count_subscribers(topic) > 0, 30.0)


@pytest.fixture
def stand(ros_domain: int) -> Iterator[Stand]:
    stand = Stand()
    yield stand
    stand.close()


def test_the_bridge_drops_wrong_answers_and_takes_the_right_one(
    stand: Stand, node_process, tmp_path: Path
) -> None:
    suite = write_suite(tmp_path, horizon=3)
    words = ('-p', f'suite:={suite}', '-p', 'workers:=1', '-p', 'resend_period:=0.1')
    bridge = node_process('sim_bridge', *words)
    node = stand.client.node
    actions = node.create_publisher(Actions, 'actions', qos.LOCK_STEP)
    wrong = [
        lambda m: {'key': RolloutKey(task='g-08', rollout=8)},
        lambda m: {'key': RolloutKey(run_id='other', task='g-08', rollout=7)},
        lambda m: {'step': m.step + 1},
        lambda m: {'data': array('d', [0.0] * 5)},
        lambda m: {'data': array('d', [NAN] * 12)},
    ]

    def answer(message: Observations) -> None:
        fields = {'key': message.key, 'step': message.step, 'n': 2, 'dim': 6}
        fields['data'] = array('d', [0.0] * 12)
        if wrong:
            fields |= wrong.pop()(message)
        actions.publish(Actions(**fields))

    node.create_subscription(Observations, 'observations', answer, qos.LOCK_STEP)
    assert stand.matched('actions'), bridge.output
    goal = stand.client.send_goal(
        CollectRollouts, 'collect', key=RolloutKey(task='g-08', rollout=7), n_trajectories=2
    )
    result = stand.client.result(goal, 30.0).result
    assert result.success, result.message
    assert (result.n_steps, result.dropped_actions) == (6, 5)
    assert stand.reports('/sim_bridge', lambda r: r.level == 1 and 'dropped 5' in r.message)


def test_a_silent_policy_is_named_and_the_rollout_may_be_asked_for_again(
    stand: Stand, node_process, tmp_path: Path
) -> None:
    words = ('-p', f'suite:={write_suite(tmp_path)}', '-p', 'workers:=1')
    bridge = node_process('sim_bridge', *words, '-p', 'action_timeout:=3.0')
    assert stand.client.until(lambda: bridge.process.poll() is None, 1.0)
    key = RolloutKey(task='g-08')
    goal = stand.client.send_goal(CollectRollouts, 'collect', key=key, n_trajectories=1)
    assert stand.reports('/sim_bridge', lambda r: 'waiting for the policy node' in r.message)
    result = stand.client.result(goal, 30.0).result
    assert (result.success, result.retry) == (False, True)
    assert result.message == 'no answer from the policy node within 3 s'


def test_the_policy_keeps_what_it_has_when_bad_knowledge_comes(stand: Stand, node_process) -> None:
    policy, node = node_process('policy'), stand.client.node
    base = node.create_publisher(KnowledgeMessage, 'knowledge', qos.LATCHED)
    training = node.create_publisher(TaskPolicy, 'task_policy', qos.LATCHED)
    base.publish(knowledge_to_msg(knowledge(), '', Seal('')))  # before the policy is there

    def has(key: str, value: int):
        return lambda report: int(report.values.get(key, -1)) == value

    assert stand.reports('/policy', has('knowledge_version', 1), 30.0), policy.output
    bad = knowledge_to_msg(knowledge(2), '', Seal(''))
    bad.tasks[0].residual[0] = NAN
    base.publish(bad)
    assert stand.reports('/policy', has('refused', 1)), policy.output
    short = knowledge_to_msg(knowledge(2), '', Seal(''))
    short.tasks[0].log_std = array('d', [0.0])
    base.publish(short)
    assert stand.reports('/policy', has('refused', 2))
    training.publish(TaskPolicy(version=5))  # no shape at all
    assert stand.reports('/policy', has('refused', 3))
    assert stand.reports('/policy', lambda r: r.level == 1 and 'dropped' in r.message)
    answers: list[Actions] = []
    node.create_subscription(Actions, 'actions', answers.append, qos.LOCK_STEP)
    ask = node.create_publisher(Observations, 'observations', qos.LOCK_STEP)
    assert stand.matched('observations')
    question = Observations(key=RolloutKey(task='g-08', rollout=4), step=2, n=1, dim=17)
    question.data = array('d', [1.0] * 17)

    def answered() -> bool:
        ask.publish(question)
        stand.client.spin(0.2)
        return bool(answers)

    assert stand.client.until(answered, 15.0), policy.output
    expected = knowledge().policy('g-08').act(np.ones((1, 17)))
    np.testing.assert_array_equal(np.array(answers[0].data), expected[0])
    assert (answers[0].key.rollout, answers[0].step) == (4, 2)


@pytest.mark.parametrize('ask_for', [{'knowledge_version': 9}, {'policy_version': 3}])
def test_a_stale_policy_says_what_it_waits_for(stand: Stand, node_process, ask_for) -> None:
    policy, node = node_process('policy', '-p', 'patience:=0.1'), stand.client.node
    base = node.create_publisher(KnowledgeMessage, 'knowledge', qos.LATCHED)
    base.publish(knowledge_to_msg(knowledge(), '', Seal('')))
    ask = node.create_publisher(Observations, 'observations', qos.LOCK_STEP)
    assert stand.matched('observations'), policy.output
    key = RolloutKey(task='g-08', **ask_for)
    question = Observations(key=key, n=1, dim=17, data=array('d', [1.0] * 17))

    def stale(report) -> bool:
        ask.publish(question)
        return report.level == 3 and 'is asked for' in report.message

    assert stand.reports('/policy', stale, 20.0), policy.output


def test_the_learner_drops_trajectories_it_did_not_ask_for(start, tmp_path: Path) -> None:
    out = tmp_path / 'run'
    up = start('--no-autotrain', *options(write_suite(tmp_path), out, iterations=400))
    client, probe = GraphClient(), Probe()
    try:
        client.listen(KnowledgeMessage, 'knowledge')
        assert client.call(SwitchTask, 'switch_task', task='g-08', learn=True).success, up.output
        publisher = client.node.create_publisher(Trajectories, 'trajectories', qos.BATCHES)

        def dropped() -> bool:
            publisher.publish(Trajectories(key=RolloutKey(rollout=1, task='g-08')))
            probe.look(0.1)
            report = probe.reports.get('/lifelong/learner')
            return report is not None and int(report.values.get('dropped_trajectories', 0)) > 0

        assert client.until(dropped, 30.0), up.output
        assert client.until(lambda: 'knowledge' in client.latest, 10.0)
        assert knowledge_from_msg(client.latest['knowledge'], None).spec.obs_dim == 17
        assert client.call(ListTasks, 'list_tasks').active == 'g-08'
    finally:
        probe.close()
        client.close()
        up.stop()
