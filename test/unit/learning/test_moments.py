"""Normalised observations: the moments, what policies mean outside, and when they stay."""

from dataclasses import replace

import numpy as np
import pytest

from lpgftw_ros.errors import InvalidConfig, StateMismatch
from lpgftw_ros.learning import make_learner, PolicySpec, TaskFactors
from lpgftw_ros.learning.adaptive.recognise import Recognition, signature
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.moments import FIRST_LOOK, Moments, moments_arrays, read_moments
from lpgftw_ros.learning.policies import compose, Knowledge, mean_action, PolicySnapshot

METHODS = ('lpg-ftw', 'stl', 'ewc', 'er')
FAR = np.array([3.0, -2.0, 0.5]), np.array([10.0, 0.1, 1.0])  # what the toy task is moved to


@pytest.fixture
def moments(rng):
    return Moments.none(3).joined(FAR[0] + FAR[1] * rng.standard_normal((50, 3)))


def far(batch):
    """Return the toy batch with observations that lie and vary elsewhere."""
    mean, scale = FAR
    return replace(
        batch,
        observations=mean + scale * batch.observations,
        final_observations=mean + scale * batch.final_observations,
    )


def visit(learner, make_batch, task, iterations=2):
    learner.start_task(task, seed=sum(task.encode()))
    while learner.wants() is not None:
        learner.probed(far(make_batch(learner)))
    for _ in range(iterations):
        learner.improve(far(make_batch(learner)))
        learner.fit_values()
    learner.finish_task(far(make_batch(learner, seed=1)))


def moments_of(learner):
    return read_moments(learner.state(), 3)


def test_moments_of_batches_are_those_of_all_observations_together(rng):
    parts = [FAR[0] + FAR[1] * rng.standard_normal((n, 3)) for n in (1, 7, 40, 3)]
    joined = Moments.none(3)
    for part in parts:
        joined = joined.joined(part)
    rows = np.concatenate(parts)
    assert (joined.count, joined.updates) == (len(rows), 4)
    np.testing.assert_allclose(joined.mean, rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(joined.scale, rows.std(axis=0), rtol=1e-13)
    np.testing.assert_allclose(joined.shown(rows).mean(axis=0), 0.0, atol=1e-13)
    np.testing.assert_allclose(joined.shown(rows).std(axis=0), 1.0, rtol=1e-13)


def test_a_number_that_does_not_move_is_only_centred():
    rows = np.column_stack((np.full(20, 5.0), 1e-5 * np.arange(20), np.arange(20.0)))
    joined = Moments.none(3).joined(rows)
    np.testing.assert_array_equal(joined.scale[:2], 1.0)
    assert joined.scale[2] == pytest.approx(rows[:, 2].std())


def test_a_policy_outside_does_what_the_one_inside_does(policy, obs, moments):
    spec, head = policy.spec, policy.head
    inside = mean_action(spec, policy.theta, head, moments.shown(obs))
    outside = mean_action(spec, moments.plain(spec, policy.theta), head, obs)
    np.testing.assert_allclose(outside, inside, rtol=1e-10, atol=1e-12)


def test_basis_and_residual_are_turned_outside_apart(policy, rng, moments):
    spec = policy.spec
    L, r = rng.standard_normal((spec.n_parameters, 2)), rng.standard_normal(spec.n_parameters)
    factors = TaskFactors(np.array([0.3, -2.0]), r, policy.head, policy.log_std)
    plain = moments.plain_knowledge(Knowledge(4, spec, L, {'a': factors}))
    wanted = moments.plain(spec, compose(L, factors))
    np.testing.assert_allclose(plain.policy('a').theta, wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(plain.tasks['a'].coefficients, factors.coefficients)
    assert plain.version == 5  # a policy node must not compose with the basis it had before


def test_a_column_does_not_depend_on_the_columns_beside_it(policy, rng, moments):
    spec, L = policy.spec, rng.standard_normal((policy.spec.n_parameters, 3))
    few, many = (moments.plain_knowledge(Knowledge(0, spec, L[:, :k], {})).basis for k in (1, 3))
    np.testing.assert_array_equal(few[:, 0], many[:, 0])


def test_a_local_model_outside_has_the_same_values(policy, rng, moments):
    spec, d = policy.spec, policy.spec.n_parameters
    root = rng.standard_normal((d, d))
    inside = LocalModel(rng.standard_normal(d), rng.standard_normal(d), -root @ root.T)
    outside = moments.plain_model(spec, inside)

    def value(model, theta):
        step = theta - model.alpha
        return model.g @ step + step @ model.H @ step

    theta = rng.standard_normal(d)
    assert value(outside, moments.plain(spec, theta)) == pytest.approx(value(inside, theta))


@pytest.mark.parametrize('name', METHODS)
def test_the_first_look_comes_before_the_first_step(name, spec, make_batch):
    learner = make_learner(name, spec, {'normalise': True})
    assert learner.wants() is None
    learner.start_task('a', seed=1)
    look = learner.wants()
    assert (look.task, look.n_trajectories, look.explore) == ('a', FIRST_LOOK, True)
    batch = far(make_batch(learner))
    learner.probed(batch)
    assert learner.wants() is None
    np.testing.assert_allclose(moments_of(learner).mean, batch.observations.mean(axis=0))


@pytest.mark.parametrize('name', METHODS)
def test_the_moments_run_through_the_first_task_and_then_stay(name, spec, make_batch):
    learner = make_learner(name, spec, {'normalise': True, 'value_epochs': 1})
    visit(learner, make_batch, 'a', iterations=3)
    assert moments_of(learner).count == 4 * 80  # the look and three batches of 80 steps
    before = moments_of(learner)
    visit(learner, make_batch, 'b')
    visit(learner, make_batch, 'a')
    assert moments_of(learner).count == before.count


def test_a_finished_policy_keeps_every_bit_while_others_are_learned(spec, make_batch):
    learner = make_learner('stl', spec, {'normalise': True, 'value_epochs': 1})
    visit(learner, make_batch, 'a')
    before = learner.knowledge().policy('a').theta
    visit(learner, make_batch, 'b')
    np.testing.assert_array_equal(learner.knowledge().policy('a').theta, before)


def test_an_exact_natural_step_is_the_same_for_any_scale_of_observations(make_batch):
    """Fisher matrix and gradient turn with the parameters, so the policy moves alike."""
    exact = {'cg_iterations': 500, 'cg_damping': 0.0, 'max_kl': 0.01}
    spec = PolicySpec(obs_dim=3, act_dim=2)
    inside = make_learner('stl', spec, {**exact, 'normalise': True})
    inside.start_task('a', seed=1)
    inside.probed(far(make_batch(inside)))
    plain = make_learner('stl', spec, exact)
    plain.start_task('a', seed=1)
    plain._run = replace(plain._run, factors=inside.factors())
    for learner in (inside._inside, plain):
        learner._run.values.parameters[:] = 0.0  # the value of a state is no part of this
    rows = np.random.default_rng(0).standard_normal((80, 3))
    obs = FAR[0] + FAR[1] * rows
    policy = plain.knowledge().compose(plain.factors())
    actions = policy.act(obs, np.random.default_rng(1).standard_normal((80, 2)))
    batch = replace(make_batch(plain), observations=obs, actions=actions)
    now = moments_of(inside)
    for learner in (inside, plain):
        learner.improve(batch)
    stepped = inside._inside.factors()
    theta = now.plain(spec, stepped.residual)  # before the moments took the batch
    wanted = plain.factors()
    ours, theirs = (
        mean_action(spec, t, np.zeros(0), obs) - mean_action(spec, policy.theta, np.zeros(0), obs)
        for t in (theta, wanted.residual)
    )
    assert np.abs(theirs).max() > 0.05
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(stepped.log_std, wanted.log_std, rtol=1e-6)


def test_badly_scaled_observations_are_learned_as_well_as_good_ones(make_batch):
    """The toy task is solved alike wherever its observations lie, not without normalise."""

    def reached(moved, normalise):
        learner = make_learner('stl', PolicySpec(3, 2), {'max_kl': 0.05, 'normalise': normalise})
        learner.start_task('a', seed=1)
        if normalise:
            learner.probed(moved_batch(learner, moved))
        returns = []
        for _ in range(25):
            batch = moved_batch(learner, moved)
            returns.append(float(np.mean(batch.rewards)))
            learner.improve(batch)
            learner.fit_values()
        return np.mean(returns[-5:])

    def moved_batch(learner, moved):
        rng = np.random.default_rng((learner.iteration, 3))
        x = rng.standard_normal((400, 3))
        mean, scale = (np.array([100.0, 0.0, 0.0]), np.array([0.1, 1.0, 10.0]))
        seen = mean + scale * x if moved else x
        policy = learner.knowledge().compose(learner.factors())
        actions = policy.act(seen, rng.standard_normal((400, 2)))
        wanted = x @ np.array([[1.0, -1.0], [0.5, 1.0], [-1.0, 0.3]])
        batch, n = make_batch(learner), 40
        flags = np.zeros(n, dtype=bool)
        return replace(
            batch,
            observations=seen,
            actions=actions,
            rewards=-np.sum((actions - wanted) ** 2, axis=1),
            lengths=np.full(n, 10),
            terminated=flags,
            truncated=~flags,
            success=flags,
            failed=flags,
            final_observations=seen[:n],
        )

    good, helped, alone = reached(False, False), reached(True, True), reached(True, False)
    assert good == pytest.approx(helped, abs=0.5)
    assert alone < good - 1.0


@pytest.mark.parametrize('name', METHODS)
def test_a_state_goes_on_to_the_byte(name, spec, make_batch):
    settings = {'normalise': True, 'value_epochs': 1}
    learner, other = (make_learner(name, spec, settings, 5) for _ in range(2))
    learner.start_task('a', seed=3)
    learner.probed(far(make_batch(learner)))
    learner.improve(far(make_batch(learner)))
    learner.fit_values()
    other.load_state(learner.state())
    for one in (learner, other):
        one.improve(far(make_batch(one)))
        one.fit_values()
        one.finish_task(far(make_batch(one, seed=1)))
    states = learner.state(), other.state()
    assert states[0].keys() == states[1].keys()
    for key, array in states[0].items():
        np.testing.assert_array_equal(states[1][key], array, err_msg=key)


def test_knowledge_is_taken_only_by_a_learner_that_sees_alike(spec, make_batch):
    seen, plain = (make_learner('stl', spec, {'normalise': flag}) for flag in (True, False))
    visit(seen, make_batch, 'a')
    shared = seen.state(['base', 'models'])
    with pytest.raises(StateMismatch, match='learned with normalise=true'):
        plain.adopt(shared)
    with pytest.raises(StateMismatch, match='learned without normalise=true'):
        seen.adopt(make_learner('stl', spec).state(['base', 'models']))
    other = make_learner('stl', spec, {'normalise': True})
    other.adopt(shared)
    theta = seen.knowledge().policy('a').theta
    np.testing.assert_array_equal(other.knowledge().policy('a').theta, theta)
    other.start_task('b', seed=1)
    assert other.wants() is None  # it came with its moments


def test_finished_policies_are_not_seen_otherwise(spec):
    source = {
        'a': PolicySnapshot(
            spec, np.zeros(spec.n_parameters), np.zeros(spec.head_size), np.zeros(2)
        )
    }
    with pytest.raises(InvalidConfig, match='no normalise'):
        make_learner('pg-ella', spec, {'normalise': True}, source=source)


def test_a_task_is_recognised_by_plain_observations(spec, make_batch, moments):
    learner = make_learner('stl', spec)
    learner.start_task('a', seed=1)
    first, later = far(make_batch(learner)), far(make_batch(learner, seed=1))
    shown = replace(first, observations=moments.shown(first.observations))
    inside = Recognition('x', {'a': learner.factors()}, {'a': signature(shown)})
    plain = inside.turned(lambda own: moments.plain_factors(spec, own), moments.unshown)
    residual = moments.plain(spec, learner.factors().residual)
    np.testing.assert_array_equal(plain.probe.factors.residual, residual)
    inside.answer(replace(later, observations=moments.shown(later.observations)))
    plain.answer(later)
    assert plain.verdict.distances == pytest.approx(inside.verdict.distances, rel=1e-6)
    assert plain.verdict.distances['a'] > 0.0


def test_a_probe_of_the_method_inside_acts_on_plain_observations(spec, make_batch):
    learner = make_learner('lpg-ftw-adaptive', spec, {'normalise': True, 'value_epochs': 1})
    visit(learner, make_batch, 'a')
    learner.start_task('b', seed=1)
    probe, own = learner.wants(), learner.factors()
    assert (probe.task, probe.purpose) == ('b', 'start')
    for name in ('coefficients', 'residual', 'head', 'log_std'):
        np.testing.assert_array_equal(getattr(probe.factors, name), getattr(own, name))


def test_of_two_saved_moments_those_of_more_batches_count(rng):
    old = Moments.none(3).joined(rng.standard_normal((9, 3)))
    new = old.joined(rng.standard_normal((9, 3)))
    for run, base in ((new, old), (old, new)):
        state = moments_arrays('run', run) | moments_arrays('base', base)
        found = read_moments(state, 3)
        assert (found.count, found.updates) == (18, new.updates)
        np.testing.assert_array_equal(found.mean, new.mean)
