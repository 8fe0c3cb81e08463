"""Odd messages to a live graph: no node dies, no number changes, every refusal is answered."""

from collections.abc import Iterator
from pathlib import Path
import random
import time

from action_msgs.msg import GoalStatus
import pytest
from rclpy.action import ActionClient

from lpgftw_interfaces.action import CollectRollouts, EvaluateTask, TrainTask
from lpgftw_interfaces.msg import (
    Actions,
    ActiveTask,
    Knowledge,
    Observations,
    TaskPolicy,
    Trajectories,
)
from lpgftw_interfaces.srv import LoadKnowledge, LoadTask, SaveKnowledge, SwitchTask
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.steering import Probe

from .fuzzing import message
from .lifelong_graph import GraphClient, metrics, options, scores, train, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]
TOPICS = (
    (Observations, 'observations', qos.LOCK_STEP),
    (Actions, 'actions', qos.LOCK_STEP),
    (Trajectories, 'trajectories', qos.BATCHES),
    (Knowledge, 'knowledge', qos.LATCHED),
    (TaskPolicy, 'task_policy', qos.LATCHED),
    (ActiveTask, 'active_task', qos.LATCHED),
)
HUGE = 4_000_000_000
REQUESTS = (
    (SwitchTask, 'switch_task', {}),
    (LoadTask, 'load_task', {'task': 'g-08', 'n': HUGE}),
    (LoadTask, 'load_task', {}),
    (LoadKnowledge, 'load_knowledge', {}),
    (SaveKnowledge, 'save_knowledge', {'path': 'RUN/checkpoints/iteration.safetensors'}),
    (SaveKnowledge, 'save_knowledge', {'path': 'RUN/config.yaml'}),
    (SaveKnowledge, 'save_knowledge', {'path': '/nowhere/at/all.safetensors'}),
)
GOALS = (
    (TrainTask, 'train_task', {'task': 'g-08', 'trajectories': HUGE}),
    (TrainTask, 'train_task', {'task': 'g-08', 'iterations': HUGE}),
    (TrainTask, 'train_task', {'task': 'g-08', 'unknown': True}),
    (TrainTask, 'train_task', {}),
    (EvaluateTask, 'evaluate_task', {'task': 'g-08', 'trajectories': HUGE}),
    (EvaluateTask, 'evaluate_task', {}),
    (CollectRollouts, 'collect', {'n_trajectories': HUGE}),
    (CollectRollouts, 'collect', {}),
)
SECONDS = 45.0


class Fuzzer:
    """Sends odd messages; the run's own name is sometimes on them, its secret never."""

    def __init__(self, client: GraphClient, out: Path, seed: int) -> None:
        self._client, self._out, self._rng = client, out, random.Random(seed)
        self.sent = self.asked = self.refused = 0
        node = client.node
        self._publishers = [(kind, node.create_publisher(kind, *how)) for kind, *how in TOPICS]
        self._actions = {name: ActionClient(node, kind, name) for kind, name, _ in GOALS}
        self.run_id = ''

    def publish(self) -> None:
        kind, publisher = self._rng.choice(self._publishers)
        odd = message(kind, self._rng)
        named = odd.key if hasattr(odd, 'key') else odd
        if self._rng.random() < 0.7:
            named.run_id = self.run_id
        publisher.publish(odd)
        self.sent += 1

    def ask(self) -> None:
        kind, name, fields = self._rng.choice(REQUESTS)
        request = message(kind.Request, self._rng)
        for field, value in fields.items():
            text = value.replace('RUN', str(self._out)) if isinstance(value, str) else value
            setattr(request, field, text)
        if 'task' not in fields and hasattr(request, 'task') and request.task == 'g-08':
            request.task = 'no such task'
        if name == 'save_knowledge' and not request.path:
            return
        sent = {n: getattr(request, n) for n in kind.Request.get_fields_and_field_types()}
        answer = self._client.call(kind, name, 20.0, **sent)
        self.asked += 1
        assert not answer.success, (name, sent)
        assert answer.error_code, (name, sent)
        assert answer.message
        self.refused += 1

    def aim(self) -> None:
        kind, name, fields = self._rng.choice(GOALS)
        goal = message(kind.Goal, self._rng)
        for field, value in fields.items():
            setattr(goal, field, value)
        if not fields and hasattr(goal, 'task') and goal.task == 'g-08':
            goal.task = ''
        if name == 'collect':
            goal.key.run_id = self._rng.choice(('', self.run_id, 'another'))
            goal.key.task = goal.key.task if fields else 'no such task'
        client = self._actions[name]
        assert client.wait_for_server(20.0)
        sent = client.send_goal_async(goal)
        assert self._client.until(sent.done, 20.0), f'{name} was not answered'
        assert sent.result().accepted
        result = self._client.result(sent.result(), 20.0)
        self.asked += 1
        assert result.status == GoalStatus.STATUS_ABORTED, (name, goal)
        assert result.result.error_code, (name, goal)
        self.refused += 1


@pytest.fixture
def client(ros_domain: int) -> Iterator[GraphClient]:
    client = GraphClient()
    yield client
    client.close()


def test_odd_messages_change_nothing(start, client: GraphClient, tmp_path: Path) -> None:
    suite, out, probe = write_suite(tmp_path, horizon=60), tmp_path / 'up', Probe()
    train(options(suite, tmp_path / 'train', iterations=40))
    up = start('--run-id', 'fuzzed', *options(suite, out, iterations=40))
    assert client.until(lambda: len(metrics(out)) > 1), up.output
    fuzzer = Fuzzer(client, out, seed=1)
    fuzzer.run_id = 'fuzzed'
    turns = (fuzzer.publish, fuzzer.publish, fuzzer.publish, fuzzer.ask, fuzzer.aim)
    end, rng = time.monotonic() + SECONDS, random.Random(2)
    seen: dict[str, set[str]] = {}
    while time.monotonic() < end and up.process.poll() is None:
        try:
            rng.choice(turns)()
        except AssertionError:  # a graph whose last task is learned ends, and answers nobody
            if not client.until(lambda: up.process.poll() is not None, 10.0):
                raise
        probe.look(0.01)
        for name, report in probe.reports.items():
            seen.setdefault(name, set()).add(report.values['pid'])
    probe.close()
    print(f'sent {fuzzer.sent}, asked {fuzzer.asked}, refused {fuzzer.refused}, died 0')
    assert {name: len(pids) for name, pids in seen.items()} == dict.fromkeys(seen, 1), up.output
    assert len(seen) == 3
    assert fuzzer.sent > 100
    assert fuzzer.refused == fuzzer.asked > 30
    assert up.process.wait(240) == 0, up.output
    assert not any('starting again' in line for line in up.lines)
    assert metrics(out) == metrics(tmp_path / 'train')
    assert scores(out) == scores(tmp_path / 'train')
