"""Policies: shapes, initialisation, acting and composing."""

from dataclasses import replace

import numpy as np
import pytest

from lpgftw_ros.errors import InvalidConfig, UnknownName, WrongShape
from lpgftw_ros.learning.policies import (
    compose,
    initial_head,
    initial_theta,
    Knowledge,
    PolicySnapshot,
    PolicySpec,
    TaskFactors,
)


@pytest.mark.parametrize(
    ('obs', 'act', 'hidden', 'd', 'head'),
    [(17, 6, (), 108, 0), (11, 3, (), 36, 0), (6, 4, (32, 32), 1280, 132)],
)
def test_sizes_are_the_published_ones(obs, act, hidden, d, head):
    spec = PolicySpec(obs, act, hidden)
    assert (spec.n_parameters, spec.head_size) == (d, head)
    assert spec.min_log_std == -3.0


@pytest.mark.parametrize('shape', [(0, 1, ()), (1, 0, ()), (1, 1, (3,)), (1, 1, (3, 0))])
def test_impossible_shapes_are_refused(shape):
    with pytest.raises(InvalidConfig):
        PolicySpec(*shape)


def test_a_linear_policy_starts_small_in_every_parameter(rng):
    theta = initial_theta(PolicySpec(16, 50), rng)
    assert np.abs(theta).max() == pytest.approx(0.01 / 4.0, rel=0.02)


def test_hidden_layers_start_at_full_scale_and_heads_small(rng):
    spec = PolicySpec(4, 8, (64, 100))
    theta, head = initial_theta(spec, rng), initial_head(spec, rng)
    inner, outer = np.split(theta, [5 * 64])
    assert np.abs(inner).max() == pytest.approx(1.0 / 2.0, rel=0.02)
    assert np.abs(outer).max() == pytest.approx(1.0 / 8.0, rel=0.02)
    assert np.abs(head).max() == pytest.approx(0.01 / 10.0, rel=0.02)


def test_a_linear_policy_has_no_head(rng):
    assert initial_head(PolicySpec(3, 2), rng).shape == (0,)


@pytest.mark.parametrize('name', ['theta', 'head', 'log_std'])
def test_a_part_of_the_wrong_shape_is_named(policy, name):
    with pytest.raises(WrongShape, match=f'^{name} has shape'):
        replace(policy, **{name: np.zeros(99)})


def test_noise_is_scaled_by_sigma(policy, obs, rng):
    noise = rng.standard_normal((len(obs), 2))
    difference = policy.act(obs, noise) - policy.act(obs)
    np.testing.assert_allclose(difference, np.exp(policy.log_std) * noise, rtol=1e-10)


def test_a_linear_row_holds_its_weights_and_then_its_bias():
    theta = np.array([1.0, 2.0, 10.0, 3.0, 4.0, 20.0])
    policy = PolicySnapshot(PolicySpec(2, 2), theta, np.zeros(0), np.zeros(2))
    np.testing.assert_array_equal(policy.act(np.array([[1.0, 1.0]])), [[13.0, 27.0]])


def test_columns_beyond_a_tasks_coefficients_do_not_change_a_bit(rng):
    basis, extra = rng.standard_normal((50, 3)), rng.standard_normal((50, 2))
    factors = TaskFactors(
        rng.standard_normal(3), rng.standard_normal(50), np.zeros(0), np.zeros(1)
    )
    wide = np.column_stack((basis, extra))
    np.testing.assert_array_equal(compose(basis, factors), compose(wide, factors))


def test_an_unknown_task_names_the_known_ones(spec):
    d = spec.n_parameters
    factors = TaskFactors(np.zeros(0), np.zeros(d), np.zeros(spec.head_size), np.zeros(2))
    knowledge = Knowledge(0, spec, np.zeros((d, 0)), {'reach': factors})
    with pytest.raises(UnknownName, match=r"'raech'; did you mean 'reach'\?"):
        knowledge.policy('raech')
