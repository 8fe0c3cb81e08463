"""Bodies in batches: equal to Gymnasium's, and what a blown-up row leaves behind."""

import gymnasium
import numpy as np
import pytest

from lpgftw_ros.domains.rollout import collect, Rollout
from lpgftw_ros.domains.sampler import make_env
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.errors import NonFinite, SimulationFailed
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

REFERENCES = {
    'halfcheetah': 'HalfCheetah-v5',
    'hopper': 'Hopper-v5',
    'walker2d': 'Walker2d-v5',
}
ROWS = 4


@pytest.fixture
def pool():
    pool = Workers(2)
    yield pool
    pool.close()


def body(name, n, pool, horizon=1000, **settings):
    return make_env(TaskSpec(name, 'body', {'body': name, **settings}, horizon), n, pool)


def references(name, env):
    """Return one Gymnasium environment per row, in the same state."""
    copies = [gymnasium.make(REFERENCES[name]).unwrapped for _ in range(env.num_envs)]
    for row, copy in enumerate(copies):
        copy.reset(seed=0)
        copy.set_state(*env.joint_state(row)[1:])
    return copies


@pytest.mark.parametrize('name', REFERENCES)
def test_300_steps_are_exactly_gymnasiums(name, pool):
    env = body(name, ROWS, pool)
    stream = np.random.default_rng(0)
    steps, episodes = 0, 0
    while steps < 300:
        env.reset(seed=episodes)
        copies, running = references(name, env), np.ones(ROWS, dtype=bool)
        while running.any() and steps < 300:
            actions = stream.normal(0.0, 0.8, (ROWS, env.act_dim))
            seen, rewards, terminated, _, _ = env.step(actions)
            for row in np.flatnonzero(running):
                copies[row].data.qacc_warmstart[:] = 0.0  # a batch does not carry it over
                expected, reward, ended, _, _ = copies[row].step(actions[row])
                np.testing.assert_array_equal(seen[row], expected)
                assert (rewards[row], terminated[row]) == (reward, ended)
            running &= ~terminated
            steps += 1
        episodes += 1


@pytest.mark.parametrize('name', REFERENCES)
def test_starts_have_the_spread_of_gymnasiums(name, pool):
    env, reference = body(name, 400, pool), gymnasium.make(REFERENCES[name]).unwrapped
    ours, _ = env.reset(seed=0)
    theirs = np.array([reference.reset(seed=i)[0] for i in range(400)])
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.2, atol=1e-9)


def test_spaces_are_gymnasiums():
    pool = Workers(1)
    for name, reference in REFERENCES.items():
        env, other = body(name, 1, pool), gymnasium.make(reference)
        assert env.single_observation_space.shape == other.observation_space.shape
        np.testing.assert_array_equal(env.single_action_space.low, other.action_space.low)
        np.testing.assert_array_equal(env.single_action_space.high, other.action_space.high)


def blow_up(env, row):
    """Give one row a velocity no solver survives."""
    env._state[row, -3] = 1e9


@pytest.mark.parametrize('name', REFERENCES)
def test_a_blown_up_row_fails_alone(name, pool):
    env, calm = body(name, ROWS, pool), body(name, ROWS, pool)
    env.reset(seed=1)
    calm.reset(seed=1)
    blow_up(env, 2)
    still = np.zeros((ROWS, env.act_dim))
    seen, rewards, terminated, _, infos = env.step(still)
    expected, expected_rewards, _, _, _ = calm.step(still)
    assert infos['failed'].tolist() == [False, False, True, False]
    assert terminated[2]
    assert np.isfinite(seen).all()
    assert rewards[2] == 0.0
    others = [0, 1, 3]
    np.testing.assert_array_equal(seen[others], expected[others])
    np.testing.assert_array_equal(rewards[others], expected_rewards[others])


def test_a_failed_trajectory_is_cut_before_the_bad_step(pool):
    env = body('halfcheetah', 2, pool, horizon=6)
    rollout = Rollout(env, 2, seed=0, task_name='run')
    while not rollout.done:
        if rollout.step == 3:
            blow_up(env, 1)
        rollout.advance(np.zeros((2, env.act_dim)))
    batch = rollout.batch()
    assert batch.lengths.tolist() == [6, 3]
    assert batch.failed.tolist() == [False, True]
    assert batch.terminated.tolist() == [False, True]
    assert batch.truncated.tolist() == [True, False]


def test_a_trajectory_that_fails_at_once_keeps_its_place_and_its_mark(pool):
    env = body('halfcheetah', 2, pool, horizon=3)
    rollout = Rollout(env, 2, seed=0, task_name='run')
    blow_up(env, 0)
    while not rollout.done:
        rollout.advance(np.zeros((2, env.act_dim)))
    batch = rollout.batch()
    assert batch.lengths.tolist() == [1, 3]
    assert batch.failed.tolist() == [True, False]


def test_no_usable_trajectory_is_an_error(pool):
    env = body('halfcheetah', 2, pool, horizon=3)
    rollout = Rollout(env, 2, seed=0, task_name='run')
    blow_up(env, slice(None))
    rollout.advance(np.zeros((2, env.act_dim)))
    with pytest.raises(SimulationFailed, match="'run': all 2 trajectories"):
        rollout.batch()


def test_an_unstable_row_writes_no_file(pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = body('hopper', 2, pool)
    env.reset(seed=0)
    blow_up(env, 0)
    env.step(np.zeros((2, 3)))
    assert not list(tmp_path.iterdir())


def test_a_nan_action_names_its_row_and_moves_nothing(pool):
    env = body('hopper', 3, pool)
    env.reset(seed=0)
    before = env._state.copy()
    actions = np.zeros((3, 3))
    actions[1, 2] = np.nan
    with pytest.raises(NonFinite, match='row 1'):
        env.step(actions)
    np.testing.assert_array_equal(env._state, before)


def test_a_wild_policy_gives_a_finite_batch(pool):
    env = body('walker2d', 8, pool, horizon=60)
    spec = PolicySpec(env.obs_dim, env.act_dim)
    policy = PolicySnapshot(spec, np.full(spec.n_parameters, 1e6), np.zeros(0), np.full(6, 5.0))
    batch = collect(env, policy, 8, seed=0)
    assert np.isfinite(batch.rewards).all()


def test_a_fall_need_not_end_the_trajectory(pool):
    env = body('hopper', 2, pool, terminate=False)
    reference = gymnasium.make('Hopper-v5', terminate_when_unhealthy=False).unwrapped
    env.reset(seed=0)
    reference.reset(seed=0)
    reference.set_state(*env.joint_state(0)[1:])
    for _ in range(120):
        _, rewards, terminated, _, _ = env.step(np.ones((2, 3)))
        reference.data.qacc_warmstart[:] = 0.0
        assert reference.step(np.ones(3))[1] == rewards[0]
        assert not terminated.any()
    assert not reference.is_healthy


def test_gravity_changes_the_fall(pool):
    light, heavy = (body('halfcheetah', 1, pool, gravity=g) for g in (0.5, 1.5))
    falls = []
    for env in (light, heavy):
        start = env.reset(seed=0)[0][0, 0]
        for _ in range(3):
            seen, *_ = env.step(np.zeros((1, 6)))
        falls.append(start - seen[0, 0])
    assert falls[1] > falls[0]


def test_joint_state_has_one_entry_per_joint(pool):
    env = body('hopper', 2, pool)
    env.reset(seed=0)
    names, positions, velocities = env.joint_state(1)
    assert names[:3] == ('rootx', 'rootz', 'rooty')
    assert len(names) == len(positions) == len(velocities) == 6
