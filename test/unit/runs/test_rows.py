"""One oracle per entry of a metrics row: what is written down is what happened."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning import Batch, make_learner, PolicySpec
from lpgftw_ros.learning.learner import measure, MEASURES
from lpgftw_ros.learning.lpg_ftw import LpgFtw, LpgFtwConfig
from lpgftw_ros.learning.policies import forward, log_likelihood, mean_kl
from lpgftw_ros.learning.values import value_features
from lpgftw_ros.runs.records import iteration_row, update_row
from lpgftw_ros.runs.tracking import numbers

SPEC = PolicySpec(obs_dim=3, act_dim=2)
STAGE = SimpleNamespace(iteration=4)


def visit(**other):
    return SimpleNamespace(number=2, task='a', iterations=9, **other)


def batch_of(learner, n=6, horizon=5):
    rng, no = np.random.default_rng(3), np.zeros(n, dtype=bool)
    obs = rng.standard_normal((n * horizon, 3))
    policy = learner.knowledge().compose(learner.factors())
    noise = rng.standard_normal((n * horizon, 2))
    return Batch(
        task=learner.running,
        observations=obs,
        actions=policy.act(obs, noise),
        rewards=rng.standard_normal(n * horizon),
        lengths=np.full(n, horizon),
        terminated=no,
        truncated=~no,
        success=np.arange(n) < 2,
        failed=np.arange(n) < 1,
        final_observations=rng.standard_normal((n, 3)),
    )


@pytest.fixture
def learner():
    made = make_learner('lpg-ftw', SPEC, {'max_kl': 0.02})
    made.start_task('a', seed=1)
    return made


def policy_of(learner):
    return learner.knowledge().compose(learner.factors())


def step_row(learner):
    batch, before = batch_of(learner), policy_of(learner)
    report = learner.improve(batch)
    return iteration_row(visit(), STAGE, batch, report, 777), batch, before, policy_of(learner)


def test_the_place_and_the_batch(learner):
    row, batch, *_ = step_row(learner)
    returns = batch.rewards.reshape(6, 5).sum(axis=1)
    assert (row['kind'], row['visit'], row['task'], row['iteration']) == ('iteration', 2, 'a', 4)
    assert row['return_mean'] == pytest.approx(returns.mean(), rel=1e-12)
    assert row['return_std'] == pytest.approx(np.sqrt(np.mean((returns - returns.mean()) ** 2)))
    assert (row['return_min'], row['return_max']) == pytest.approx((returns.min(), returns.max()))
    assert row['success'] == pytest.approx(2 / 6)
    assert (row['failed'], row['steps'], row['total_steps']) == (1, 30, 777)


def test_the_kl_is_that_between_the_policies_before_and_after(learner):
    """Between Gaussians the KL is also E[log pi - log pi'] under pi, in closed form per row."""
    row, batch, old, new = step_row(learner)
    means = [forward(p, batch.observations).mean for p in (old, new)]
    assert row['kl'] == pytest.approx(mean_kl(old, means[0], new, means[1]), rel=1e-9)
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(30), 4000)
    noise = rng.standard_normal((len(rows), 2))
    actions = means[0][rows] + np.exp(old.log_std) * noise
    sampled = log_likelihood(old, means[0][rows], actions)
    sampled = np.mean(sampled - log_likelihood(new, means[1][rows], actions))
    assert row['kl'] == pytest.approx(sampled, rel=0.1)
    assert 0.005 < row['kl'] < 0.06


def test_the_length_and_the_norm_are_those_of_the_gradient():
    """A REINFORCE step moves by length times gradient, so both follow from the move."""
    learner = make_learner('stl', SPEC, {'step': 'reinforce', 'learning_rate': 0.01})
    learner.start_task('a', seed=1)
    row, _, old, new = step_row(learner)
    move = np.concatenate((new.log_std - old.log_std, new.theta - old.theta))
    assert row['step_length'] == 0.01
    assert row['gradient_norm'] == pytest.approx(np.linalg.norm(move) / 0.01, rel=1e-9)


def test_a_refused_step_is_counted_and_its_length_halved():
    learner = make_learner('stl', SPEC, {'step': 'reinforce', 'learning_rate': 64.0})
    learner.start_task('a', seed=1)
    row, *_ = step_row(learner)
    assert row['refused_steps'] > 0
    assert row['step_length'] == 64.0 * 0.5 ** row['refused_steps']


def test_each_timing_is_its_own(learner, monkeypatch):
    """A clock that the step, the update and the fit move by 1, 10 and 100 seconds."""
    clock = SimpleNamespace(now=0.0)
    config = LpgFtwConfig(max_columns=1, update_every=1)
    learner = LpgFtw(SPEC, config, 0)
    for task in ('a', 'b'):
        learner.start_task(task, seed=1)
        if task == 'a':
            learner.improve(batch_of(learner))
            learner.fit_values()
            learner.finish_task(batch_of(learner))
    monkeypatch.setattr('time.perf_counter', lambda: clock.now)

    def slow(owner, name, seconds):
        real = getattr(owner, name)

        def called(*args, **kwargs):
            clock.now += seconds
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, called)

    slow(learner, '_gradient', 1.0)
    slow(learner._knowledge_base, 'try_out', 10.0)
    slow(learner._knowledge_base, 'add', 1000.0)
    batch = batch_of(learner)
    report = learner.improve(batch)
    assert report.knowledge_updated
    row = iteration_row(visit(), STAGE, batch, report, 0)
    assert row['timing'] == {'sampling': 0.0, 'policy': 1.0, 'value': 0.0, 'knowledge': 10.0}
    values = learner._run.values
    monkeypatch.setattr(learner._run, 'values', SlowFit(values, clock))
    assert learner.fit_values().seconds == 100.0
    learner._run.values = values
    done = update_row(visit(), batch, learner.finish_task(batch), 0)
    assert done['timing'] == {'sampling': 0.0, 'policy': 0.0, 'value': 0.0, 'knowledge': 1000.0}


class SlowFit:
    def __init__(self, values, clock):
        self._values, self._clock = values, clock

    def fit(self, *args, **kwargs):
        self._clock.now += 100.0
        return self._values.fit(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._values, name)


def test_the_value_error_is_what_the_fit_leaves(learner):
    batch = batch_of(learner)
    learner.improve(batch)
    targets = np.zeros((6, 5))
    for t in reversed(range(5)):
        later = targets[:, t + 1] if t < 4 else 0.0
        targets[:, t] = batch.rewards.reshape(6, 5)[:, t] + learner.config.gamma * later
    found = learner.fit_values().measures
    features = value_features(batch.observations, np.tile(np.arange(5), 6))
    left = learner._run.values.predict(features) - targets.ravel()
    assert found == {'value_error': pytest.approx(np.mean(left**2) / np.var(targets), rel=1e-6)}


def test_an_update_says_how_far_it_moved(learner):
    learner.improve(batch_of(learner))
    learner.fit_values()
    learner.finish_task(batch_of(learner))
    learner.start_task('b', seed=2)
    learner.improve(batch_of(learner))
    learner.fit_values()
    L, theta = learner.knowledge().basis, policy_of(learner).theta
    batch = batch_of(learner)
    row = update_row(visit(), batch, learner.finish_task(batch), 5)
    new_L, new_theta = learner.knowledge().basis, learner.knowledge().policy('b').theta
    change = np.linalg.norm(new_L[:, :1] - L) / np.linalg.norm(L)
    assert row['basis_change'] == pytest.approx(change, rel=1e-12)
    change = np.linalg.norm(new_theta - theta) / np.linalg.norm(theta)
    assert row['parameter_change'] == pytest.approx(change, rel=1e-12)
    assert (row['kind'], row['iteration'], row['columns']) == ('update', 9, 2)


def test_the_keys_and_their_order_are_those_of_the_file_format(learner):
    row, *_ = step_row(learner)
    assert list(row) == [
        *('kind', 'visit', 'task', 'iteration'),
        *('return_mean', 'return_std', 'return_min', 'return_max'),
        *('success', 'failed', 'steps', 'total_steps'),
        *('kl', 'step_length', 'refused_steps', 'gradient_norm', 'value_error', 'timing'),
    ]
    assert '"refused_steps": 0,' in json.dumps(row)


def test_every_measure_is_explained(learner):
    row, *_ = step_row(learner)
    known = ['kl', 'step_length', 'refused_steps', 'gradient_norm', 'value_error']
    assert [name for name in row if name in MEASURES] == known
    assert all(MEASURES[name].help for name in known)
    assert (MEASURES['kl'].unit, MEASURES['step_length'].unit) == ('nat', '')


def test_a_measure_recorded_once_reaches_rows_and_trackers():
    name = measure('entropy', 'entropy of the policy that made the batch', 'nat')

    class Curious(LpgFtw):
        def _gradient(self, policy, at, batch, advantages):
            self._record(name, float(np.sum(policy.log_std)) + np.log(2.0 * np.pi * np.e))
            return super()._gradient(policy, at, batch, advantages)

    learner = Curious(SPEC, LpgFtwConfig(), 0)
    learner.start_task('a', seed=1)
    row, *_ = step_row(learner)
    assert row['entropy'] == pytest.approx(np.log(2.0 * np.pi * np.e))
    told, step = numbers(row, {})
    assert (told['entropy/a'], step) == (row['entropy'], 4)


def test_a_failed_step_leaves_no_measure_behind():
    class FailsOnce(LpgFtw):
        failed = False

        def _gradient(self, policy, at, batch, advantages):
            if not self.failed:
                self.failed = True
                self._record('odd', 1.0)
                raise NonFinite('once')
            return super()._gradient(policy, at, batch, advantages)

    learner = FailsOnce(SPEC, LpgFtwConfig(), 0)
    learner.start_task('a', seed=1)
    with pytest.raises(NonFinite, match='once'):
        learner.improve(batch_of(learner))
    assert 'odd' not in learner.improve(batch_of(learner)).measures
