"""Policies without a learner: switch by service, run episodes, stop."""

from collections.abc import Iterator
from pathlib import Path

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import pytest
from std_srvs.srv import Trigger

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import ActiveTask, RolloutKey, Trajectories
from lpgftw_interfaces.srv import ListTasks, LoadTask, SwitchTask
from lpgftw_ros.nodes import qos

from .lifelong_graph import GraphClient, options, train, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]


@pytest.fixture(scope='module')
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('policies')
    suite = write_suite(folder, horizon=40)
    train([*options(suite, folder / 'run', iterations=1), '--tasks', 'g-08,g-12'])
    return folder / 'run'


@pytest.fixture(scope='module', params=['--no-composed', '--composed'])
def graph(start, run_folder: Path, request) -> Iterator[tuple[GraphClient, object]]:
    up = start('--policy-from', str(run_folder), '--realtime-factor', '20', request.param)
    client = GraphClient()
    client.listen(ActiveTask, 'active_task')
    assert client.until(lambda: 'active_task' in client.latest), up.output
    yield client, up
    client.close()
    up.stop()


def tasks_run(client: GraphClient) -> list[str]:
    """Listen to the trajectories the bridge sends from now on."""
    heard: list[str] = []
    client.node.create_subscription(
        Trajectories, 'trajectories', lambda message: heard.append(message.key.task), qos.BATCHES
    )
    return heard


def test_the_policies_of_the_run_are_listed(graph) -> None:
    listed = graph[0].call(ListTasks, 'list_tasks')
    assert [(t.task, t.has_policy) for t in listed.tasks] == [('g-08', True), ('g-12', True)]
    assert listed.active == 'g-08'


def test_learning_and_unknown_tasks_are_refused(graph) -> None:
    client, _ = graph
    refused = client.call(SwitchTask, 'switch_task', task='g-12', learn=True)
    assert not refused.success
    assert 'no learner' in refused.message
    unknown = client.call(SwitchTask, 'switch_task', task='g-99')
    assert not unknown.success
    assert 'g-08, g-12' in unknown.message


def test_episodes_follow_the_active_task_until_stop(graph) -> None:
    client, up = graph
    heard = tasks_run(client)
    assert client.until(lambda: client.call(Trigger, 'sim_bridge/run').success, 20.0)
    assert client.until(lambda: 'g-08' in heard), up.output
    assert client.call(SwitchTask, 'switch_task', task='g-12').success
    assert client.until(lambda: client.latest['active_task'].task == 'g-12', 5.0)
    assert client.until(lambda: 'g-12' in heard), up.output
    assert client.call(Trigger, 'sim_bridge/stop').success
    assert client.call(Trigger, 'sim_bridge/run').success  # the cancelled episode ends no new one
    count = len(heard)
    assert client.until(lambda: len(heard) > count + 1), up.output
    stopped = client.call(Trigger, 'sim_bridge/stop')
    assert 'stopped after' in stopped.message
    client.until(lambda: False, 0.5)  # what was on its way has come
    count = len(heard)
    client.until(lambda: False, 0.7)
    assert len(heard) == count
    assert client.call(SwitchTask, 'switch_task', task='g-08').success


def test_what_can_never_be_answered_is_refused_at_once(graph) -> None:
    client, _ = graph
    goal = client.send_goal(
        CollectRollouts, 'collect', key=RolloutKey(task='g-06', rollout=1), n_trajectories=1
    )
    refused = client.result(goal).result
    assert (refused.success, refused.retry) == (False, False)
    assert 'g-06' in refused.message


def test_an_inactive_policy_answers_nobody(graph) -> None:
    client, up = graph
    heard = tasks_run(client)
    assert client.until(lambda: client.call(Trigger, 'sim_bridge/run').success, 20.0)
    assert client.until(lambda: heard), up.output
    for step in (Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_ACTIVATE):
        change = client.call(ChangeState, 'policy/change_state', transition=Transition(id=step))
        assert change.success
        client.until(lambda: False, 0.5)  # the episode that had its answer ends
        count = len(heard)
        goes_on = client.until(lambda count=count: len(heard) > count, 2.0)
        assert goes_on == (step == Transition.TRANSITION_ACTIVATE), up.output
    assert client.call(Trigger, 'sim_bridge/stop').success


def test_the_bridge_loads_tasks_of_its_suite(graph) -> None:
    client, _ = graph
    loaded = client.call(LoadTask, 'load_task', task='g-06', n=2)
    assert (loaded.success, loaded.n, loaded.horizon) == (True, 2, 40)
    unknown = client.call(LoadTask, 'load_task', task='fly')
    assert not unknown.success
    assert 'g-06' in unknown.message
