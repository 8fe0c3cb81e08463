"""Tasks of a user: Gymnasium ids, classes beside the suite, kinds of other packages."""

import json
import os
from pathlib import Path
import subprocess
import sys

import numpy as np
import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.driver import drive, open_session

EXAMPLE = Path(__file__).resolve().parents[2] / 'example_package'
CART = """
import gymnasium
from gymnasium.spaces import Box, Dict, Discrete
import numpy as np


class Cart(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Box(-1.0, 1.0, (1,))

    def __init__(self, goal=1.0):
        self.goal = goal

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-0.1, 0.1), 0.0])
        return self._seen(), {}

    def step(self, action):
        where, speed = self.state
        speed = 0.9 * speed + 0.1 * float(action[0])
        self.state = np.array([where + 0.1 * speed, speed])
        distance = abs(self.state[0] - self.goal)
        return self._seen(), -distance, False, False, {'there': distance < 0.1}

    def _seen(self):
        return self.state.astype(np.float32)


class Labelled(Cart):
    observation_space = Dict({'where': Box(-9, 9, (1,)), 'speed': Box(-9, 9, (1,))})

    def _seen(self):
        return {'where': self.state[:1].astype('f'), 'speed': self.state[1:].astype('f')}


class Choosing(Cart):
    action_space = Discrete(2)


class Exploding(Cart):
    def step(self, action):
        raise ZeroDivisionError('boom')


class NotFinite(Cart):
    def step(self, action):
        return self._seen(), float('nan'), False, False, {}


class TooLong(Cart):
    def _seen(self):
        return np.zeros(3, dtype=np.float32)


gymnasium.register('Registered-v3', entry_point=Cart, kwargs={'goal': -1.0})
"""


@pytest.fixture
def folder(tmp_path):
    # a module is loaded once per process: each test has a name of its own
    name = 'tasks_' + tmp_path.name.replace('-', '_').replace('.', '_')
    (tmp_path / f'{name}.py').write_text(CART)
    return tmp_path, name


def write(folder, *tasks, **more):
    path = folder / 'mine.yaml'
    path.write_text(json.dumps({'horizon': 20, 'tasks': list(tasks), **more}))
    return path


def still(suite):
    spec = PolicySpec(*suite.tasks[0].dimensions)
    return PolicySnapshot(spec, np.zeros(spec.n_parameters), np.zeros(0), np.zeros(spec.act_dim))


@pytest.mark.parametrize('name', ['Cart', 'Cart-v0', 'Registered-v3'])
def test_a_class_beside_the_suite_is_found_from_any_folder(folder, name, monkeypatch):
    path = write(folder[0], {'name': 'one', 'id': f'{folder[1]}:{name}'})
    monkeypatch.chdir('/')
    suite = load_suite(path)
    assert suite.task('one').dimensions == (2, 1)
    with Sampler(suite, workers=1) as sampler:
        batch = sampler.collect('one', still(suite), 3, seed=1)
    assert batch.lengths.tolist() == [20, 20, 20]


def test_keyword_arguments_and_the_success_key_reach_the_environment(folder):
    where = f'{folder[1]}:Cart'
    near = {'name': 'near', 'id': where, 'kwargs': {'goal': 0.0}, 'success': 'there'}
    far = {'name': 'far', 'id': where, 'kwargs': {'goal': 5.0}, 'success': 'there'}
    suite = load_suite(write(folder[0], near, far))
    with Sampler(suite, workers=1) as sampler:
        reached = {
            t: sampler.collect(t, still(suite), 5, 0).success.all() for t in ('near', 'far')
        }
    assert reached == {'near': True, 'far': False}


def test_rows_in_worker_processes_give_the_same_bytes(folder):
    suite = load_suite(write(folder[0], {'name': 'one', 'id': f'{folder[1]}:Cart'}))
    batches = []
    for workers in (1, 2):
        with Sampler(suite, workers) as sampler:
            batches.append(sampler.collect('one', still(suite), 4, seed=5))
            processes = sampler.env('one', 4)._host
        assert type(processes).__name__ == 'PooledRows'
    np.testing.assert_array_equal(batches[0].observations, batches[1].observations)


def test_dictionary_observations_are_laid_end_to_end(folder):
    suite = load_suite(write(folder[0], {'name': 'one', 'id': f'{folder[1]}:Labelled'}))
    assert suite.task('one').dimensions == (2, 1)


@pytest.mark.parametrize(
    ('task', 'said'),
    [
        (
            {'id': 'Pendulm-v1'},
            "no Gymnasium environment 'Pendulm-v1'; did you mean 'Pendulum-v1'",
        ),
        ({'id': 'no_such_module:Cart'}, "No module named 'no_such_module'"),
        ({'id': '{}:Nothing'}, 'Nothing'),
        ({'id': '{}:Cart', 'kwargs': {'gaol': 1.0}}, 'gaol'),
        ({'id': '{}:Cart', 'success': 'ther'}, "no 'ther' in its info (it has: there)"),
        ({'id': '{}:Choosing'}, 'Discrete action space; only Box'),
        ({'id': '{}:Exploding'}, 'ZeroDivisionError: boom'),
        ({'id': '{}:NotFinite'}, 'not finite'),
        ({'id': '{}:TooLong'}, 'observations of 2 numbers and returns 3'),
        ({'id': 'Pendulum-v1', 'horzon': 3}, "no setting of a Gymnasium task 'horzon'"),
    ],
)
def test_what_is_wrong_is_said_when_the_suite_is_read(folder, task, said):
    task = {**task, 'name': 'one', 'id': task['id'].format(folder[1])}
    with pytest.raises(InvalidConfig) as caught:
        load_suite(write(folder[0], task))
    text = str(caught.value)
    assert said in text
    assert text.startswith("suite mine: task 'one': ")
    assert '\n' not in text


def test_tasks_of_different_shapes_do_not_make_a_suite(folder):
    tasks = {'name': 'swing', 'id': 'Pendulum-v1'}, {'name': 'cart', 'id': f'{folder[1]}:Cart'}
    with pytest.raises(InvalidConfig, match='swing has 3 and 1; cart has 2 and 1'):
        load_suite(write(folder[0], *tasks))


@pytest.mark.parametrize('hidden', [[32], [8, 8, 8], [0, 4]])
def test_widths_no_policy_can_have_are_refused_when_the_suite_is_read(folder, hidden):
    with pytest.raises(InvalidConfig, match='hidden must be'):
        load_suite(write(folder[0], {'name': 'one', 'id': 'Pendulum-v1'}, hidden=hidden))


def test_kinds_of_equal_shape_share_a_suite(folder):
    cheetah = {'name': 'light', 'kind': 'body', 'body': 'halfcheetah', 'gravity': 0.5}
    suite = load_suite(write(folder[0], {'name': 'theirs', 'id': 'HalfCheetah-v5'}, cheetah))
    with Sampler(suite, workers=1) as sampler:
        shapes = [
            sampler.collect(t, still(suite), 1, 0).observations.shape for t in suite.task_names
        ]
    assert shapes == [(20, 17), (20, 17)]


def test_a_file_named_like_a_loaded_module_is_not_mistaken_for_it(tmp_path):
    (tmp_path / 'json.py').write_text(CART)
    with pytest.raises(InvalidConfig, match=r"'json' is already loaded from .*; rename json.py"):
        load_suite(write(tmp_path, {'name': 'one', 'id': 'json:Cart'}))


def lpgftw(*words, path=''):
    environment = {**os.environ}
    if path:
        own = str(Path(__file__).resolve().parents[3])
        environment['PYTHONPATH'] = os.pathsep.join((str(path), own))
    done = subprocess.run(
        [sys.executable, '-m', 'lpgftw_ros.cli', *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Traceback' not in done.stderr, done.stderr
    return done


def test_a_kind_of_another_package_is_trained_and_evaluated(tmp_path):
    tasks = [{'name': f's{k}', 'stiffness': float(k)} for k in (1, 2)]
    suite, out = write(tmp_path, *tasks, kind='spring'), tmp_path / 'run'
    small = ('--iterations', 2, '--trajectories', 5, '--workers', 1)
    trained = lpgftw('train', '--suite', suite, '--out', out, *small, path=EXAMPLE)
    assert trained.returncode == 0, trained.stderr
    assert lpgftw('evaluate', out, '--episodes', 2, path=EXAMPLE).returncode == 0
    without = lpgftw('tasks', suite)
    assert (without.returncode, "no kind of task 'spring'" in without.stderr) == (2, True)


def test_a_method_of_another_package_is_trained_by_name(tmp_path):
    suite, out = write(tmp_path, {'name': 's', 'stiffness': 1.0}, kind='spring'), tmp_path / 'run'
    words = ('--suite', suite, '--learner', 'eager', '--iterations', 2, '--trajectories', 5)
    trained = lpgftw('train', *words, '--workers', 1, '--out', out, path=EXAMPLE)
    assert trained.returncode == 0, trained.stderr
    assert 'max_kl: 0.05' in (out / 'config.yaml').read_text()
    assert lpgftw('train', *words, '--out', tmp_path / 'other').returncode == 2


class Stopped(Exception):
    pass


def learn(suite, out, stop_after=None, resume=False):
    config = resolve(str(suite), 'lpg-ftw', overrides={'iterations': 3, 'trajectories': 5})
    rows = []

    def count(session):
        rows.append(session)
        if len(rows) == stop_after:
            raise Stopped

    with open_session(config, out, workers=1, resume=resume) as (session, sampler):
        drive(session, sampler, count)
    return [
        {**json.loads(line), 'timing': 0}
        for line in (out / 'metrics.jsonl').read_text().splitlines()
    ]


def test_a_foreign_task_is_resumed_with_the_same_numbers(folder):
    task = {'name': 'one', 'id': f'{folder[1]}:Cart'}
    suite = write(folder[0], task, {**task, 'name': 'two'}, hidden=[4, 4])
    with pytest.raises(Stopped):
        learn(suite, folder[0] / 'stopped', stop_after=4)
    resumed = learn(suite, folder[0] / 'stopped', resume=True)
    assert resumed == learn(suite, folder[0] / 'whole')
    assert len(resumed) == 8


def test_a_run_on_an_own_task_can_be_moved_and_evaluated_elsewhere(folder, monkeypatch):
    suite = write(folder[0], {'name': 'one', 'id': f'{folder[1]}:Cart'})
    learn(suite, folder[0] / 'run')
    moved = folder[0] / 'elsewhere' / 'run'
    (folder[0] / 'run').rename(moved.parent.mkdir() or moved)
    suite.unlink()
    (folder[0] / f'{folder[1]}.py').unlink()
    monkeypatch.chdir('/')
    done = lpgftw('evaluate', moved, '--episodes', 1)
    assert done.returncode == 0, done.stderr
