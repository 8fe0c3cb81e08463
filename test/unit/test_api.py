"""The library in Python: ten lines for the common case, own tasks and methods, light to import."""

import json
import subprocess
import sys

import numpy as np
import pytest

import lpgftw_ros
from lpgftw_ros.errors import InvalidConfig, UnknownName, WrongShape
from lpgftw_ros.learning.methods.stl import Stl, StlConfig

SUITE = {
    'name': 'swings',
    'horizon': 20,
    'tasks': [
        {'name': 'earth', 'id': 'Pendulum-v1'},
        {'name': 'moon', 'id': 'Pendulum-v1', 'kwargs': {'g': 1.62}},
    ],
}
SMALL = {'iterations': 2, 'trajectories': 5, 'seed': 1, 'workers': 1}


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return lpgftw_ros.train(SUITE, out=tmp_path_factory.mktemp('api') / 'run', **SMALL)


def test_ten_lines_train_evaluate_and_act(run):
    results = lpgftw_ros.evaluate(run, episodes=3)
    assert sorted(result.task for result in results) == ['earth', 'moon']
    again = lpgftw_ros.load(run.path)
    assert sorted(again.tasks) == ['earth', 'moon']
    assert again.policy('earth').act(np.zeros(3)).shape == (1,)
    assert again.policies['moon'].act(np.zeros((7, 3))).shape == (7, 1)
    d = again.knowledge.spec.n_parameters
    assert again.L.shape == (d, again.S.shape[0])
    assert again.S.shape[1] == 2


def test_the_policy_is_the_basis_times_the_coefficients(run):
    for j, task in enumerate(run.tasks):
        theta = run.policy(task).snapshot.theta
        np.testing.assert_allclose(run.L @ run.S[:, j], theta, atol=1e-12)


def test_exploration_is_drawn_from_the_given_generator(run):
    policy, seen = run.policy('earth'), np.zeros(3)
    drawn = [policy.act(seen, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert policy.act(seen) == policy.act(seen)


def test_the_command_line_gives_the_same_numbers(run, tmp_path):
    suite = tmp_path / 'swings.yaml'
    suite.write_text(json.dumps({k: v for k, v in SUITE.items() if k != 'name'}))
    words = ['--iterations', '2', '--trajectories', '5', '--seed', '1', '--workers', '1']
    command = [sys.executable, '-m', 'lpgftw_ros.cli', 'train', '--suite', str(suite), *words]
    subprocess.run([*command, '--out', str(tmp_path / 'run')], check=True, capture_output=True)
    theirs = lpgftw_ros.load(tmp_path / 'run').metrics
    assert [{**r, 'timing': 0} for r in theirs] == [{**r, 'timing': 0} for r in run.metrics]


def test_the_callback_sees_every_row_and_can_stop(run, tmp_path):
    seen = []

    def stop_after_two(row):
        seen.append(row)
        return len(seen) < 2

    stopped = lpgftw_ros.train(SUITE, out=tmp_path / 'run', callback=stop_after_two, **SMALL)
    assert [row['kind'] for row in seen] == ['iteration', 'iteration']
    rest = []
    whole = lpgftw_ros.train(SUITE, out=stopped.path, resume=True, callback=rest.append, **SMALL)
    rows = [{**row, 'timing': 0} for row in whole.metrics]
    assert rows == [{**row, 'timing': 0} for row in run.metrics]
    assert len(seen) + len(rest) >= len(rows)


class Eager(Stl):
    """A method of somebody else: single-task learning under another name."""

    name = 'eager'
    config_type = StlConfig


def test_a_method_of_your_own_trains_and_is_loaded(tmp_path):
    run = lpgftw_ros.train(SUITE, Eager, out=tmp_path / 'run', tasks=1, max_kl=0.1, **SMALL)
    assert run.config.learner == 'eager'
    assert run.config.method['max_kl'] == 0.1
    assert len(lpgftw_ros.evaluate(run, episodes=1)) == 1


def test_a_method_cannot_take_a_name_that_is_taken():
    taken = type('Mine', (Stl,), {'name': 'lpg-ftw', 'config_type': StlConfig})
    with pytest.raises(InvalidConfig, match="a method 'lpg-ftw' already"):
        lpgftw_ros.register_method(taken)


def test_mistakes_are_told_in_one_line(run):
    with pytest.raises(UnknownName, match="no policy for task 'mars'"):
        run.policy('mars')
    with pytest.raises(WrongShape):
        run.policy('moon').act(np.zeros(4))
    with pytest.raises(InvalidConfig, match='not a run folder'):
        lpgftw_ros.load('/nowhere')
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = lpgftw_ros.trian


def test_importing_the_package_loads_no_numpy():
    code = 'import lpgftw_ros, sys; sys.exit("numpy" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0
