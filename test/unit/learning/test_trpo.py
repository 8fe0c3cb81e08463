"""TRPO: the line search in closed form, and as the base learner of a method."""

import numpy as np
import pytest

from lpgftw_ros.learning import make_learner
from lpgftw_ros.learning.config import BASE_LEARNERS, TrainingConfig
from lpgftw_ros.learning.policies import forward, PolicySnapshot, PolicySpec
from lpgftw_ros.learning.steps import Coordinates, make_base_learner, Move, Npg, StepStart
from lpgftw_ros.learning.trpo import MAX_SHRINKS, SHRINK, surrogate_gain, Trpo

SPEC = PolicySpec(obs_dim=1, act_dim=1)


def bandit(actions, advantages):
    """Return a standard normal policy that sees nothing: only its bias and sigma matter."""
    policy = PolicySnapshot(SPEC, np.zeros(2), np.zeros(0), np.zeros(1))
    coordinates = Coordinates(SPEC, np.zeros((2, 0)), free=True)
    at = forward(policy, np.zeros((len(actions), 1)))
    u, A = np.array(actions, dtype=float)[:, None], np.array(advantages, dtype=float)
    return StepStart(policy, coordinates, at, u, A, np.zeros(1, int))


def trpo(max_kl):
    return Trpo(TrainingConfig(step='trpo', max_kl=max_kl, cg_damping=0.0))


def bias_move(m):
    return Move(np.zeros(1), np.zeros(0), np.array([0.0, m]), np.zeros(0))


@pytest.mark.parametrize('m', [-0.7, 0.1, 1.3])
def test_the_gain_of_a_shifted_mean_is_the_closed_form(m):
    gain, kl = surrogate_gain(bandit([1, -1], [1, -1]), bias_move(m))
    assert gain == pytest.approx(np.exp(-0.5 * m * m) * np.sinh(m), rel=1e-12)
    assert kl == pytest.approx(0.5 * m * m, rel=1e-12)


def test_a_policy_that_stays_gains_nothing_whatever_the_advantages():
    assert surrogate_gain(bandit([1, -1], [3, 1]), bias_move(0.0)) == (0.0, 0.0)


def test_a_step_that_meets_the_kl_is_taken_whole():
    learner, start = trpo(1 / 32), bandit([1, -1], [1, -1])
    step = learner.step(start, learner.gradient(start))
    np.testing.assert_array_equal(step.move.residual, [0.0, 0.25])  # sqrt(2 delta)
    assert (step.kl, step.length, step.refused) == (1 / 32, 0.25, 0)


def test_a_step_beyond_the_trust_region_shrinks():
    """Sigma falls by sqrt(delta) = 0.5: its KL is 0.359; at 0.4 it is 0.213."""
    learner, start = trpo(0.25), bandit([0, 0, 2, -2], [1, 1, -1, -1])
    step = learner.step(start, learner.gradient(start))
    assert step.move.log_std[0] == pytest.approx(-0.5 * SHRINK, rel=1e-12)
    assert step.kl == pytest.approx(-0.4 + 0.5 * (np.exp(0.8) - 1.0), rel=1e-12)
    assert step.refused == 1


def test_a_step_that_loses_return_shrinks():
    """A rare bad action outweighs the others once the mean comes near it."""
    learner, start = trpo(2.0), bandit([1, -1, 5], [1, -1, -0.02])
    gradient = learner.gradient(start)
    step = learner.step(start, gradient)
    x, length = learner.direction(start, gradient)
    assert step.refused > 0
    assert step.length == pytest.approx(length * SHRINK**step.refused, rel=1e-12)
    gain, kl = surrogate_gain(start, step.move)
    assert gain > 0.0
    assert step.kl == kl <= 2.0
    for earlier in range(step.refused):
        longer = start.coordinates.split(length * SHRINK**earlier * x)
        gain, kl = surrogate_gain(start, longer)
        assert gain <= 0.0 or kl > 2.0
    assert surrogate_gain(start, start.coordinates.split(length * x))[0] < 0.0


def test_without_a_gain_the_policy_stays():
    learner, start = trpo(0.01), bandit([1, -1], [0, 0])
    step = learner.step(start, learner.gradient(start))
    assert not step.move.flat().any()
    assert (step.kl, step.length, step.refused) == (0.0, 0.0, MAX_SHRINKS)


def test_what_a_method_adds_to_the_gradient_counts_as_gain():
    """The method's term pulls three times as hard the other way: the return may fall."""
    learner, start = trpo(0.01), bandit([1, -1], [1, -1])
    own = learner.gradient(start)
    pulled = Move(own.log_std, own.coefficients, -2.0 * own.residual, own.head)
    step = learner.step(start, pulled)
    assert step.move.residual[1] < 0.0
    assert surrogate_gain(start, step.move)[0] < 0.0


def test_a_gain_that_the_term_of_a_method_outweighs_is_refused():
    """The term takes three quarters of the slope: 0.713 - 0.75 at m = 1, 0.645 - 0.6 at 0.8."""
    learner, start = trpo(0.5), bandit([1, -1], [1, -1])
    own = learner.gradient(start)
    held = Move(own.log_std, own.coefficients, 0.25 * own.residual, own.head)
    step = learner.step(start, held)
    assert step.move.residual[1] == pytest.approx(SHRINK)
    assert step.refused == 1


@pytest.mark.parametrize('method', ['stl', 'lpg-ftw'])
def test_methods_learn_with_it_inside_the_trust_region(method, make_batch):
    settings = {'step': 'trpo', 'max_kl': 0.02}
    learner = make_learner(method, PolicySpec(obs_dim=3, act_dim=2), settings)
    returns = []
    for task in ('a', 'b'):
        learner.start_task(task, seed=3)
        for _ in range(15):
            batch = make_batch(learner, n=20)
            report = learner.improve(batch)
            learner.fit_values()
            returns.append(np.mean(batch.returns))
            assert 0.0 <= report.kl <= 0.02
        learner.finish_task(make_batch(learner, seed=1))
    assert np.mean(returns[12:15]) > 0.7 * np.mean(returns[:3])  # returns are negative
    assert np.mean(returns[27:]) > 0.7 * np.mean(returns[15:18])


def test_its_local_model_is_that_of_the_natural_gradient(policy, obs, actions, weights):
    config = TrainingConfig(step='trpo')
    found = make_base_learner(config).local_model(policy, obs, actions, weights)
    wanted = Npg(config).local_model(policy, obs, actions, weights)
    np.testing.assert_array_equal(found.H, wanted.H)


@pytest.mark.parametrize('name', BASE_LEARNERS)
def test_every_base_learner_can_be_made(name):
    made = make_base_learner(TrainingConfig(step=name))
    assert type(made).__name__.lower() == name
