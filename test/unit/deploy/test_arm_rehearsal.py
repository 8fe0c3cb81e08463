"""The joint-level arm: its servos, its links, and the whole chain from policy to success."""

from dataclasses import replace

import numpy as np
import pytest

from lpgftw_ros.deploy.arm.plant import ArmPlant, ArmScene, PlantSettings
from lpgftw_ros.deploy.observation import ControlSettings
from lpgftw_ros.deploy.rehearsal import RehearsalEnv
from lpgftw_ros.domains.rollout import collect
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

GAIN = 10.0
REACH_GOAL = np.array([-0.1, 0.8, 0.245])
NOISY = PlantSettings(joint_noise=1.6e-3, object_noise=1e-3)


def linear(rows):
    theta = np.asarray(rows, dtype=np.float64).ravel()
    return PolicySnapshot(PolicySpec(6, 4), theta, np.zeros(0), np.full(4, -3.0))


@pytest.fixture(scope='module')
def reach_policy():
    moves = np.hstack([-GAIN * np.eye(3), np.zeros((3, 3)), GAIN * REACH_GOAL[:, None]])
    return linear(np.vstack([moves, [0, 0, 0, 0, 0, 0, -1.0]]))


@pytest.fixture(scope='module')
def drawer_policy():
    follow = GAIN * np.hstack([-np.eye(3), np.eye(3), np.zeros((3, 1))])
    follow[1] = [0, -3, 0, 0, 3, 0, 0.6]
    return linear(np.vstack([follow, [0, 0, 0, 0, 0, 0, 1.0]]))


@pytest.fixture(scope='module')
def scene(arm):
    return ArmScene(load_suite('demo').task('reach'), arm)


@pytest.fixture(scope='module')
def reach_env():
    task = replace(load_suite('demo').task('reach'), horizon=80)
    return RehearsalEnv(task, plant=NOISY)


@pytest.fixture(scope='module')
def reach_batch(reach_env, reach_policy):
    return collect(reach_env, reach_policy, 1, 3, explore=False, task_name='reach')


def test_the_arm_holds_still_without_commands(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings())
    before = plant.joints
    plant.advance(0.5)
    np.testing.assert_allclose(plant.joints, before, atol=1e-4)


def test_the_joints_follow_commanded_velocities(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings(latency=0.0))
    before, velocities = plant.joints, np.array([0.2, 0.1, -0.1, -0.2, 0.2, 0.1, -0.2])
    for _ in range(20):
        plant.command(velocities, -1.0)
        plant.advance(0.05)
    np.testing.assert_allclose(plant.joints - before, velocities, atol=0.01)


def test_the_joints_reach_commanded_positions_and_stay(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings(command_timeout=5.0))
    target = plant.joints + np.array([0.05, 0.02, -0.02, -0.05, 0.05, 0.02, -0.05])
    plant.follow(target, 0.2, -1.0)
    plant.advance(1.0)
    np.testing.assert_allclose(plant.joints, target, atol=2e-3)


def test_the_driver_holds_the_joints_after_its_timeout(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings(command_timeout=0.1))
    plant.command(np.full(7, 0.2), -1.0)
    plant.advance(0.5)
    stopped = plant.joints
    plant.advance(0.5)
    np.testing.assert_allclose(plant.joints, stopped, atol=1e-3)


def test_a_command_counts_from_when_it_was_sent(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings(latency=0.0, command_timeout=5.0))
    turn, before = np.full(7, 0.2), plant.joints
    plant.command(turn, -1.0, ahead=0.1)  # a simulator that is behind hears of it early
    plant.advance(0.1)
    np.testing.assert_allclose(plant.joints, before, atol=1e-3)
    plant.advance(0.4)
    np.testing.assert_allclose(plant.joints - before, 0.4 * turn, atol=0.01)


def test_a_command_that_comes_too_late_moves_nothing(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings(command_timeout=0.2))
    before = plant.joints
    plant.command(np.full(7, 0.2), -1.0, ahead=-0.3)
    plant.advance(0.5)
    np.testing.assert_allclose(plant.joints, before, atol=1e-4)


def test_measurements_arrive_late(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings(latency=0.05))
    assert (len(plant.advance(0.04)), len(plant.advance(0.04))) == (0, 3)


def test_lost_messages_do_not_arrive(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings(drop_rate=1.0))
    assert plant.advance(0.2) == []


def test_noise_is_as_large_as_set(scene, arm, kinematics):
    plant = ArmPlant(scene, arm, NOISY)
    truth = kinematics.pose(plant.joints).position
    seen = np.array([kinematics.pose(r.joints).position for r in plant.advance(4.0)])
    assert 0.7e-3 < np.sqrt(np.mean((seen - truth) ** 2)) < 1.3e-3


def test_a_command_that_is_not_finite_is_ignored(scene, arm):
    plant = ArmPlant(scene, arm, PlantSettings())
    plant.command(np.full(7, np.nan), -1.0)
    plant.advance(0.1)
    assert np.isfinite(plant.joints).all()


def test_the_scene_starts_where_the_mocap_task_starts(scene, arm, kinematics):
    scene.reset()
    with Sampler('demo', workers=1) as sampler:
        seen, _ = sampler.env('reach', 1).reset(seed=0)
    plant = ArmPlant(scene, arm, PlantSettings())
    hand = kinematics.pose(plant.joints).position
    np.testing.assert_allclose(np.append(hand, scene.object_position()), seen[0], atol=1e-3)


def test_a_task_without_an_arm_is_refused(arm):
    with pytest.raises(InvalidConfig, match='no arm'):
        ArmScene(load_suite('hopper-gravity').tasks[0], arm)


def test_reach_succeeds_on_the_joint_level_arm(reach_batch):
    assert reach_batch.success.all()


def test_the_guard_need_not_intervene_in_a_good_episode(reach_env, reach_batch):
    assert reach_env.safety.count == 0


@pytest.mark.parametrize('interface', ['trajectory', 'twist'])
def test_a_good_episode_passes_the_shipped_limits_on_every_interface(reach_policy, interface):
    task = replace(load_suite('demo').task('reach'), horizon=80)
    env = RehearsalEnv(task, plant=NOISY, interface=interface)
    batch = collect(env, reach_policy, 1, 3, explore=False, task_name='reach')
    assert batch.success.all()
    assert not batch.failed.any()
    assert env.safety.count == 0, env.safety


def test_a_rehearsal_repeats_with_its_seed(reach_env, reach_policy, reach_batch):
    again = collect(reach_env, reach_policy, 1, 3, explore=False, task_name='reach')
    np.testing.assert_array_equal(again.observations, reach_batch.observations)


def test_the_drawer_is_closed_on_the_joint_level_arm(drawer_policy):
    task = replace(load_suite('demo').task('drawer-close'), horizon=80)
    batch = collect(RehearsalEnv(task, plant=NOISY), drawer_policy, 1, 0, explore=False)
    assert batch.success.all()


def test_a_rate_the_graph_refuses_is_not_rehearsed():
    with pytest.raises(InvalidConfig, match='rate 5 Hz'):
        RehearsalEnv(load_suite('demo').task('reach'), control=ControlSettings(rate=5.0))


def test_an_arm_that_loses_its_link_ends_the_episode(reach_policy):
    task = replace(load_suite('demo').task('reach'), horizon=40)
    env = RehearsalEnv(task, plant=replace(NOISY, drop_rate=0.0))
    env.reset(seed=0)
    env.step(np.zeros((1, 4)))
    env.link.plant.settings = replace(NOISY, drop_rate=1.0)
    failed = [env.step(np.zeros((1, 4)))[-1]['failed'][0] for _ in range(8)]
    assert failed[-1]
