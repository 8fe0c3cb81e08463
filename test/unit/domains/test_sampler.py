"""Sampling: the same bytes for any number of workers, in waves, for users' own tasks."""

from pathlib import Path
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest

from lpgftw_ros.domains import env_id, register_all
from lpgftw_ros.domains.rollout import batch_of, collect, Rollout
from lpgftw_ros.domains.sampler import halves, Sampler, task_fingerprint
from lpgftw_ros.domains.suites import load_suite, Suite, suite_names, TaskSpec
from lpgftw_ros.errors import InvalidConfig, SimulationFailed, UnknownName, WrongShape
from lpgftw_ros.learning.policies import ACTING_BLOCK, PolicySnapshot, PolicySpec
from lpgftw_ros.learning.randomness import ExplorationNoise


def policy_for(env, log_std=0.0, hidden=()):
    spec = PolicySpec(env.obs_dim, env.act_dim, hidden)
    rng = np.random.default_rng(0)
    theta = rng.normal(0.0, 0.1, spec.n_parameters)
    head = rng.normal(0.0, 0.1, spec.head_size)
    return PolicySnapshot(spec, theta, head, np.full(env.act_dim, log_std))


def suite_of(**settings):
    task = TaskSpec('only', 'gymnasium', settings, horizon=20)
    return Suite('mine', (task,), horizon=20)


def body_suite(body, horizon=40):
    return Suite('bodies', (TaskSpec('only', 'body', {'body': body}, horizon),), horizon)


def arrays(batch):
    names = ('observations', 'actions', 'rewards', 'lengths', 'final_observations')
    return {name: getattr(batch, name).tobytes() for name in names}


@pytest.mark.parametrize('hidden', [(), (32, 32)])
@pytest.mark.parametrize('body', ['halfcheetah', 'hopper', 'walker2d'])
def test_the_number_of_workers_does_not_change_a_byte(body, hidden):
    batches = []
    for workers in (1, 2, 5):
        with Sampler(body_suite(body, 120), workers) as sampler:
            env = sampler.env('only', 17)
            policy = policy_for(env, hidden=hidden)
            batches.append(arrays(sampler.collect('only', policy, 17, seed=3)))
            assert arrays(collect(env, policy, 17, seed=3)) == batches[0]
    assert batches[0] == batches[1] == batches[2]


@pytest.mark.parametrize(
    ('n', 'workers', 'sizes'),
    [(50, 2, (25, 25)), (10, 2, (5, 5)), (12, 2, (5, 7)), (3, 4, (3,)), (50, 4, (10, 15, 10, 15))],
)
def test_a_rollout_is_split_between_workers_in_blocks(n, workers, sizes):
    with Sampler(body_suite('hopper', 2), workers) as sampler:
        parts = sampler.rollouts('only', n, seed=0)
    assert tuple(part.rows for part in parts) == sizes
    assert all(part.first % ACTING_BLOCK == 0 for part in parts)


@pytest.mark.parametrize(
    ('n', 'workers', 'sizes'),
    [
        (50, 2, (30, 20)),
        (50, 1, (25, 25)),
        (20, 2, (10, 10)),
        (23, 2, (20, 3)),
        (10, 2, (10,)),
        (1, 2, (1,)),
    ],
)
def test_two_parts_in_turns_keep_all_workers_busy(n, workers, sizes):
    assert halves(n, workers) == sizes


@pytest.mark.parametrize(('cores', 'parts'), [(1, 1), (2, 1), (3, 2)])
def test_parts_take_turns_where_a_core_is_left_for_the_policy(monkeypatch, cores, parts):
    monkeypatch.setattr('lpgftw_ros.domains.sampler.available_cores', lambda: cores)
    with Sampler(suite_of(id='Hopper-v5'), 2) as sampler:
        assert len(sampler.turns('only', 23, seed=3)) == parts


def test_parts_in_turns_have_the_bytes_of_one(monkeypatch):
    monkeypatch.setattr('lpgftw_ros.domains.sampler.available_cores', lambda: 3)
    with Sampler(suite_of(id='Hopper-v5'), 2) as sampler:
        policy = policy_for(sampler.env('only', 1))
        expected = arrays(sampler.collect('only', policy, 23, seed=3))
        parts = sampler.turns('only', 23, seed=3)
        assert [part.rows for part in parts] == [20, 3]
        noise = [ExplorationNoise(3, part.rows, 3, part.first) for part in parts]
        while not all(part.done for part in parts):
            for part, own in zip(parts, noise, strict=True):
                if not part.done:
                    part.advance(policy.act(part.observations, own.at(part.step)))
        assert arrays(batch_of(parts)) == expected


def test_bodies_are_asked_for_in_one_part():
    with Sampler(body_suite('hopper', 2), 2) as sampler:
        assert len(sampler.turns('only', 50, seed=0)) == 1


def test_one_failed_part_ends_the_others_and_says_why():
    def fail(actions):
        raise SimulationFailed('enough')

    with Sampler(body_suite('halfcheetah', 1000), 2) as sampler:
        policy = policy_for(sampler.env('only', 1))
        parts = sampler.rollouts('only', 10, seed=0)
        with pytest.raises(SimulationFailed, match='enough'):
            sampler.drive(parts, policy, before_step=fail)
        assert not any(part.done for part in parts)
        parts = sampler.rollouts('only', 10, seed=0)
        parts[1].advance = fail
        with pytest.raises(SimulationFailed, match='enough'):
            sampler.drive(parts, policy)
        assert sampler.collect('only', policy, 10, seed=0).n_trajectories == 10


def test_the_same_seed_repeats_and_another_does_not():
    with Sampler(body_suite('hopper'), 1) as sampler:
        policy = policy_for(sampler.env('only', 3))
        first = sampler.collect('only', policy, 3, seed=1)
        again = sampler.collect('only', policy, 3, seed=1)
        other = sampler.collect('only', policy, 3, seed=2)
    assert arrays(first) == arrays(again) != arrays(other)


def test_a_mean_policy_explores_nothing():
    with Sampler(body_suite('halfcheetah', 5), 1) as sampler:
        policy = policy_for(sampler.env('only', 2))
        batch = sampler.collect('only', policy, 2, seed=1, explore=False)
    np.testing.assert_allclose(batch.actions, policy.act(batch.observations), rtol=1e-12)


def test_trajectories_come_in_waves_if_rows_are_few():
    with Sampler(body_suite('halfcheetah', 6), 1) as sampler:
        few, all_at_once = sampler.env('only', 2), sampler.env('only', 5)
        policy = policy_for(few)
        waves = collect(few, policy, 5, seed=4)
        batch = collect(all_at_once, policy, 5, seed=4)
    assert waves.lengths.tolist() == [6] * 5
    np.testing.assert_allclose(waves.observations, batch.observations, rtol=1e-9, atol=1e-9)


def test_rows_of_a_batch_are_trajectories_end_to_end():
    with Sampler(body_suite('hopper', 200), 1) as sampler:
        batch = sampler.collect('only', policy_for(sampler.env('only', 6)), 6, seed=0)
        single = sampler.env('only', 6)
        first, _ = single.reset(seed=0)
    np.testing.assert_array_equal(batch.observations[batch.starts], first)
    assert batch.terminated.all()
    assert batch.n_steps == batch.lengths.sum()


def test_a_rollout_driven_from_outside_equals_collect():
    with Sampler(body_suite('walker2d', 30), 1) as sampler:
        env = sampler.env('only', 3)
        policy = policy_for(env)
        expected = collect(env, policy, 3, seed=5, explore=False)
        rollout = Rollout(env, 3, seed=5, task_name='')
        while not rollout.done:
            rollout.advance(policy.act(rollout.observations))
    assert arrays(rollout.batch()) == arrays(expected)


def test_a_rollout_is_read_only_when_complete():
    with Sampler(body_suite('halfcheetah', 2), 1) as sampler:
        rollout = Rollout(sampler.env('only', 1), 1, seed=0, task_name='')
        with pytest.raises(InvalidConfig, match='not complete'):
            rollout.batch()
        rollout.advance(np.zeros((1, 6)))
        rollout.advance(np.zeros((1, 6)))
        with pytest.raises(InvalidConfig, match='complete'):
            rollout.advance(np.zeros((1, 6)))


def test_environments_are_kept_and_the_oldest_let_go():
    suite = load_suite('hopper-gravity')
    with Sampler(suite, 1) as sampler:
        first = sampler.env('gravity-00', 2)
        assert sampler.env('gravity-00', 2) is first
        for name in suite.task_names[1:6]:
            sampler.env(name, 2)
        assert sampler.env('gravity-00', 2) is not first
        assert first.closed


def test_closing_ends_all_threads():
    threads = Path('/proc/self/task')  # the physics threads are not Python's
    before = len(list(threads.iterdir()))
    with Sampler('halfcheetah-gravity', 3) as sampler:
        sampler.env('gravity-00', 2).reset(seed=0)
        assert len(list(threads.iterdir())) == before + 3
    end = time.monotonic() + 10  # the kernel lists a joined thread for a moment longer
    while len(list(threads.iterdir())) > before and time.monotonic() < end:
        time.sleep(0.01)
    assert len(list(threads.iterdir())) == before


def test_a_policy_of_another_shape_is_refused():
    with Sampler(body_suite('hopper'), 1) as sampler:
        spec = PolicySpec(4, 2)
        policy = PolicySnapshot(spec, np.zeros(spec.n_parameters), np.zeros(0), np.zeros(2))
        with pytest.raises(WrongShape, match='maps 4 observations to 2 actions'):
            sampler.collect('only', policy, 2, seed=0)


def test_unknown_tasks_and_negative_workers_are_refused():
    with Sampler('hopper-gravity', 1) as sampler, pytest.raises(UnknownName, match='gravity-00'):
        sampler.env('nothing', 2)
    with pytest.raises(InvalidConfig, match='workers'):
        Sampler('hopper-gravity', -1)


def test_a_users_task_is_flattened_and_clipped_to_its_bounds():
    with Sampler(suite_of(id='Pendulum-v1'), 1) as sampler:
        env = sampler.env('only', 3)
        batch = sampler.collect('only', policy_for(env, log_std=3.0), 3, seed=0)
    assert batch.lengths.tolist() == [20, 20, 20]
    assert batch.truncated.all()
    assert np.abs(batch.actions).max() > 2.0
    assert batch.rewards.min() > -17.0  # the torque cost beyond the bounds is not charged


def test_a_users_task_may_end_by_itself():
    with Sampler(suite_of(id='Hopper-v5'), 1) as sampler:
        policy = policy_for(sampler.env('only', 2), log_std=2.0)
        batch = sampler.collect('only', policy, 2, seed=0)
    assert batch.n_steps <= 40
    assert (batch.terminated ^ batch.truncated).all()


def test_a_users_task_runs_in_processes_with_the_same_bytes():
    batches, hosts = [], []
    for workers in (1, 2):
        with Sampler(suite_of(id='Hopper-v5'), workers) as sampler:
            env = sampler.env('only', 5)
            hosts.append(type(env._host).__name__)
            batches.append(arrays(sampler.collect('only', policy_for(env), 5, seed=3)))
    assert hosts == ['PooledRows', 'PooledRows']
    assert batches[0] == batches[1]


def test_a_task_only_this_program_knows_stays_in_this_process():
    with Sampler(suite_of(id='Reacher1D-v0'), 2) as sampler:
        env = sampler.env('only', 4)
        assert type(env._host).__name__ == 'GymnasiumRows'
        assert env.reset(seed=0)[0].shape == (4, 2)


class Reacher1D(gymnasium.Env):
    """Reports success as many robotics environments do, and can break in three ways."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (1, 2), dtype=np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), dtype=np.float32)

    def __init__(self, fault=''):
        self.fault, self.time = fault, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros((1, 2), dtype=np.float32), {}

    def step(self, action):
        self.time += 1
        seen = np.full((1, 2), np.nan if self.fault == 'nan' and self.time > 2 else 1.0)
        if self.fault == 'raise' and self.time > 2:
            raise RuntimeError('motor on fire')
        cut = self.fault == 'cut' and self.time > 2
        return seen, 1.0, False, cut, {'is_success': self.time == 3}


gymnasium.register('Reacher1D-v0', Reacher1D)


def collected(fault=''):
    with Sampler(suite_of(id='Reacher1D-v0', kwargs={'fault': fault}), 1) as sampler:
        return sampler.collect('only', policy_for(sampler.env('only', 2)), 2, seed=0)


def test_success_comes_from_the_info():
    assert collected().success.all()


def test_a_users_nan_is_a_failed_trajectory():
    batch = collected('nan')
    assert batch.failed.all()
    assert batch.lengths.tolist() == [2, 2]


def test_a_users_own_time_limit_is_a_truncation():
    batch = collected('cut')
    assert batch.lengths.tolist() == [3, 3]
    assert batch.truncated.all()
    assert not batch.terminated.any()


def test_a_users_exception_names_the_environment():
    with pytest.raises(SimulationFailed, match=r"'Reacher1D-v0' raised RuntimeError.*on fire"):
        collected('raise')


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'id': 'Pendulm-v1'}, "did you mean 'Pendulum-v1'"),
        ({'id': 'Pendulum-v9'}, 'v9'),
        ({'id': 'nowhere:Pendulum-v1'}, 'nowhere'),
        ({'id': 'Pendulum-v1', 'kwargs': {'gravity': 1}}, 'gravity'),
        ({'id': 'CartPole-v1'}, 'Discrete action space'),
    ],
)
def test_a_wrong_gymnasium_id_is_one_clear_error_when_the_suite_is_read(settings, message):
    with pytest.raises(InvalidConfig, match=message):
        suite_of(**settings)


def test_the_fingerprint_repeats_and_tells_tasks_apart():
    suite = load_suite('halfcheetah-bodyparts')
    prints = {task: task_fingerprint(suite, task) for task in suite.task_names[:3]}
    assert len(set(prints.values())) == 3
    assert prints['bodyparts-00'] == task_fingerprint(suite, 'bodyparts-00')


def test_every_suite_is_a_gymnasium_id():
    assert register_all() == tuple(env_id(name) for name in suite_names())
    assert all(env_id(name) in gymnasium.registry for name in suite_names())


def test_gymnasium_makes_rows_of_a_task():
    env = gymnasium.make_vec('lpgftw/hopper-gravity-v0', num_envs=3, task='gravity-02', workers=1)
    seen, _ = env.reset(seed=1)
    assert env.unwrapped.model.opt.gravity[2] == pytest.approx(-9.81 * 1.3029, rel=1e-4)
    assert seen.shape == (3, 11)
    env.close()


def test_gymnasium_makes_one_row():
    env = gymnasium.make('lpgftw/hopper-gravity-v0', task='gravity-02')
    seen, _ = env.reset(seed=1)
    after, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert seen.shape == after.shape == (11,)
    assert isinstance(reward, float)
    assert (terminated, truncated, info['failed']) == (False, False, False)
    env.close()


def test_the_package_starts_no_simulator():
    code = (
        'import sys, lpgftw_ros.domains as d; d.load_suite("mt50");'
        'print({"mujoco", "metaworld", "torch"} & set(sys.modules))'
    )
    out = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == 'set()'
