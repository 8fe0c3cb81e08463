"""Learning on the arm: the learner trains through `arm_bridge` as it does in simulation."""

import json

import numpy as np
import pytest
from rclpy.action import ActionClient

from lpgftw_interfaces.action import TrainTask

from .arm_cell import ArmCell, PATIENT, write_limits, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]
ITERATIONS = 10
SETTINGS = 'max_kl=0.05;evaluation_episodes=1;stochastic_episodes=0;update_trajectories=1'
FAST = {
    'max_speed': 0.25,
    'max_acceleration': 3.0,
    'joint_velocity_scale': 0.6,
    'hand_error': 0.03,
}
"""Two and a half times the shipped speed, and so the distance a late report is off."""


@pytest.fixture(scope='module')
def cell(ros_domain, tmp_path_factory):
    folder = tmp_path_factory.mktemp('learning')
    cell = ArmCell(
        suite=write_suite(folder, horizon=36),
        limits_file=write_limits(folder, **FAST, **PATIENT),
        full_speed=0.25,
        reward='reach',
        settings=SETTINGS,
        iterations=ITERATIONS,
        trajectories=4,
        out=str(folder / 'run'),
    )
    cell.folder = folder
    yield cell
    cell.stop()


def test_ten_iterations_on_the_arm_raise_the_return(cell):
    cell.ready()
    client = ActionClient(cell.node, TrainTask, 'train_task')
    assert cell.until(client.server_is_ready, 60.0)
    accepted = client.send_goal_async(TrainTask.Goal(task='reach'))
    assert cell.until(accepted.done, 30.0)
    result = accepted.result().get_result_async()
    assert cell.attend(result.done, 500.0)
    assert result.result().result.success, result.result().result.message
    lines = (cell.folder / 'run' / 'metrics.jsonl').read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row['kind'] == 'iteration']
    returns = [row['return_mean'] for row in rows]
    assert len(returns) == ITERATIONS
    assert np.mean(returns[-3:]) > np.mean(returns[:3])
