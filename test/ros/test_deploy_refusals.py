"""What the arm refuses: to learn from nothing, and to begin before the objects are back."""

import pytest
from rclpy.action import ActionClient
from std_srvs.srv import Trigger

from lpgftw_interfaces.action import TrainTask

from .arm_cell import ArmCell, write_limits, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.alone]


@pytest.fixture(scope='module')
def cell(ros_domain, tmp_path_factory):
    """A learner's graph whose bridge has no reward and whose objects cannot be put back."""
    folder = tmp_path_factory.mktemp('cell')
    cell = ArmCell(
        words={
            'arm_bridge': ['-p', "reward:=''"],
            'sawyer_sim': ['-r', 'reset_scene:=not_this_one'],
        },
        suite=write_suite(folder, horizon=45),
        limits_file=write_limits(folder),
        reward='topic',
        out=str(folder / 'run'),
    )
    cell.ready()
    yield cell
    cell.stop()


def refuse(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
    response.message = 'the drawer is stuck'
    return response


def test_nothing_is_collected_to_learn_from_without_a_reward(cell):
    result = cell.collect(explore=True)
    assert cell.until(result.done, 30.0)
    answer = result.result().result
    assert (answer.success, answer.retry, 'no reward' in answer.message) == (False, False, True)


def test_an_episode_does_not_begin_where_the_scene_cannot_be_reset(cell):
    cell.node.create_service(Trigger, 'reset_scene', refuse)
    cell.watch(1.0)
    result = cell.collect()
    assert cell.until(result.done, 60.0)
    answer = result.result().result
    assert (answer.success, 'drawer is stuck' in answer.message) == (False, True), answer.message


def test_train_task_is_refused_without_a_reward_before_anything_moves(cell):
    client = ActionClient(cell.node, TrainTask, 'train_task')
    assert cell.until(client.server_is_ready, 60.0)
    cell.asked.clear()
    accepted = client.send_goal_async(TrainTask.Goal(task='reach'))
    assert cell.until(accepted.done, 30.0)
    result = accepted.result().get_result_async()
    assert cell.until(result.done, 60.0)
    answer = result.result().result
    assert (answer.success, 'no reward' in answer.message) == (False, True), answer.message
    assert all(message.step == 0 for message in cell.asked)
