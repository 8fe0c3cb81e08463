"""Discounted sums and advantages against the loops that define them."""

from dataclasses import replace

import numpy as np
import pytest

from lpgftw_ros.errors import WrongShape
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.values import (
    advantages,
    discounted_returns,
    discounted_sums,
    value_features,
    ValueFunction,
    whiten,
    whitened_advantages,
)

LENGTHS = np.array([3, 1, 5])


@pytest.fixture
def ragged(rng):
    n = int(LENGTHS.sum())
    return Batch(
        task='t',
        observations=rng.standard_normal((n, 2)),
        actions=rng.standard_normal((n, 1)),
        rewards=rng.standard_normal(n),
        lengths=LENGTHS,
        terminated=np.array([True, False, False]),
        truncated=np.array([False, True, True]),
        success=np.zeros(3, bool),
        failed=np.array([False, False, True]),
        final_observations=rng.standard_normal((3, 2)),
    )


def looped(batch, values, after, gamma, lam):
    result = []
    for i, start in enumerate(batch.starts):
        rows = slice(start, start + batch.lengths[i])
        v, r = np.append(values[rows], after[i]), batch.rewards[rows]
        running, rev = 0.0, []
        for t in reversed(range(len(r))):
            running = r[t] + gamma * v[t + 1] - v[t] + gamma * lam * running
            rev.append(running)
        result += rev[::-1]
    return np.array(result)


def test_sums_run_to_the_end_of_each_trajectory_only():
    found = discounted_sums(np.ones(9), LENGTHS, 0.5)
    np.testing.assert_allclose(found, [1.75, 1.5, 1, 1, 1.9375, 1.875, 1.75, 1.5, 1])


def test_returns_are_sums_of_rewards(ragged):
    np.testing.assert_allclose(discounted_returns(ragged, 0.0), ragged.rewards)
    np.testing.assert_allclose(discounted_returns(ragged, 1.0)[ragged.starts], ragged.returns)


def test_advantages_count_every_end_as_worth_nothing(ragged, rng):
    values = rng.standard_normal(9)
    found = advantages(ragged, values, None, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(found, looped(ragged, values, np.zeros(3), 0.9, 0.8))


def test_advantages_bootstrap_only_where_the_time_limit_alone_ended_it(ragged, rng):
    values, final = rng.standard_normal(9), np.array([10.0, 20.0, 30.0])
    found = advantages(ragged, values, final, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(found, looped(ragged, values, [0.0, 20.0, 0.0], 0.9, 0.8))


def test_lambda_one_gives_returns_minus_values(ragged, rng):
    values = rng.standard_normal(9)
    found = advantages(ragged, values, None, gamma=0.9, gae_lambda=1.0)
    np.testing.assert_allclose(found, discounted_returns(ragged, 0.9) - values)


def test_whitened_has_mean_zero_and_deviation_one(rng):
    white = whiten(5.0 + 3.0 * rng.standard_normal(1000))
    assert white.mean() == pytest.approx(0.0, abs=1e-12)
    assert white.std() == pytest.approx(1.0, abs=1e-5)


def test_equal_advantages_become_zero():
    assert not whiten(np.full(4, 2.0)).any()


def test_values_that_hardly_differ_are_whitened_gently():
    np.testing.assert_allclose(whiten(np.array([-1e-6, 1e-6])), [-0.5, 0.5])


@pytest.mark.parametrize('bootstrap', [False, True])
def test_a_time_limit_is_valued_only_if_the_settings_say_so(ragged, rng, bootstrap):
    values = ValueFunction.create(2, rng)
    config = TrainingConfig(bootstrap_timeouts=bootstrap, gamma=0.9)
    found = whitened_advantages(values, ragged, config, 0.8)
    own = values.predict(value_features(ragged.observations, ragged.step_in_trajectory))
    last = values.predict(value_features(ragged.final_observations, LENGTHS))
    after = np.array([0.0, last[1] if bootstrap else 0.0, 0.0])
    np.testing.assert_allclose(found, whiten(looped(ragged, own, after, 0.9, 0.8)))


@pytest.mark.parametrize('name', ['observations', 'actions', 'rewards', 'success'])
def test_a_batch_whose_arrays_do_not_fit_is_refused(ragged, name):
    with pytest.raises(WrongShape, match=f'{name} has shape'):
        replace(ragged, **{name: np.zeros(9) if name != 'rewards' else np.zeros((9, 1))})
