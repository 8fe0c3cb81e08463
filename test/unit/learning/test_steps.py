"""Policy steps: length, guards and the coordinates they move."""

from dataclasses import replace

import numpy as np
import pytest

from lpgftw_ros.errors import NonFinite, WrongShape
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.policies import (
    compose,
    forward,
    PolicyGradient,
    PolicySnapshot,
    surrogate_gradient,
    TaskFactors,
)
from lpgftw_ros.learning.steps import (
    conjugate_gradient,
    Coordinates,
    Fisher,
    make_base_learner,
    Move,
    StepStart,
    with_decay,
    with_sparsity,
)

CASES = ('theta', 'coefficients', 'both')


def coordinates_of(policy, rng, moves):
    k = 0 if moves == 'theta' else 2
    L = rng.standard_normal((policy.spec.n_parameters, k))
    return Coordinates(policy.spec, L, free=moves != 'coefficients')


def policy_step(policy, coordinates, gradient, at, config):
    n = len(at.mean)
    start = StepStart(
        policy, coordinates, at, np.zeros_like(at.mean), np.zeros(n), np.zeros(1, int)
    )
    return make_base_learner(config).step(start, gradient)


def step_of(policy, obs, actions, weights, coordinates, **settings):
    at = forward(policy, obs)
    gradient = coordinates.pull_back(surrogate_gradient(policy, at, actions, weights))
    return policy_step(policy, coordinates, gradient, at, TrainingConfig(**settings))


@pytest.mark.parametrize('moves', CASES)
def test_measured_kl_is_the_kl_asked_for(policy, obs, actions, weights, rng, moves):
    exact = {'max_kl': 1e-7, 'cg_damping': 0.0}
    coordinates = coordinates_of(policy, rng, moves)
    step = step_of(policy, obs, actions, weights, coordinates, **exact)
    assert step.kl == pytest.approx(1e-7, rel=0.02)
    assert step.refused == 0


@pytest.mark.parametrize('moves', CASES)
def test_fisher_in_coordinates_is_the_projected_one(policy, obs, rng, moves):
    coordinates = coordinates_of(policy, rng, moves)
    fisher = Fisher(policy, forward(policy, obs))
    product = coordinates.fisher(fisher)
    size = len(coordinates.pull_back(zero_gradient(policy)).flat())
    found = np.column_stack([product(e) for e in np.eye(size)])
    d, h, m = policy.spec.n_parameters, policy.spec.head_size, policy.spec.act_dim
    identity = np.eye(d) if coordinates.free else np.zeros((d, 0))
    P = np.zeros((m + d + h, size))
    P[:m, :m] = np.eye(m)
    P[m : m + d, m : size - h] = np.column_stack((coordinates.basis, identity))
    P[m + d :, size - h :] = np.eye(h)
    full = np.column_stack([full_product(fisher, e, m, d) for e in np.eye(m + d + h)])
    np.testing.assert_allclose(found, P.T @ full @ P, rtol=1e-9, atol=1e-12)


def zero_gradient(policy):
    return PolicyGradient(
        np.zeros_like(policy.theta), np.zeros_like(policy.head), np.zeros_like(policy.log_std)
    )


def full_product(fisher, v, m, d):
    theta, head = fisher.product(v[m : m + d], v[m + d :])
    return np.concatenate((2.0 * v[:m], theta, head))


def test_a_step_climbs(policy, obs, actions, weights, rng):
    coordinates = coordinates_of(policy, rng, 'theta')
    at = forward(policy, obs)
    gradient = coordinates.pull_back(surrogate_gradient(policy, at, actions, weights))
    step = policy_step(policy, coordinates, gradient, at, TrainingConfig())
    assert step.move.flat() @ gradient.flat() > 0.0


def test_moved_factors_compose_to_the_moved_policy(policy, obs, actions, weights, rng):
    coordinates = coordinates_of(policy, rng, 'both')
    s = rng.standard_normal(2)
    rest = policy.theta - coordinates.basis @ s
    factors = TaskFactors(s, rest, policy.head, policy.log_std)
    step = step_of(policy, obs, actions, weights, coordinates)
    moved = coordinates.move_factors(factors, step.move)
    wanted = coordinates.move_policy(policy, step.move)
    np.testing.assert_allclose(compose(coordinates.basis, moved), wanted.theta, rtol=1e-12)
    np.testing.assert_array_equal(moved.log_std, wanted.log_std)
    np.testing.assert_array_equal(moved.head, wanted.head)


def test_split_undoes_flat(policy, rng):
    coordinates = coordinates_of(policy, rng, 'both')
    vector = rng.standard_normal(len(coordinates.pull_back(zero_gradient(policy)).flat()))
    np.testing.assert_array_equal(coordinates.split(vector).flat(), vector)


def test_log_std_stays_above_its_floor(policy, rng):
    coordinates = coordinates_of(policy, rng, 'theta')
    low = replace(coordinates.pull_back(zero_gradient(policy)), log_std=np.full(2, -10.0))
    assert np.all(coordinates.move_policy(policy, low).log_std == -3.0)


def test_conjugate_gradient_solves_the_damped_system(rng):
    root = rng.standard_normal((6, 6))
    F, g = root @ root.T, rng.standard_normal(6)
    x = conjugate_gradient(lambda v: F @ v, g, iterations=100, damping=0.1)
    np.testing.assert_allclose((F + 0.1 * np.eye(6)) @ x, g, atol=1e-4)


def test_conjugate_gradient_stops_after_its_iterations(rng):
    calls = []

    def product(v):
        calls.append(v)
        return np.arange(1.0, 21.0) * v

    conjugate_gradient(product, np.ones(20), iterations=10, damping=0.0)
    assert len(calls) == 10


def test_no_gradient_gives_no_step(policy, obs, rng):
    coordinates = coordinates_of(policy, rng, 'theta')
    gradient = coordinates.pull_back(zero_gradient(policy))
    step = policy_step(policy, coordinates, gradient, forward(policy, obs), TrainingConfig())
    assert step.kl == 0.0
    assert not step.move.flat().any()


def test_reinforce_moves_by_the_learning_rate(policy, obs, actions, weights, rng):
    coordinates = coordinates_of(policy, rng, 'theta')
    at = forward(policy, obs)
    gradient = coordinates.pull_back(surrogate_gradient(policy, at, actions, weights))
    config = TrainingConfig(step='reinforce', learning_rate=1e-3)
    step = policy_step(policy, coordinates, gradient, at, config)
    np.testing.assert_allclose(step.move.flat(), 1e-3 * gradient.flat())
    assert step.refused == 0


def test_a_step_too_far_is_halved_and_counted(policy, obs, actions, weights, rng):
    coordinates = coordinates_of(policy, rng, 'theta')
    settings = {'step': 'reinforce', 'learning_rate': 100.0, 'max_kl': 0.01}
    step = step_of(policy, obs, actions, weights, coordinates, **settings)
    assert step.refused > 0
    assert step.kl <= 0.03
    assert step.length == 100.0 * 0.5**step.refused


def test_a_gradient_that_is_not_finite_is_refused(policy, obs, rng):
    coordinates = coordinates_of(policy, rng, 'theta')
    broken = replace(coordinates.pull_back(zero_gradient(policy)), log_std=np.array([np.nan, 0.0]))
    with pytest.raises(NonFinite, match='policy gradient has 1 of'):
        policy_step(policy, coordinates, broken, forward(policy, obs), TrainingConfig())


def test_a_natural_gradient_that_is_not_finite_is_refused(policy, rng, actions, weights):
    coordinates = coordinates_of(policy, rng, 'theta')
    huge = 1e200 * np.ones((len(weights), 3))
    at = replace(forward(policy, np.ones((len(weights), 3))), obs=huge)
    gradient = Move(np.ones(2), np.zeros(0), np.ones_like(policy.theta), np.ones_like(policy.head))
    with np.errstate(all='ignore'), pytest.raises(NonFinite, match='natural gradient'):
        policy_step(policy, coordinates, gradient, at, TrainingConfig())


def test_a_step_that_never_becomes_acceptable_is_refused(policy, obs, rng):
    coordinates = coordinates_of(policy, rng, 'theta')
    gradient = replace(coordinates.pull_back(zero_gradient(policy)), log_std=np.full(2, 1e300))
    config = TrainingConfig(step='reinforce', learning_rate=1.0)
    with np.errstate(all='ignore'), pytest.raises(NonFinite, match='no acceptable policy step'):
        policy_step(policy, coordinates, gradient, forward(policy, obs), config)


def test_sparsity_pulls_coefficients_to_zero():
    gradient = Move(np.zeros(1), np.zeros(3), np.zeros(0), np.zeros(0))
    found = with_sparsity(gradient, np.array([2.0, -3.0, 0.0]), 0.1)
    np.testing.assert_array_equal(found.coefficients, [-0.1, 0.1, 0.0])


def test_decay_pulls_the_residual_to_zero():
    gradient = Move(np.zeros(1), np.zeros(1), np.ones(2), np.zeros(0))
    found = with_decay(gradient, np.array([2.0, -1.0]), 0.25)
    np.testing.assert_array_equal(found.residual, [0.0, 1.5])


def test_policies_of_the_wrong_size_are_refused(spec):
    with pytest.raises(WrongShape, match='theta has shape'):
        PolicySnapshot(spec, np.zeros(1), np.zeros(spec.head_size), np.zeros(2))
