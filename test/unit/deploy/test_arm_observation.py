"""Frames, scales, gripper and rewards on an arm."""

import math

import numpy as np
import pytest

from lpgftw_ros.deploy.observation import (
    ArmReward,
    ControlSettings,
    FINGERTIPS,
    Frame,
    goal_of,
    Gripper,
    hand_velocity,
    observation,
)
from lpgftw_ros.errors import InvalidConfig, NonFinite, UnknownName

TABLE = Frame.from_numbers((0.3, 0.0, 0.1), (0.0, 0.0, -math.pi / 2))
HOME = Frame.from_numbers((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def test_a_frame_takes_training_y_to_base_x_for_a_table_in_front():
    seen = TABLE.to_training(np.array([0.9, 0.0, 0.3]))
    np.testing.assert_allclose(seen, [0.0, 0.6, 0.2], atol=1e-12)


def test_points_and_directions_are_turned_the_same_way():
    frame = Frame.from_numbers((0.1, -0.2, 0.3), (0.3, -0.4, 0.5))
    point = np.array([0.4, 0.5, 0.6])
    in_base = frame.turn_to_base(point) + frame.translation
    np.testing.assert_allclose(frame.to_training(in_base), point)


def test_moving_as_an_action_says_changes_the_observation_by_that_action():
    settings, action = ControlSettings(), np.array([0.2, -0.5, 0.4, 0.0])
    hand, target = np.array([0.8, 0.1, 0.3]), np.array([0.9, 0.0, 0.2])
    moved = hand + hand_velocity(TABLE, settings, action) * settings.period
    change = observation(TABLE, moved, target) - observation(TABLE, hand, target)
    expected = action[:3] * settings.full_speed * settings.period
    np.testing.assert_allclose(change, [*expected, 0.0, 0.0, 0.0], atol=1e-12)


def test_no_action_is_faster_than_full_speed():
    velocity = hand_velocity(TABLE, ControlSettings(), np.array([9.0, -9.0, 9.0, 0.0]))
    assert np.linalg.norm(velocity) == pytest.approx(0.10)


def test_an_action_that_is_not_finite_is_refused():
    with pytest.raises(NonFinite):
        hand_velocity(HOME, ControlSettings(), np.array([0.0, np.nan, 0.0, 0.0]))


def test_a_speed_above_the_cap_must_be_asked_for():
    with pytest.raises(InvalidConfig, match='speed_cap_raised'):
        ControlSettings(full_speed=0.3)


def test_the_horizon_grows_with_the_speed_ratio():
    assert ControlSettings(rate=20.0, full_speed=0.1).horizon(150) == 300


def test_the_gripper_ignores_small_values():
    gripper = Gripper(0.3)
    decisions = [gripper.decide(a) for a in (0.2, 0.5, 0.1, -0.2, -0.4, 0.0)]
    assert decisions == [-1.0, 1.0, 1.0, 1.0, -1.0, -1.0]


GOAL = np.array([-0.1, 0.8, 0.2])


def test_reach_is_solved_within_five_centimetres():
    reward = ArmReward('reach', GOAL)
    near, far = GOAL - FINGERTIPS + [0.04, 0, 0], GOAL - FINGERTIPS + [0.06, 0, 0]
    assert [reward.judge(hand, GOAL)[1] for hand in (near, far)] == [True, False]


def test_reach_pays_more_the_nearer_the_fingers_are():
    reward = ArmReward('reach', GOAL)
    reward.reset(np.array([0.0, 0.6, 0.2]), GOAL)
    paid = [reward.judge(GOAL - FINGERTIPS + [x, 0, 0], GOAL)[0] for x in (0.2, 0.1, 0.05, 0.0)]
    assert paid == sorted(paid)


def test_reach_pays_what_the_simulator_pays():
    from lpgftw_ros.domains.sampler import Sampler

    with Sampler('demo', workers=1) as sampler:
        env = sampler.env('reach', 1)
        observations, _ = env.reset(seed=0)
        reward = ArmReward('reach', GOAL)
        reward.reset(observations[0, :3], observations[0, 3:])
        rng, pairs = np.random.default_rng(0), []
        for _ in range(30):
            action = np.clip((GOAL - FINGERTIPS - observations[0, :3]) * 10, -1, 1)
            observations, theirs, *_ = env.step(np.append(action, rng.uniform(-1, 1))[None])
            ours, _ = reward.judge(observations[0, :3], observations[0, 3:])
            pairs.append((ours, float(theirs[0])))
    np.testing.assert_allclose(*np.array(pairs).T, rtol=0.1)


@pytest.mark.parametrize('kind', ['push', 'drawer-close'])
def test_moving_the_object_pays_only_at_the_object(kind):
    reward, target = ArmReward(kind, GOAL), GOAL + np.array([0.0, -0.1, 0.0])
    reward.reset(np.array([0.0, 0.6, 0.2]), GOAL + np.array([0.0, -0.2, 0.0]))
    touching, away = target - FINGERTIPS, target - FINGERTIPS + [0.1, 0.0, 0.0]
    assert reward.judge(touching, target)[0] > 50.0 > 0.0 > reward.judge(away, target)[0]


@pytest.mark.parametrize(('kind', 'radius'), [('push', 0.05), ('drawer-close', 0.065)])
def test_the_object_must_be_at_the_goal(kind, radius):
    reward, hand = ArmReward(kind, GOAL), GOAL
    along = np.array([0.0, 1.0, 0.0])
    results = [reward.judge(hand, GOAL + d * along)[1] for d in (radius - 1e-3, radius + 1e-3)]
    assert results == [True, False]


@pytest.mark.parametrize('given', ['a', '0.1 0.2', '0 0 inf', '1 2 3 4'])
def test_a_goal_that_is_not_three_numbers_is_refused(given):
    with pytest.raises(InvalidConfig, match='goal must be three numbers'):
        goal_of('reach', given, {'goal': [0.0, 0.0, 0.0]})


@pytest.mark.parametrize(('kind', 'needs'), [('reach', 'goal'), ('drawer-close', 'object')])
@pytest.mark.parametrize('place', [None, [[0.0, 0.8, 0.2], [0.1, 0.8, 0.2]]])
def test_a_task_without_one_goal_asks_for_one(kind, needs, place):
    with pytest.raises(InvalidConfig, match='give goal') as refusal:
        goal_of(kind, '', {} if place is None else {needs: place})
    assert f"'{needs}'" in str(refusal.value)


def test_the_goal_is_the_one_given_or_that_of_the_suite():
    settings = {'goal': [1, 2, 3], 'object': [0.0, 0.9, 0.0]}
    found = [goal_of('reach', given, settings).tolist() for given in ('4 5 6', '')]
    assert found == [[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]]
    np.testing.assert_allclose(goal_of('drawer-close', '', settings), [0.0, 0.74, 0.09])


def test_an_unknown_task_has_no_built_in_reward():
    with pytest.raises(UnknownName, match='reach'):
        ArmReward('hammer', GOAL)
