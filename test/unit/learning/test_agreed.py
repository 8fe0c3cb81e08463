"""The step that trusts a batch as far as its halves agree, against closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from lpgftw_ros.learning import make_learner
from lpgftw_ros.learning.agreed import (
    Agreed,
    half_gradients,
    LEAST,
    OWN_WEIGHT,
    share,
    SHARED_WEIGHT,
)
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.policies import (
    forward,
    initial_head,
    PolicySnapshot,
    PolicySpec,
    surrogate_gradient,
)
from lpgftw_ros.learning.steps import Coordinates, Fisher, Npg, StepStart

from .conftest import toy_batch

LINEAR = PolicySpec(obs_dim=3, act_dim=2)
MLP = PolicySpec(obs_dim=3, act_dim=2, hidden=(6, 5))
SPECS = pytest.mark.parametrize('spec', [LINEAR, MLP], ids=['linear', 'mlp'])
EXACT = {'cg_iterations': 300, 'cg_damping': 0.0}


def start_of(spec, rng, *, k=2, n=400, free=True, advantages=None):
    theta = rng.normal(size=spec.n_parameters) / 3
    policy = PolicySnapshot(spec, theta, initial_head(spec, rng), np.full(spec.act_dim, -0.3))
    at = forward(policy, rng.normal(size=(n, spec.obs_dim)))
    actions = at.mean + np.exp(policy.log_std) * rng.normal(size=at.mean.shape)
    coordinates = Coordinates(spec, rng.normal(size=(spec.n_parameters, k)), free=free)
    A = rng.normal(size=n) if advantages is None else advantages(at, actions)
    return StepStart(policy, coordinates, at, actions, A, np.arange(0, n, 20))


def agreed(**settings):
    return Agreed(TrainingConfig(step='agreed', **{'max_kl': 0.02} | settings))


def doubled(start):
    """Return the same start with every row twice: both halves are the same."""
    twice = (np.concatenate((a, a)) for a in (start.at.obs, start.actions, start.advantages))
    obs, actions, advantages = twice
    at = forward(start.policy, obs)
    starts = np.concatenate((start.starts, start.starts + len(start.advantages)))
    return StepStart(start.policy, start.coordinates, at, actions, advantages, starts)


@SPECS
def test_halves_that_are_the_same_give_the_natural_gradient(spec, rng):
    start, config = doubled(start_of(spec, rng)), TrainingConfig(max_kl=0.02)
    step = agreed().step(start, agreed().gradient(start))
    plain = Npg(config).step(start, Npg(config).gradient(start))
    assert step.measures == pytest.approx({SHARED_WEIGHT: 1.0, OWN_WEIGHT: 1.0})
    np.testing.assert_allclose(step.move.flat(), plain.move.flat(), rtol=1e-6, atol=1e-9)


@SPECS
def test_the_parts_add_up_and_are_orthogonal_in_the_metric(spec, rng):
    start, learner = start_of(spec, rng), agreed(**EXACT)
    move = learner.gradient(start)
    shared, own = learner.parts(start, move)
    g = replace(move, log_std=np.zeros(spec.act_dim)).flat()
    np.testing.assert_allclose(shared + own, g, rtol=0, atol=1e-12)
    # P' g_R = 0: what is left has no part along s and the head
    left = start.coordinates.split(own)
    for part in (left.log_std, left.coefficients, left.head):
        np.testing.assert_allclose(part, 0.0, atol=1e-5 * np.linalg.norm(g))


def test_the_shared_part_of_a_linear_policy_is_the_projection(rng):
    """With F in closed form: g_S = F P (P' F P)^-1 P' g."""
    start, learner = start_of(LINEAR, rng), agreed(**EXACT)
    F, P = Fisher(start.policy, start.at).of_theta(), start.coordinates.basis
    move = learner.gradient(start)
    expected = F @ P @ np.linalg.solve(P.T @ F @ P, P.T @ move.residual)
    shared = start.coordinates.split(learner.parts(start, move)[0])
    np.testing.assert_allclose(shared.residual, expected, rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(shared.log_std, 0.0)


def test_the_weights_are_what_the_halves_share(rng):
    start, learner = start_of(LINEAR, rng, k=0), agreed(**EXACT)
    common, energy = learner.agreement(start)
    F = Fisher(start.policy, start.at).of_theta()
    g1, g2 = (g.residual for g in half_gradients(start))
    mean = 0.5 * (g1 + g2)
    assert common == pytest.approx([0.0, g1 @ np.linalg.solve(F, g2)], rel=1e-6)
    assert energy == pytest.approx([0.0, mean @ np.linalg.solve(F, mean)], rel=1e-6)


def test_halves_that_contradict_each_other_take_the_smallest_step(rng):
    start = doubled(start_of(LINEAR, rng))
    sign = np.repeat([1.0, -1.0], len(start.advantages) // 2)
    against = replace(start, advantages=start.advantages * sign + 1e-3 * start.advantages)
    learner = agreed()
    step = learner.step(against, learner.gradient(against))
    assert step.measures == {SHARED_WEIGHT: 0.0, OWN_WEIGHT: 0.0}
    assert 0.0 < step.kl <= 1.5 * LEAST * 0.02


@SPECS
def test_the_kl_is_the_share_of_signal(spec, rng):
    start = start_of(spec, rng, n=2000)
    learner = agreed(max_kl=1e-4)
    common, energy = learner.agreement(start)
    w = np.clip(common / energy, 0.0, 1.0)
    rho = max(LEAST, w @ common / np.sum(common[common > 0.0])) if w.any() else LEAST
    step = learner.step(start, learner.gradient(start))
    assert step.kl == pytest.approx(rho * 1e-4, rel=0.15)


def test_noise_in_many_directions_is_trusted_less_than_signal_in_few(rng):
    """The advantage depends on the action along one column only; theta has 108 directions."""
    spec = PolicySpec(obs_dim=17, act_dim=6)
    column = rng.normal(size=spec.n_parameters)

    def signal(at, actions):
        along = forward(PolicySnapshot(spec, column, np.zeros(0), np.zeros(6)), at.obs).mean
        return 0.1 * np.sum(along * (actions - at.mean), axis=1) + rng.normal(size=len(actions))

    found = []
    for _ in range(20):
        start = start_of(spec, rng, n=1000, advantages=signal)
        basis = np.column_stack((column, start.coordinates.basis[:, 0]))
        start = replace(start, coordinates=Coordinates(spec, basis, free=True))
        found.append(share(*agreed(**EXACT).agreement(start)))
    shared, own = np.mean(found, axis=0)
    assert shared > 0.6
    assert own < 0.25


def test_without_a_free_residual_there_is_one_part(rng):
    start, learner = start_of(LINEAR, rng, free=False), agreed()
    step = learner.step(start, learner.gradient(start))
    assert step.measures[OWN_WEIGHT] == 0.0
    assert step.move.residual.shape == (0,)


@pytest.mark.parametrize('method', ['stl', 'lpg-ftw', 'lpg-ftw-adaptive', 'ewc', 'er'])
@SPECS
def test_every_method_learns_with_it(method, spec):
    learner = make_learner(method, spec, {'step': 'agreed', 'value_epochs': 1}, seed=1)
    for task in ('a', 'b'):
        learner.start_task(task, seed=2)
        for _ in range(2):
            report = learner.improve(toy_batch(learner))
            learner.fit_values()
            assert SHARED_WEIGHT in report.measures
        learner.finish_task(toy_batch(learner, seed=1))
    assert set(learner.knowledge().tasks) == {'a', 'b'}


def test_without_columns_a_linear_policy_steps_along_the_natural_gradient(rng):
    """One part only, and log sigma moves with its weight: the step is shorter, no other."""
    start, learner = start_of(LINEAR, rng, k=0, n=2000), agreed(max_kl=1e-6)
    move = learner.step(start, learner.gradient(start)).move
    plain = Npg(TrainingConfig(max_kl=1e-6))
    full = plain.step(start, plain.gradient(start)).move
    factor = np.linalg.norm(move.flat()) / np.linalg.norm(full.flat())
    assert np.sqrt(LEAST) * 0.99 < factor < 1.0
    np.testing.assert_allclose(move.flat(), factor * full.flat(), rtol=1e-9, atol=1e-15)


def test_a_linear_step_without_columns_keeps_its_direction_in_pure_noise(rng):
    """However little the halves agree on, log sigma gets no more weight than the mean."""
    spec, learner = PolicySpec(obs_dim=17, act_dim=6), agreed(max_kl=1e-6)
    plain, small = Npg(TrainingConfig(max_kl=1e-6)), 0
    for _ in range(30):
        start = start_of(spec, rng, k=0, n=1000)
        step = learner.step(start, learner.gradient(start))
        small += 0.0 < step.measures[OWN_WEIGHT] < LEAST
        move, full = step.move.flat(), plain.step(start, plain.gradient(start)).move.flat()
        cosine = move @ full / np.linalg.norm(move) / np.linalg.norm(full)
        assert cosine == pytest.approx(1.0, abs=1e-6)
    assert small


def test_what_a_method_adds_is_added_whole(rng):
    """A penalty has no halves: it may not vanish with what the halves do not agree on."""
    start, learner = start_of(LINEAR, rng, k=0, n=300), agreed(**EXACT, max_kl=1e-6)
    own = learner.gradient(start)
    pull = replace(own, residual=1e6 * np.ones(LINEAR.n_parameters))
    step = learner.step(start, pull)
    F_step = start.coordinates.fisher(Fisher(start.policy, start.at))(step.move.flat())
    along = start.coordinates.split(F_step).residual
    assert np.all(along > 0.0)
    cosine = along @ pull.residual / np.linalg.norm(along) / np.linalg.norm(pull.residual)
    assert cosine > 0.99


def test_half_of_the_gradient_alone_is_the_same_step(rng):
    """Replay adds half of another gradient to half of this one; weights may not turn it round."""
    start, learner = start_of(LINEAR, rng), agreed(**EXACT)
    whole = learner.gradient(start)
    half = start.coordinates.split(0.5 * whole.flat())
    one, other = learner.step(start, whole), learner.step(replace(start, share=0.5), half)
    np.testing.assert_allclose(one.move.flat(), other.move.flat(), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize(
    ('starts', 'middle'), [([0, 100, 200], 200), ([0, 180, 190], 190), ([0], 200)]
)
def test_halves_hold_whole_trajectories(rng, starts, middle):
    start = replace(start_of(LINEAR, rng, n=400), starts=np.array(starts))
    first = half_gradients(start)[0]
    at, n = start.at.rows(slice(0, middle)), middle
    here = surrogate_gradient(start.policy, at, start.actions[:n], start.advantages[:n])
    np.testing.assert_array_equal(first.residual, here.theta)
