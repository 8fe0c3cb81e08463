"""Local models: curvature of the natural gradient and of REINFORCE."""

import numpy as np
import pytest

from lpgftw_ros.errors import NonFinite, WrongShape
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.local_model import (
    LEAST_KL_PRICE,
    LocalModel,
    natural_curvature,
)
from lpgftw_ros.learning.policies import forward, surrogate_gradient
from lpgftw_ros.learning.steps import Fisher, make_base_learner

CONFIG = TrainingConfig(max_kl=0.02)


def local_model(policy, obs, actions, advantages, config):
    return make_base_learner(config).local_model(policy, obs, actions, advantages)


def test_gradient_and_point_are_those_of_theta(policy, obs, actions, weights):
    model = local_model(policy, obs, actions, weights, CONFIG)
    wanted = surrogate_gradient(policy, forward(policy, obs), actions, weights).theta
    np.testing.assert_array_equal(model.alpha, policy.theta)
    np.testing.assert_array_equal(model.g, wanted)


def test_the_optimum_of_the_model_is_a_natural_step_of_half_the_kl(policy, obs, actions, weights):
    """-1/2 H^-1 g is along F^-1 g, and 1/2 step' F step is half of delta."""
    model = local_model(policy, obs, actions, weights, CONFIG)
    step = -0.5 * np.linalg.solve(model.H, model.g)
    F = Fisher(policy, forward(policy, obs)).of_theta()
    F += max(0.0, 1e-3 - np.linalg.eigvalsh(F)[0]) * np.eye(len(F))
    assert step @ F @ step == pytest.approx(CONFIG.max_kl, rel=1e-9)
    natural = np.linalg.solve(F, model.g)
    cosine = step @ natural / np.linalg.norm(step) / np.linalg.norm(natural)
    assert cosine == pytest.approx(1.0, abs=1e-9)


def test_curvature_follows_its_formula(policy, obs, actions, weights):
    model = local_model(policy, obs, actions, weights, CONFIG)
    F = Fisher(policy, forward(policy, obs)).of_theta()
    F += max(0.0, 1e-3 - np.linalg.eigvalsh(F)[0]) * np.eye(len(F))
    size = np.sqrt(model.g @ np.linalg.solve(F, model.g) / CONFIG.max_kl)
    np.testing.assert_allclose(model.H, -0.5 * size * F, rtol=1e-8, atol=1e-12)


def test_enough_curvature_is_left_as_it_is():
    F, g = np.diag([0.5, 2.0]), np.array([1.0, 1.0])
    H = natural_curvature(F.copy(), g, CONFIG)
    assert H[0, 1] == 0.0
    assert H[1, 1] / H[0, 0] == pytest.approx(4.0, rel=1e-12)


def test_too_little_curvature_is_raised_to_the_floor():
    H = natural_curvature(np.diag([0.0, 1.0]), np.array([1.0, 1.0]), CONFIG)
    assert H[0, 0] / H[1, 1] == pytest.approx(1e-3 / 1.001, rel=1e-9)


def test_no_gradient_still_gives_a_maximum():
    H = natural_curvature(np.eye(2), np.zeros(2), CONFIG)
    np.testing.assert_allclose(H, -0.5 * LEAST_KL_PRICE * np.eye(2))


def test_reinforce_curvature_is_negative_definite(policy, obs, actions, weights):
    config = TrainingConfig(step='reinforce')
    model = local_model(policy, obs, actions, weights, config)
    assert np.linalg.eigvalsh(model.H)[-1] <= -0.999e-3


def test_reinforce_curvature_is_exact_where_it_is_negative(policy, obs, actions, weights):
    """Only the eigenvalues above the floor are moved."""
    config = TrainingConfig(step='reinforce')
    raw = -0.5 * Fisher(policy, forward(policy, obs)).of_theta(weights)
    values, vectors = np.linalg.eigh(0.5 * (raw + raw.T))
    H = local_model(policy, obs, actions, weights, config).H
    projected = np.diagonal(vectors.T @ H @ vectors)
    np.testing.assert_allclose(projected, np.minimum(values, -1e-3), rtol=1e-8, atol=1e-12)


def test_a_model_that_is_not_finite_is_refused(policy, obs, actions):
    with pytest.raises(NonFinite, match='gradient of the local model'):
        local_model(policy, obs, actions, np.full(len(obs), np.nan), CONFIG)


def test_a_model_of_the_wrong_shape_is_refused():
    with pytest.raises(WrongShape, match='H has shape'):
        LocalModel(np.zeros(2), np.zeros(2), np.zeros((3, 3)))


@pytest.mark.parametrize('name', ['alpha', 'g', 'H'])
def test_a_spoilt_part_of_a_model_is_named(name):
    parts = {'alpha': np.zeros(2), 'g': np.zeros(2), 'H': -np.eye(2)}
    with pytest.raises(NonFinite, match=f'^{name} has'):
        LocalModel(**parts | {name: np.full_like(parts[name], np.nan)})
    with pytest.raises(WrongShape, match=r'^(g|H) has shape'):
        LocalModel(**parts | {name: np.zeros(3)})
