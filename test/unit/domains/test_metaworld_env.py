"""The Meta-World vector environment: rows, goals, seeds, failures, looks."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from lpgftw_ros.domains.metaworld.env import MetaWorldVectorEnv
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.errors import InvalidConfig, NonFinite, UnknownName, WrongShape

GOALS = [[-0.1, 0.8, 0.2], [0.1, 0.85, 0.1], [0.0, 0.9, 0.3]]


def play(env, seed=0, steps=20, first=0):
    rng = np.random.default_rng(5)
    seen = [env.reset(seed=seed, options={'first': first})[0]]
    rewards = []
    for _ in range(steps):
        obs, reward, *_ = env.step(rng.uniform(-1, 1, (env.num_envs, 4)))
        seen.append(obs)
        rewards.append(reward)
    return np.array(seen), np.array(rewards)


def test_restored_resets_replay_exactly():
    env = MetaWorldVectorEnv('pick-place', 3)
    first, second = play(env), play(env)
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1].tobytes() == second[1].tobytes()


@pytest.mark.parametrize('task', ['bin-picking', 'basketball'])
def test_rows_do_not_disturb_each_other(task):
    # bin-picking remembers a distance, basketball's target is a view into the simulator.
    together = play(MetaWorldVectorEnv(task, 2, reward='v2'))
    rng, alone = np.random.default_rng(5), MetaWorldVectorEnv(task, 1, reward='v2')
    alone.reset(seed=0)
    rewards = [alone.step(rng.uniform(-1, 1, (2, 4))[1:])[1][0] for _ in range(20)]
    assert rewards == together[1][:, 1].tolist()


def test_two_environments_of_one_task_share_the_model_and_nothing_else():
    left = MetaWorldVectorEnv('drawer-close', 1, object=[-0.1, 0.9, 0.0])
    alone = play(left)[1]
    right = MetaWorldVectorEnv('drawer-close', 1, object=[0.1, 0.9, 0.0], reward='v2')
    left.reset()
    right.reset()
    rng, rewards = np.random.default_rng(5), []
    for _ in range(20):
        action = rng.uniform(-1, 1, (1, 4))
        rewards.append(left.step(action)[1])
        right.step(action)
    np.testing.assert_array_equal(rewards, alone)


@pytest.fixture(scope='module', params=[2, 3])
def pool(request):
    pool = Workers(request.param)
    yield pool
    pool.close()


def test_workers_do_not_change_a_byte(pool):
    settings = {'num_envs': 5, 'goal': GOALS, 'observation': 'full39'}
    here = play(MetaWorldVectorEnv('reach', **settings), seed=3)
    there = play(MetaWorldVectorEnv('reach', pool=pool, **settings), seed=3)
    assert here[0].tobytes() == there[0].tobytes()
    assert here[1].tobytes() == there[1].tobytes()


def test_joint_state_follows_its_row_into_the_workers(pool):
    here, there = MetaWorldVectorEnv('reach', 3), MetaWorldVectorEnv('reach', 3, pool=pool)
    play(here)
    play(there)
    np.testing.assert_array_equal(here.joint_state(2)[1], there.joint_state(2)[1])


def test_paper6_is_hand_and_object_of_the_full_observation():
    full = play(MetaWorldVectorEnv('push', 2, observation='full39'))[0]
    short = play(MetaWorldVectorEnv('push', 2))[0]
    np.testing.assert_array_equal(short, full[..., [0, 1, 2, 4, 5, 6]])


def goals_of(env, seed, first=0):
    return env.reset(seed=seed, options={'first': first})[0][:, 36:].tolist()


def test_each_trajectory_draws_its_goal_by_seed_and_index():
    env = MetaWorldVectorEnv('reach', 8, goal=GOALS, observation='full39')
    other = MetaWorldVectorEnv('reach', 4, goal=GOALS, observation='full39')
    assert goals_of(other, 11, first=4) == goals_of(env, 11)[4:]


def test_another_seed_draws_other_goals():
    env = MetaWorldVectorEnv('reach', 8, goal=GOALS, observation='full39')
    assert goals_of(env, 1) != goals_of(env, 2)


def test_drawn_goals_are_those_of_the_list():
    env = MetaWorldVectorEnv('reach', 8, goal=GOALS, observation='full39')
    assert all(goal in GOALS for goal in goals_of(env, 0))


def test_fixed_goals_make_resets_deterministic():
    assert MetaWorldVectorEnv('reach').deterministic_resets
    assert not MetaWorldVectorEnv('reach', goal=GOALS).deterministic_resets


def test_the_global_random_state_is_neither_used_nor_changed():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = play(MetaWorldVectorEnv('reach', 2, goal=GOALS))
    after = np.random.get_state()[1].copy()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    second = play(MetaWorldVectorEnv('reach', 2, goal=GOALS))
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(first[0], second[0])


def test_the_horizon_truncates():
    env = MetaWorldVectorEnv('reach', 1, horizon=3)
    env.reset()
    ends = [env.step(np.zeros((1, 4)))[3][0] for _ in range(3)]
    assert ends == [False, False, True]


def test_a_nan_action_is_refused_before_anything_moves():
    env = MetaWorldVectorEnv('reach', 2)
    env.reset()
    before = env.joint_state(0)[1]
    with pytest.raises(NonFinite, match='row 1'):
        env.step(np.array([[0.0] * 4, [0.0, np.nan, 0.0, 0.0]]))
    np.testing.assert_array_equal(env.joint_state(0)[1], before)


def test_a_wrong_action_shape_is_refused():
    env = MetaWorldVectorEnv('reach', 2)
    env.reset()
    with pytest.raises(WrongShape, match='expected'):
        env.step(np.zeros((2, 3)))


def test_a_row_that_blows_up_is_marked_and_the_others_go_on():
    env = MetaWorldVectorEnv('pick-place', 3)
    calm = play(MetaWorldVectorEnv('pick-place', 3), steps=3)[0]
    env.reset(seed=0)
    env._host._states[1, 20] = 1e12  # a velocity MuJoCo calls unstable
    rng = np.random.default_rng(5)
    for _ in range(3):
        obs, rewards, terminated, _, infos = env.step(rng.uniform(-1, 1, (3, 4)))
    assert infos['failed'].tolist() == [False, True, False]
    assert terminated.tolist() == [False, True, False]
    assert rewards[1] == 0.0
    assert np.isfinite(obs).all()
    np.testing.assert_array_equal(obs[[0, 2]], calm[-1][[0, 2]])


def test_a_reward_upstream_cannot_compute_fails_the_row(monkeypatch):
    env = MetaWorldVectorEnv('reach', 1)
    env.reset()

    def refuse(action, obs):
        raise ValueError('margin must be non-negative')

    monkeypatch.setitem(env._host._row_scenes[0].fields, 'compute_reward', refuse)
    env._host._engine._scene = None
    assert env.step(np.zeros((1, 4)))[4]['failed'].tolist() == [True]


def test_joint_names_start_with_the_arm():
    env = MetaWorldVectorEnv('drawer-close', 2)
    env.reset()
    names, positions, velocities = env.joint_state(1)
    assert names[:7] == tuple(f'right_j{i}' for i in range(7))
    assert len(names) == len(positions) == len(velocities)


def test_a_picture_of_a_row_or_a_clear_error():
    code = (
        'from lpgftw_ros.domains.metaworld.env import MetaWorldVectorEnv\n'
        'from lpgftw_ros.errors import LpgftwError\n'
        'env = MetaWorldVectorEnv("reach", 1)\n'
        'env.reset()\n'
        'try:\n'
        '    frame = env.render_frame(0, width=64, height=48)\n'
        '    assert frame.shape == (48, 64, 3) and frame.dtype == "uint8" and frame.std() > 10\n'
        'except LpgftwError as error:\n'
        '    assert "OpenGL" in str(error)\n'
    )
    environment = {**os.environ, 'MUJOCO_GL': 'egl'}
    subprocess.run([sys.executable, '-c', code], env=environment, check=True)


def test_stepping_before_reset_is_refused():
    with pytest.raises(gymnasium.error.ResetNeeded):
        MetaWorldVectorEnv('reach').step(np.zeros((1, 4)))


@pytest.mark.parametrize(
    ('settings', 'error'),
    [
        ({'task': 'nothing'}, UnknownName),
        ({'goal': [5.0, 5.0, 5.0]}, InvalidConfig),
        ({'num_envs': 0}, InvalidConfig),
        ({'horizon': 0}, InvalidConfig),
        ({'workers': -1}, InvalidConfig),
    ],
)
def test_wrong_arguments_are_refused_at_once(settings, error):
    with pytest.raises(error):
        MetaWorldVectorEnv(**settings)


def test_memory_of_models_that_were_let_go_goes_back_to_the_system():
    code = (
        'import re\n'
        'from lpgftw_ros.domains.metaworld import engine as engines\n'
        'def resident():\n'
        '    with open("/proc/self/smaps_rollup") as file:\n'
        '        return int(re.search(r"Rss:\\s+(\\d+)", file.read())[1])\n'
        'for task in ("reach", "push", "door-open", "drawer-open"):\n'
        '    engines.engine(task)\n'
        'engines.engine.cache_clear()\n'
        'kept = resident()\n'
        'engines._give_back_memory()\n'
        'print(kept, resident())\n'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, check=True)
    kept, after = (int(word) for word in done.stdout.split())
    assert after < kept - 20_000  # kB
