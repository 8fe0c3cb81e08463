"""Adaptive LPG-FTW: each part alone, in closed form where there is one."""

import contextlib
from dataclasses import replace
import itertools
import types

import numpy as np
import pytest

from lpgftw_ros.errors import InvalidConfig, LearnerMisuse, NonFinite, StateMismatch
from lpgftw_ros.learning import make_learner
from lpgftw_ros.learning.adaptive.budget import (
    Account,
    history_sizes,
    is_over,
    is_stuck,
    remember,
)
from lpgftw_ros.learning.adaptive.columns import (
    best_basis,
    best_coefficients,
    explained,
    Factoring,
    merged,
    with_column,
)
from lpgftw_ros.learning.adaptive.config import AdaptiveConfig
from lpgftw_ros.learning.adaptive.guard import (
    at_risk,
    difference,
    distinct,
    gains,
    guard,
    loses,
    Means,
    Memory,
    shortened,
)
from lpgftw_ros.learning.adaptive.learner import AdaptiveLpgFtw
from lpgftw_ros.learning.adaptive.recognise import distance, Signature, signature, verdict
from lpgftw_ros.learning.adaptive.start import (
    advance,
    Draws,
    kept,
    rung_end,
    total_iterations,
)
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.lpg_ftw import LpgFtw, LpgFtwConfig
from lpgftw_ros.learning.policies import compose, forward, PolicySpec
from lpgftw_ros.learning.solvers import TaskModel, TaskTerm
from lpgftw_ros.learning.solvers.forms import DenseForm
from lpgftw_ros.learning.steps import conjugate_gradient, curvature_along, Fisher
from lpgftw_ros.learning.values import discounted_returns, value_features
from lpgftw_ros.runs.checkpoints import present_schema

from .conftest import toy_batch

LINEAR = PolicySpec(obs_dim=3, act_dim=2)
MLP = PolicySpec(obs_dim=3, act_dim=2, hidden=(6, 5))
SPECS = pytest.mark.parametrize('spec', [LINEAR, MLP], ids=['linear', 'mlp'])
SMALL = {'max_columns': 2, 'value_epochs': 1, 'guard_tolerance': 0.0, 'inherit_margin': 0.0}
MEASURED = {
    'guard_tolerance': 0.05,
    'guard_share': 1.0,
    'inherit_margin': 0.05,
    'inherit_share': 1.0,
}


def make(spec=LINEAR, seed=3, **settings):
    return AdaptiveLpgFtw(spec, AdaptiveConfig(**SMALL | settings), seed)


def iterate(learner, n=2):
    for _ in range(n):
        report = learner.improve(toy_batch(learner))
        learner.fit_values()
    return report


def learn(learner, *tasks, iterations=2):
    for task in tasks:
        learner.start_task(task, seed=sum(task.encode()))
        iterate(learner, iterations)
        learner.finish_task(toy_batch(learner, seed=1))


def answer(learner, probe, better=0.0):
    """Return the trajectories of a probe, with something added to every reward."""
    stand_in = types.SimpleNamespace(
        running=probe.task,
        spec=learner.spec,
        iteration=0,
        knowledge=learner.knowledge,
        factors=lambda: probe.factors,
    )
    batch = toy_batch(stand_in, n=probe.n_trajectories)
    return replace(batch, rewards=batch.rewards + better)


def measure(learner, better=lambda probe: 0.0):
    """Answer every probe; return their purposes, tasks and what was found."""
    series = []
    while (probe := learner.wants()) is not None:
        found = learner.probed(answer(learner, probe, better(probe)))
        series.append((probe.purpose, probe.task, dict(found)))
    return series


def copy_of(learner):
    other = AdaptiveLpgFtw(learner.spec, learner.config, 3)
    other.load_state(learner.state())
    return other


def assert_same_state(first, second):
    a, b = first.state(), second.state()
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


# -- residuals that stay -----------------------------------------------------------------------


@SPECS
def test_a_task_beyond_the_columns_is_what_l_explains_and_its_residual(spec):
    learner = make(spec)
    learn(learner, 'a', 'b', 'c')
    factors = learner.knowledge().tasks['c']
    assert np.linalg.norm(factors.residual) > 0.0
    theta = learner._basis() @ factors.coefficients + factors.residual
    np.testing.assert_allclose(learner.knowledge().policy('c').theta, theta, atol=1e-12)


@SPECS
def test_the_residual_of_a_new_task_starts_at_zero_once_there_is_a_column(spec):
    learner = make(spec)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    assert not learner.factors().residual.any()
    assert learner.knowledge().compose(learner.factors()).theta.any()


@SPECS
def test_b_receives_what_the_residual_does_not_explain(spec):
    learner = make(spec, ridge=1e-12)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    iterate(learner)
    tuned = learner.knowledge().compose(learner.factors()).theta
    residual = learner.factors().residual.copy()
    learner.finish_task(toy_batch(learner, seed=1))
    alpha = learner._knowledge_base.terms['c'].model.alpha
    np.testing.assert_allclose(alpha, tuned - residual, atol=1e-12)
    np.testing.assert_array_equal(learner.knowledge().tasks['c'].residual, residual)


def test_without_its_parts_it_is_lpg_ftw():
    plain = LpgFtw(LINEAR, LpgFtwConfig(max_columns=2, value_epochs=1), 3)
    adaptive = make(residuals='columns', std_start='one')
    for learner in (plain, adaptive):
        learn(learner, 'a', 'b', 'c')
    for task in 'abc':
        mine, theirs = (x.knowledge().policy(task) for x in (adaptive, plain))
        np.testing.assert_array_equal(mine.theta, theirs.theta)
        np.testing.assert_array_equal(mine.log_std, theirs.log_std)


@SPECS
def test_the_penalty_of_the_residual_is_in_the_fisher_metric(spec):
    free, held = make(spec), make(spec, residual_penalty=0.1)
    for learner in (free, held):
        learn(learner, 'a', 'b')
        learner.start_task('c', seed=1)
    iterate(free)
    held.load_state(free.state())
    batch = toy_batch(free)
    policy = free.knowledge().compose(free.factors())
    at, advantages = forward(policy, batch.observations), np.ones(batch.n_steps)
    plain, pulled = (x._gradient(policy, at, batch, advantages) for x in (free, held))
    F = Fisher(policy, at).of_theta()
    r = free.factors().residual
    np.testing.assert_allclose(pulled.residual - plain.residual, -0.2 * F @ r, atol=1e-10)
    np.testing.assert_array_equal(pulled.coefficients, plain.coefficients)


# -- columns that grow and shrink --------------------------------------------------------------


def tasks_in(rng, d=8, k=2, n=5, noise=0.0):
    """Return parameters in a space of k dimensions and curvatures of n tasks."""
    space = rng.standard_normal((d, k))
    theta, H = {}, {}
    for i in range(n):
        root = rng.standard_normal((d, d))
        theta[f't{i}'] = space @ rng.standard_normal(k) + noise * rng.standard_normal(d)
        H[f't{i}'] = DenseForm(-(root @ root.T + np.eye(d)))
    return theta, H


def error(basis, S, theta, H):
    """Return E, what the columns leave unexplained."""
    rest = {task: wanted - basis @ S[task] for task, wanted in theta.items()}
    return sum(-float(rest[task] @ H[task].apply(rest[task])) for task in theta)


def test_a_merge_explains_all_where_fewer_columns_can(rng):
    theta, H = tasks_in(rng)
    L = rng.standard_normal((8, 3))
    S = {t: np.linalg.lstsq(L, x, rcond=None)[0] for t, x in theta.items()}
    start = Factoring(L, S, {t: theta[t] - L @ S[t] for t in theta})
    S2 = {t: best_coefficients(L[:, :2], theta[t], H[t]) for t in theta}
    before, errors = error(L[:, :2], S2, theta, H), []
    for _ in range(200):
        L = best_basis(L[:, :2], S2, theta, H)
        S2 = {t: best_coefficients(L, theta[t], H[t]) for t in theta}
        errors.append(error(L, S2, theta, H))
    assert errors[-1] < 1e-3 * before
    assert all(b <= a + 1e-12 * before for a, b in itertools.pairwise([before, *errors]))
    merge = merged(start, theta, H, 2)
    assert error(merge.basis, merge.coefficients, theta, H) <= before


def test_merging_and_growing_leave_every_policy_as_it_is(rng):
    theta, H = tasks_in(rng, noise=0.3)
    L = rng.standard_normal((8, 3))
    S = {t: np.linalg.lstsq(L, x, rcond=None)[0] for t, x in theta.items()}
    start = Factoring(L, S, {t: theta[t] - L @ S[t] for t in theta})
    for new in (merged(start, theta, H, 2), with_column(start, start.residuals['t0'], H)):
        for t, wanted in theta.items():
            np.testing.assert_allclose(
                new.basis @ new.coefficients[t] + new.residuals[t], wanted, atol=1e-10
            )


def test_a_new_column_explains_its_residual_and_its_share_of_the_others(rng):
    theta, H = tasks_in(rng, k=1)
    L = rng.standard_normal((8, 1)) * 1e-9
    start = Factoring(L, {t: np.zeros(1) for t in theta}, dict(theta))
    v = theta['t0']
    assert explained(v, start.residuals, H) == pytest.approx(1.0)
    grown = with_column(start, v, H)
    assert max(np.abs(r).max() for r in grown.residuals.values()) < 1e-9
    orthogonal = np.linalg.qr(np.column_stack((v, rng.standard_normal(8))))[0][:, 1]
    flat = {t: DenseForm(-np.eye(8)) for t in theta}
    assert explained(orthogonal, start.residuals, flat) == pytest.approx(0.0, abs=1e-12)
    assert explained(v, {t: np.zeros(8) for t in theta}, H) == 0.0


def test_a_direction_far_below_the_largest_curvature_gets_no_weight():
    H = {'a': DenseForm(-np.diag([1e8, 1e-8]))}
    basis = best_basis(np.ones((2, 1)), {'a': np.ones(1)}, {'a': np.array([3.0, 3.0])}, H)
    np.testing.assert_allclose(basis[:, 0], [3.0, 0.0], atol=1e-3)


def test_the_column_of_a_parked_task_counts_in_the_budget():
    learner = make(columns='paying', column_share=0.0, max_columns=2)
    learner.start_task('a', seed=1)
    learner.park_task()
    learn(learner, 'b', 'c', 'd')
    assert learner._basis().shape[1] == 1
    learn(learner, 'a')
    assert learner._basis().shape[1] == 2
    assert_same_state(learner, copy_of(learner))


def test_a_parked_task_stays_where_it_is_when_the_columns_are_regrouped():
    learner = make(columns='paying', column_share=0.0, max_columns=2)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    iterate(learner)
    learner.park_task()
    learner.start_task('d', seed=2)
    iterate(learner)
    parked, tuned = learner.knowledge().policy('c').theta, learner._running_policy().theta
    model = TaskModel(tuned, np.zeros(len(tuned)), DenseForm(-np.eye(len(tuned))))
    old = learner._basis()
    learner._regroup('d', learner.factors(), model)
    assert not np.array_equal(learner._basis(), old)
    np.testing.assert_allclose(learner.knowledge().policy('c').theta, parked, atol=1e-10)
    rest = learner.knowledge().tasks['c'].residual
    np.testing.assert_allclose(learner._basis().T @ rest, 0.0, atol=1e-10)


def test_a_parked_task_can_go_back_to_where_it_started_after_columns_were_merged():
    settings = {'columns': 'paying', 'column_share': 0.0, 'std_start': 'one'}
    learner = make(max_columns=2, inherit_margin=0.05, **settings)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    start = learner.knowledge().compose(learner.factors())
    iterate(learner)
    learner.park_task()
    learner.start_task('d', seed=2)
    iterate(learner)
    tuned = learner._running_policy().theta
    model = TaskModel(tuned, np.zeros(len(tuned)), DenseForm(-np.eye(len(tuned))))
    learner._regroup('d', learner.factors(), model)
    learner.cancel_task()
    learner.start_task('c', seed=1)
    assert learner.plan(2) == 2
    learner.probed(answer(learner, learner.wants()))
    back = learner.wants()
    assert (back.task, back.purpose) == ('c', 'keep')
    np.testing.assert_allclose(back.factors.residual, start.theta, atol=1e-10)


@SPECS
def test_columns_stay_within_their_budget_and_policies_where_they_are(spec):
    learner = make(spec, columns='paying', column_share=0.0, max_columns=2, ridge=1e-9)
    learn(learner, 'a', 'b', 'c')
    seen = []
    for task in 'defg':
        learner.start_task(task, seed=1)
        iterate(learner)
        before = learner.knowledge()
        run, H = learner._run, {t: x.model.H for t, x in learner._knowledge_base.terms.items()}
        tuned = before.compose(run.factors).theta
        model = TaskModel(tuned, np.zeros(len(tuned)), next(iter(H.values())))
        factors = learner._regroup(task, run.factors, model)
        for old in before.tasks:
            np.testing.assert_allclose(
                learner.knowledge().policy(old).theta, before.policy(old).theta, atol=1e-10
            )
        np.testing.assert_allclose(compose(learner._basis(), factors), tuned, atol=1e-10)
        learner._run = replace(run, factors=factors)
        learner.finish_task(toy_batch(learner, seed=1))
        seen.append(learner._basis().shape[1])
        assert_same_state(learner, copy_of(learner))
    assert seen[-1] == 2


def test_a_residual_of_zero_adds_no_column():
    learner = make(columns='paying', column_share=0.0)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    learner.finish_task(toy_batch(learner, seed=1))
    assert learner._basis().shape[1] == 1


# -- the start ---------------------------------------------------------------------------------


def test_sigma_starts_as_the_earlier_tasks_have_it_on_average():
    learner = make(std_start='mean')
    learn(learner, 'a', 'b')
    stds = [factors.log_std for factors in learner.knowledge().tasks.values()]
    learner.start_task('c', seed=1)
    np.testing.assert_allclose(learner.factors().log_std, np.mean(stds, axis=0))
    other = make(std_start='one')
    learn(other, 'a', 'b')
    other.start_task('c', seed=1)
    assert not other.factors().log_std.any()


@pytest.mark.parametrize('better', [True, False])
def test_a_measured_start_carries_sigma_only_where_it_earns_more(better):
    learner = make(max_columns=1)
    learn(learner, 'a')
    assert measure(learner) == []
    learner.start_task('b', seed=1)
    learner.park_task()
    learner = copy_of(learner)
    learner.start_task('b', seed=9)
    mean = learner._carried_std()
    plain = learner.factors().log_std
    gain = lambda probe: 1e4 * np.array_equal(probe.factors.log_std, mean) * better  # noqa: E731
    series = measure(learner, gain)
    assert [(purpose, task) for purpose, task, _ in series] == [('start', 'b')] * 2
    assert series[-1][2] == {'carried': float(better)}
    np.testing.assert_array_equal(learner.factors().log_std, mean if better else plain)
    assert learner.wants() is None
    assert_same_state(learner, copy_of(learner))
    iterate(learner)
    assert learner.wants() is None


@pytest.mark.parametrize('taken', ['none', 'carried', 'best_policy'])
def test_of_several_starts_the_one_that_earns_most_is_taken(taken):
    learner = make(MLP, max_columns=1, policy_start='measured', **MEASURED)
    learn(learner, 'a')
    measure(learner)
    learner.start_task('b', seed=1)
    learner.park_task()
    learner = copy_of(learner)
    learner.start_task('b', seed=9)
    plain, std = learner.factors(), learner._carried_std()
    policy = learner._finished['a'].factors

    def gain(probe):
        head = np.array_equal(probe.factors.head, policy.head)
        sigma = np.array_equal(probe.factors.log_std, std) and not head
        return {'none': 0.0, 'carried': 1e4 * sigma, 'best_policy': 1e4 * head}[taken]

    series = measure(learner, gain)
    assert [(purpose, task) for purpose, task, _ in series] == [('start', 'b')] * 3
    expected = {name: float(name == taken) for name in ('carried', 'best_policy')}
    assert series[-1][2] == expected
    now = learner.factors()
    np.testing.assert_array_equal(now.head, policy.head if taken == 'best_policy' else plain.head)
    np.testing.assert_array_equal(now.log_std, plain.log_std if taken == 'none' else std)
    assert_same_state(learner, copy_of(learner))


def test_several_tests_at_once_ask_for_more():
    rng = np.random.default_rng(1)
    old = rng.normal(size=5)
    new = old + 1.0 + rng.normal(size=5)
    alone, beside = (difference(new, old, tests)[1] for tests in (1, 2))
    assert beside / alone == pytest.approx(2.7764 / 2.1318, abs=1e-4)  # Student's t, 4 degrees


def test_without_a_measured_start_nothing_is_probed():
    learner = make(MLP, max_columns=1, std_start='one', **MEASURED)
    learn(learner, 'a')
    measure(learner)
    learner.start_task('b', seed=1)
    assert learner.wants() is None


@pytest.mark.parametrize('better', [True, False])
def test_a_task_goes_back_to_its_start_if_that_earned_more(better):
    learner = make(max_columns=1, std_start='one', inherit_margin=0.05)
    learn(learner, 'a')
    measure(learner)
    learner.start_task('b', seed=1)
    start = learner.knowledge().compose(learner.factors())
    iterate(learner, 2)
    tuned = learner.knowledge().compose(learner.factors())
    assert learner.plan(3) == 3
    assert learner.wants() is None
    assert learner.plan(2) == 2
    gain = lambda probe: 1e4 * np.array_equal(probe.factors.residual, start.theta) * better  # noqa: E731
    series = measure(copy_of(learner), gain)
    assert measure(learner, gain) == series
    assert [purpose for purpose, _, _ in series] == ['keep', 'keep']
    assert series[-1][2] == {'start_kept': float(better)}
    now = learner.knowledge().compose(learner.factors())
    np.testing.assert_array_equal(now.theta, start.theta if better else tuned.theta)
    learner.finish_task(toy_batch(learner, seed=1))
    measure(learner)
    assert_same_state(learner, copy_of(learner))


def test_a_start_is_only_compared_where_something_was_carried_and_inheritance_is_on():
    first = make(inherit_margin=0.05)
    first.start_task('a', seed=1)
    off = make(max_columns=1, std_start='one')
    learn(off, 'a')
    off.start_task('b', seed=1)
    for learner in (first, off):
        iterate(learner, 2)
        assert learner.plan(2) == 2
        assert learner.wants() is None


# -- the step ----------------------------------------------------------------------------------


def test_relative_damping_follows_the_scale_of_the_problem(rng):
    root = rng.standard_normal((6, 6))
    F, g = root @ root.T, rng.standard_normal(6)

    def solution(c):
        damping = 0.1 * curvature_along(lambda v: c * F @ v, g)
        product = conjugate_gradient(lambda v: c * F @ v, g, iterations=30, damping=damping)
        return c * product

    np.testing.assert_allclose(solution(1.0), solution(100.0), rtol=1e-4)


def test_relative_damping_of_nothing_is_nothing():
    assert curvature_along(lambda v: v, np.zeros(3)) == 0.0


# -- draws -------------------------------------------------------------------------------------


def test_the_schedule_of_draws_is_successive_halving():
    config = AdaptiveConfig(draws=8, draw_iterations=30, draw_keep=0.25)
    assert [rung_end(i, 100, config) for i in range(3)] == [30, 45, 60]
    assert [kept(n, 30, 100, config) for n in (8, 2)] == [2, 1]
    assert total_iterations(8, 50, config) == 8 * 30 + 2 * 15 + 5
    assert total_iterations(1, 50, config) == 50


def test_no_draw_runs_longer_than_asked_for():
    config = AdaptiveConfig(draws=8, draw_iterations=30, draw_keep=0.25)
    assert total_iterations(8, 3, config) == 8 * 3
    assert total_iterations(8, 40, config) == 8 * 30 + 2 * 10
    learner = make(draws=4, draw_iterations=15)
    learner.start_task('a', seed=1)
    while learner.iteration < learner.plan(2):
        iterate(learner, 1)
    assert learner.iteration == 4 * 2
    assert learner._run.iteration == 2
    learner.finish_task(toy_batch(learner, seed=1))


def test_the_best_draw_goes_on():
    learner = make(draws=4, draw_iterations=3, draw_keep=0.5)
    learner.start_task('a', seed=1)
    seen, n = {}, 12
    while learner.iteration < n:
        batch = toy_batch(learner, seed=learner.iteration)
        seen.setdefault(learner._run.seed, []).append(float(np.mean(batch.returns)))
        learner.improve(batch)
        n = learner.plan(8)
        learner.fit_values()
    lengths = sorted(len(returns) for returns in seen.values())
    assert lengths == [3, 3, 4, 8]  # 4 draws of 3, 2 go on for 1, the last to 8
    assert n == sum(lengths)
    first = {seed: np.mean(returns[:3]) for seed, returns in seen.items()}
    longest = sorted(seen, key=lambda seed: -len(seen[seed]))[:2]
    assert set(longest) == set(sorted(first, key=lambda seed: -first[seed])[:2])


def test_the_draws_that_are_left_are_counted_while_there_are_others():
    learner = make(draws=3, draw_iterations=1, draw_keep=0.5)
    learner.start_task('a', seed=1)
    left = []
    while learner.iteration < learner.plan(3):
        left.append(iterate(learner, 1).measures.get('draws_left'))
    assert left == [3, 3, 3, 2, 2, None]


def test_without_other_draws_a_run_goes_on():
    learner = make()
    learner.start_task('a', seed=1)
    run = learner._run
    assert advance(Draws(), run, 9, learner.config) == (Draws(), run)


def test_draws_are_parked_continued_and_cancelled_with_their_task():
    one, other = (make(draws=3, draw_iterations=2) for _ in range(2))
    for learner in (one, other):
        learner.start_task('a', seed=1)
        while learner.iteration < 3:
            learner.plan(4)
            iterate(learner, 1)
        learner.plan(4)
    one.park_task()
    one = copy_of(one)
    one.start_task('a', seed=9)
    for learner in (one, other):
        while learner.iteration < learner.plan(4):
            iterate(learner, 1)
        learner.finish_task(toy_batch(learner, seed=1))
    np.testing.assert_array_equal(
        one.knowledge().policy('a').theta, other.knowledge().policy('a').theta
    )
    dropped = make(draws=3)
    dropped.start_task('a', seed=1)
    dropped.cancel_task()
    assert dropped._draws == {}


def test_knowledge_of_another_learner_leaves_no_draws_of_parked_tasks():
    learner, other = make(draws=3), make(seed=4)
    learner.start_task('a', seed=1)
    iterate(learner, 1)
    learner.park_task()
    learn(other, 'z')
    learner.adopt(other.state(['base', 'models']))
    assert learner._draws == {}
    learner.start_task('a', seed=1)
    assert learner.iteration == 0
    iterate(learner, 1)
    assert learner.plan(4) == 4


@SPECS
def test_a_state_resumes_in_the_middle_of_the_draws(spec):
    learner = make(spec, draws=4, draw_iterations=2)
    learner.start_task('a', seed=1)
    while learner.iteration < 5:
        iterate(learner, 1)
        learner.plan(5)
    other = copy_of(learner)
    assert learner._draws['a'].done
    assert_same_state(learner, other)
    for each in (learner, other):
        while each.iteration < each.plan(5):
            iterate(each, 1)
        each.finish_task(toy_batch(each, seed=1))
    assert_same_state(learner, other)


# -- the budget --------------------------------------------------------------------------------


def history(config, returns, success=0.0):
    kept_so_far = {name: np.zeros(size) for name, size in history_sizes(config).items()}
    for i, value in enumerate(returns):
        batch = types.SimpleNamespace(returns=np.array([value]), success=np.array([success]))
        kept_so_far = remember(kept_so_far, batch, first=i == 0)
    return kept_so_far


def test_a_task_ends_on_a_plateau_and_not_on_a_slope():
    config = AdaptiveConfig(until='plateau', plateau_window=4, least_iterations=4)
    assert is_over(history(config, [9.0, 10.0, 10.0, 10.0, 10.1]), 5, config)
    assert not is_over(history(config, [1.0, 2.0, 3.0, 4.0]), 4, config)
    assert not is_over(history(config, [10.0, 10.0, 10.0]), 3, config)
    assert not is_over(history(config, [9.0] * 5), 5, replace(config, until='iterations'))


def test_success_ends_a_task_only_if_it_lasts():
    config = AdaptiveConfig(until='success', plateau_window=4, least_iterations=4)
    assert is_over(history(config, [5.0] * 4, success=1.0), 4, config)
    assert not is_over(history(config, [5.0] * 4, success=0.5), 4, config)


def test_a_task_is_stuck_without_success_and_progress():
    config = AdaptiveConfig(plateau_window=2)
    earned = {'a': np.array([900.0, 1100.0]), 'b': np.array([500.0])}
    assert is_stuck(history(config, [-45.0, 500.0, -50.0, -40.0]), 4, earned, 0.01)
    assert is_stuck(history(config, [-45.0]), 1, earned, 0.01)
    assert not is_stuck(history(config, [-45.0, -20.0, -30.0]), 3, earned, 0.01)
    assert not is_stuck(history(config, [-45.0, -45.0], success=0.1), 2, earned, 0.01)
    assert not is_stuck(history(config, [-45.0, -60.0]), 2, {}, 0.01)
    usual = {'a': np.array([2600.0]), 'b': np.array([2400.0])}
    assert not is_stuck(history(config, [2200.0, 2100.0, 2100.0]), 3, usual, 0.01)  # a good start
    assert is_stuck(history(config, [-600.0, -590.0, -590.0]), 3, usual, 0.01)
    negative = {'a': np.array([-5.0])}
    assert not is_stuck(history(config, [-6.0, -6.0, -6.0]), 3, negative, 0.01)
    assert is_stuck(history(config, [-50.0, -50.0, -50.0]), 3, negative, 0.01)


@SPECS
def test_a_task_that_came_nowhere_starts_anew_within_its_iterations(spec):
    learner = make(spec, max_columns=1, std_start='one', restart_after=0.3, restart_share=1.0)
    learn(learner, 'a')
    learner._memory.earned['a'] = np.array([1e9])
    learner.start_task('b', seed=1)
    seen, thetas = [], []
    while learner.iteration < learner.plan(10):
        if learner._run.iteration == 0:
            thetas.append(learner.knowledge().compose(learner.factors()).theta)
        other = copy_of(learner)
        assert_same_state(learner, other)
        learner = other
        batch = toy_batch(learner)
        batch = replace(batch, success=np.zeros_like(batch.success))
        seen.append(learner.improve(batch).measures.get('restarted'))
        learner.fit_values()
    assert learner.iteration == 10
    assert seen == [None] * 3 + [3.0] + [None] * 2 + [6.0] + [None] * 3
    assert len({theta.tobytes() for theta in thetas}) == 3
    learner.finish_task(toy_batch(learner, seed=1))
    assert_same_state(learner, copy_of(learner))
    revisit = copy_of(learner)
    revisit.start_task('b', seed=1)
    while revisit.iteration < revisit.plan(10):
        iterate(revisit, 1)
    assert revisit._draws == {}


def test_an_odd_window_is_refused():
    with pytest.raises(InvalidConfig, match='plateau_window must be even'):
        AdaptiveConfig(plateau_window=5)


# -- guard and inheritance ---------------------------------------------------------------------


def test_the_task_its_local_model_says_loses_most_is_at_risk_first(rng):
    terms = {
        name: TaskTerm(
            np.ones(1), TaskModel(np.zeros(4), np.zeros(4), DenseForm(-weight * np.eye(4)))
        )
        for name, weight in (('flat', 0.1), ('steep', 10.0), ('mild', 1.0))
    }
    before, after = np.zeros((4, 1)), rng.standard_normal((4, 1))
    assert at_risk(terms, before, after) == ['steep', 'mild', 'flat']


def test_an_update_shortened_to_nothing_or_not_at_all_is_exact(rng):
    before, after = rng.standard_normal((2, 5, 3))
    assert shortened(before, after, 0.0) is before
    assert shortened(before, after, 1.0) is after
    np.testing.assert_allclose(shortened(before, after, 0.5), (before + after) / 2.0)


def test_a_loss_counts_beyond_tolerance_and_noise():
    old = np.array([100.0, 110.0, 90.0])
    assert loses(old - 10.0, old, 0.05)
    assert not loses(old - 4.0, old, 0.05)
    assert not loses(old - np.array([40.0, -20.0, 10.0]), old, 0.05)
    assert gains(old + 10.0, old, 0.05)
    assert not gains(old + 4.0, old, 0.05)


def test_the_noise_of_a_difference_is_that_of_the_pairs_both_sides_have():
    new, old = np.array([3.0, 5.0, 7.0, 100.0]), np.ones(3)
    mean, noise = difference(new, old)
    quantile = 2.9199855803537247  # one-sided 95 % of Student's t with 2 degrees of freedom
    assert (mean, noise) == pytest.approx((4.0, quantile * 2.0 / np.sqrt(3.0)))
    assert difference(old, new) == pytest.approx((-mean, noise))
    assert difference(new[:1], old) == (2.0, 0.0)


@pytest.mark.parametrize(('left', 'asks'), [(6, True), (5, False)])
def test_the_guard_begins_a_task_only_with_trajectories_for_both_sides(left, asks):
    memory, probe = Memory(best={'a': np.zeros(3)}), object()
    means = Means(lambda *_: probe, lambda: left, lambda basis: None)
    update = np.zeros((4, 1)), np.ones((4, 1))
    series = guard(['unmeasured', 'a'], update, memory, means, AdaptiveConfig(), {})
    assert next(series, None) is (probe if asks else None)


def on(theta, earns):
    """Return what probes earn more with this theta, by purpose."""
    return lambda probe: earns if np.array_equal(probe.factors.residual, theta) else 0.0


def updated(spec, **settings):
    """Return a learner whose update of L has to be measured, and theta of 'a' before it."""
    learner = make(spec, **MEASURED | {'inherit_margin': 0.0} | settings)
    learn(learner, 'a')
    measure(learner, lambda probe: 100.0)
    learner.start_task('b', seed=1)
    iterate(learner)
    learner.finish_task(toy_batch(learner, seed=1))
    basis = learner._memory.pending.basis
    return learner, compose(basis, learner.knowledge().tasks['a'])


@SPECS
def test_a_task_that_an_update_costs_too_much_keeps_its_theta(spec):
    learner, before = updated(spec)
    after, alpha = learner._basis().copy(), learner._tuned('a').residual
    series = measure(copy_of(learner), on(before, 100.0))
    assert measure(learner, on(before, 100.0)) == series
    found = [entry[2] for entry in series if entry[:2] == ('guard', 'a')]
    assert found == [{}, {'kept': 1.0}]
    np.testing.assert_array_equal(learner._basis(), after)  # the update stands for the others
    np.testing.assert_allclose(learner.knowledge().policy('a').theta, before, atol=1e-12)
    np.testing.assert_allclose(learner._tuned('a').residual, alpha, atol=1e-12)
    a, term = learner.knowledge().tasks['a'], learner._knowledge_base.terms['a']
    np.testing.assert_allclose(term.model.alpha, alpha - a.residual, atol=1e-12)
    assert_same_state(learner, copy_of(learner))


@SPECS
def test_the_guard_takes_back_an_update_that_costs_a_task_too_much(spec):
    learner, before = updated(spec, residuals='columns')
    series = measure(copy_of(learner), on(before, 100.0))
    assert measure(learner, on(before, 100.0)) == series
    found = [entry[2] for entry in series if entry[:2] == ('guard', 'a')]
    assert found == [{}, {'shortened': 0.5}, {'shortened': 0.25}, {'shortened': 0.0}]
    np.testing.assert_allclose(learner.knowledge().policy('a').theta, before, atol=1e-12)
    assert_same_state(learner, copy_of(learner))


def test_the_guard_does_not_blame_an_update_for_what_was_lost_before():
    learner, plain = make(**MEASURED | {'inherit_margin': 0.0}), make()
    learn(learner, 'a')
    measure(learner, lambda probe: 100.0)
    learn(learner, 'b')
    learn(plain, 'a', 'b')
    series = [entry for entry in measure(learner) if entry[:2] == ('guard', 'a')]
    assert series == [('guard', 'a', {})] * 2  # with the update and without it: lost in both
    np.testing.assert_array_equal(learner._basis(), plain._basis())


def test_a_task_is_held_to_the_most_it_earned_since_it_was_tuned():
    def batch(*returns):
        n = len(returns)
        rewards = np.array(returns, float)
        return types.SimpleNamespace(
            returns=rewards,
            lengths=np.ones(n, int),
            observations=np.zeros((n, 1)),
            rewards=rewards,
            starts=np.arange(n),
        )

    memory = Memory()
    memory.tuned('a', batch(10.0, 12.0))
    memory.ran('a', batch(15.0, 15.0))
    np.testing.assert_array_equal(memory.best['a'], [15.0])
    memory.ran('a', batch(9.0, 10.0))
    np.testing.assert_array_equal(memory.best['a'], [15.0])
    np.testing.assert_array_equal(memory.present['a'], [9.0, 10.0])


def test_the_guard_leaves_an_update_that_costs_nothing():
    guarded, plain = make(**MEASURED | {'inherit_margin': 0.0}), make()
    for learner in (guarded, plain):
        for task in 'abc':
            learn(learner, task)
            series = measure(learner, lambda probe: 100.0 if probe.purpose == 'guard' else 0.0)
            assert all(not found for _, _, found in series)
    np.testing.assert_array_equal(guarded._basis(), plain._basis())


def test_an_old_task_adopts_a_later_policy_that_is_better():
    learner = make(**MEASURED | {'guard_tolerance': 0.0})
    learn(learner, 'a')
    measure(learner, lambda probe: -50.0)
    learn(learner, 'b')
    theta = learner.knowledge().policy('b').theta
    series = measure(learner, on(theta, 50.0))
    assert [entry[0] for entry in series] == ['reference', 'inherit', 'inherit', 'adopt', 'adopt']
    assert series[-1][2] == {'adopted': 1.0}
    a, b = (learner.knowledge().policy(task) for task in 'ab')
    np.testing.assert_array_equal(a.theta, b.theta)
    np.testing.assert_array_equal(a.log_std, b.log_std)
    term = learner._knowledge_base.terms['a']
    tuned = compose(learner._basis(), learner.knowledge().tasks['b'])
    np.testing.assert_allclose(term.model.alpha, tuned, atol=1e-12)


def test_an_old_task_keeps_its_policy_if_the_better_one_fails_with_exploration():
    learner = make(**MEASURED | {'guard_tolerance': 0.0})
    learn(learner, 'a')
    measure(learner, lambda probe: -50.0)
    learn(learner, 'b')
    before, theta = (learner.knowledge().policy(task).theta for task in 'ab')
    series = measure(learner, lambda p: on(theta, -50.0 if p.purpose == 'adopt' else 50.0)(p))
    assert [entry[0] for entry in series] == ['reference', 'inherit', 'inherit', 'adopt', 'adopt']
    assert series[-1][2] == {}
    np.testing.assert_array_equal(learner.knowledge().policy('a').theta, before)


def test_an_old_task_keeps_its_policy_if_that_explores_better_now_than_when_it_was_tuned():
    learner = make(**MEASURED | {'guard_tolerance': 0.0})
    learn(learner, 'a')
    measure(learner, lambda probe: -50.0)
    learn(learner, 'b')
    own, other = (learner.knowledge().policy(task).theta for task in 'ab')

    def earns(probe):
        mine = on(own, 60.0)(probe) if probe.explore else 0.0
        return mine + on(other, 50.0)(probe)

    series = measure(learner, earns)
    assert [entry[0] for entry in series] == ['reference', 'inherit', 'inherit', 'adopt', 'adopt']
    np.testing.assert_array_equal(learner.knowledge().policy('a').theta, own)


def test_an_old_task_keeps_a_policy_that_has_become_better_since_it_was_tuned():
    learner = make(**MEASURED | {'guard_tolerance': 0.0})
    learn(learner, 'a')
    measure(learner, lambda probe: -50.0)
    learn(learner, 'b')
    before = learner.knowledge().policy('a').theta
    series = measure(learner, on(before, 50.0))
    assert [entry[0] for entry in series] == ['reference', 'inherit', 'inherit']
    np.testing.assert_array_equal(learner.knowledge().policy('a').theta, before)


def test_an_old_task_keeps_a_policy_that_is_as_good():
    learner = make(**MEASURED | {'guard_tolerance': 0.0})
    learn(learner, 'a')
    measure(learner)
    before = learner.knowledge().policy('a').theta
    learn(learner, 'b')
    after = learner.knowledge().policy('a').theta
    measure(learner, lambda probe: -50.0 if probe.purpose == 'inherit' else 0.0)
    np.testing.assert_array_equal(learner.knowledge().policy('a').theta, after)
    assert before.shape == after.shape


@pytest.mark.parametrize('earns', [0.0, -50.0, 50.0])
def test_guard_and_inheritance_never_pass_their_shares(earns):
    """Not even when updates are shortened and policies adopted all the time."""
    learner = make(**MEASURED | {'guard_share': 0.6, 'inherit_share': 0.4})
    spent = {'guard': 0, 'reference': 0, 'inherit': 0, 'adopt': 0}
    for i, task in enumerate('abcdefgh'):
        learn(learner, task)
        account = learner._account
        assert account.learning == (i + 1) * 2 * 8
        while (probe := learner.wants()) is not None:
            spent[probe.purpose] += probe.n_trajectories
            better = earns if probe.purpose == 'guard' else float(i)
            learner.probed(answer(learner, probe, better))
            if probe.purpose == 'guard':
                assert learner._account.guard <= 0.6 * account.learning
            assert learner._account.inheritance <= 0.4 * account.learning
    account = learner._account
    assert account.guard == spent['guard'] + spent['reference']
    assert account.inheritance == spent['inherit'] + spent['adopt']
    assert spent['guard'] > 0
    assert copy_of(learner)._account == account


def test_a_loaded_learner_asks_for_the_whole_series_again():
    learner = make(**MEASURED)
    for task in 'ab':
        learn(learner, task)
        measure(learner)
    learn(learner, 'c')
    other = copy_of(learner)
    assert_same_state(learner, other)
    learner.probed(answer(learner, learner.wants()))
    assert measure(other)[1:] == measure(learner)
    assert_same_state(learner, other)


def test_trajectories_nobody_asked_for_are_refused():
    learner = make(**MEASURED)
    learn(learner, 'a')
    probe = learner.wants()
    with pytest.raises(LearnerMisuse, match="asked for 'a'"):
        learner.probed(replace(answer(learner, probe), task='z'))
    measure(learner)
    assert learner.wants() is None
    with pytest.raises(LearnerMisuse, match='not requested'):
        learner.probed(answer(learner, probe))


def test_a_task_that_starts_ends_the_series_before_it():
    learner = make(**MEASURED)
    learn(learner, 'a')
    assert learner.wants() is not None
    learner.start_task('b', seed=1)
    assert learner.wants().purpose == 'start'
    iterate(learner)
    assert learner.wants() is None


# -- tasks without a name ----------------------------------------------------------------------


def offer(learner, task):
    """Offer the environment of a task without its name; return the verdict."""
    inquiry = learner.recognise('?')
    while (probe := inquiry.probe) is not None:
        inquiry.answer(answer(learner, replace(probe, task=task, n_trajectories=3)))
    return inquiry.verdict


@SPECS
def test_a_task_is_recognised_by_how_it_answers_a_policy(spec):
    learner = make(spec, signatures=True)
    for task in 'abc':
        learn(learner, task)
        measure(learner)
    learner = copy_of(learner)
    for task, steps in zip('abc', (30, 60, 90), strict=True):
        found = offer(learner, task)
        assert (found.kind, found.task, found.steps) == ('known', task, steps)
    assert offer(learner, 'z').kind == 'new'
    assert make(spec).recognise('?').verdict.kind == 'new'


def test_a_signature_is_the_first_trajectory_of_a_batch(rng):
    flags, n = np.zeros(2, dtype=bool), 12
    rows = rng.standard_normal((n, 3)), rng.standard_normal((n, 2)), rng.standard_normal(n)
    batch = Batch('a', *rows, np.array([5, 7]), flags, ~flags, flags, flags, np.zeros((2, 3)))
    own = signature(batch)
    np.testing.assert_array_equal(own.observations, batch.observations[:5])
    np.testing.assert_array_equal(own.rewards, batch.rewards[:5])


def test_the_distance_is_in_standard_deviations_of_the_signature(rng):
    own = Signature(rng.standard_normal((50, 3)), rng.standard_normal(50))
    assert distance(own, own) == 0.0
    for shift, kind in ((3.0, 'new'), (0.2, 'near'), (0.02, 'known')):
        other = Signature(own.observations, own.rewards + shift * own.rewards.std())
        assert distance(own, other) == pytest.approx(shift)
        assert verdict({'a': distance(own, other)}, 50).kind == kind


def test_a_verdict_tells_the_nearest_tasks_and_their_distances():
    assert str(verdict({}, 0)) == 'new: no task is known yet'
    told = str(verdict({'a': 0.5, 'b': 0.02, 'c': 3.0, 'd': 7.0}, 90))
    assert told.startswith('known: distance to b 0.02, a 0.5, c 3 (')
    assert told.endswith('; 90 steps)')


# -- revisits ----------------------------------------------------------------------------------


@SPECS
def test_a_revisit_goes_on_with_its_residual_and_a_cancel_restores_it(spec):
    learner = make(spec)
    learn(learner, 'a', 'b', 'c')
    before = learner.knowledge()
    learner.start_task('c', seed=5)
    np.testing.assert_array_equal(learner.factors().residual, before.tasks['c'].residual)
    iterate(learner)
    learner.cancel_task()
    for task in 'abc':
        np.testing.assert_array_equal(
            learner.knowledge().policy(task).theta, before.policy(task).theta
        )
    learner.start_task('c', seed=5)
    iterate(learner)
    learner.finish_task(toy_batch(learner, seed=1))
    assert_same_state(learner, copy_of(learner))


@SPECS
def test_forgetting_leaves_nothing_of_a_task(spec):
    learner = make(spec, **MEASURED)
    for task in 'ab':
        learn(learner, task)
        measure(learner)
    learner.forget_task('a')
    assert 'a' not in learner.knowledge().tasks
    assert 'a' not in learner._memory.best
    assert_same_state(learner, copy_of(learner))


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'update_every': 1}, 'update_every to be 0'),
        ({'keep_local_models': False, 'inherit_margin': 0.0}, 'guard_tolerance'),
        ({'guard_trajectories': 1}, 'guard_trajectories must be at least 2'),
    ],
)
def test_settings_that_would_spoil_the_basis_are_refused(settings, message):
    with pytest.raises(InvalidConfig, match=message):
        AdaptiveConfig(**settings)


def test_an_environment_that_ends_early_is_not_a_known_task():
    rng = np.random.default_rng(0)
    long = Signature(rng.standard_normal((20, 3)), rng.standard_normal(20))
    short = Signature(long.observations[:2], long.rewards[:2])
    assert distance(long, long) == 0.0
    assert distance(long, short) == distance(short, long) == float('inf')


# -- what a lifetime owes ------------------------------------------------------------------------


def test_what_draws_and_probes_take_is_paid_back_by_later_tasks():
    account = Account(batch=8).settled(beyond=30)
    assert (account.debt, account.allowed(50, 0.5)) == (240, 25)
    assert account.allowed(50, 0.9) == 20
    assert account.allowed(50, 0.0) == 50
    for _ in range(2):
        account = account.settled(account.allowed(50, 0.4) - 50)
    assert (account.debt, account.allowed(50, 0.4)) == (0, 50)
    account = account.probed(4, 'guard').probed(5, None)
    assert (account.guard, account.inheritance, account.debt) == (4, 0, 9)
    assert account.allowed(50, 0.4) == 48  # 9 trajectories are two iterations
    assert account.settled(0).allowed(50, 0.4) == 47  # the next task may probe as much
    assert account.settled(-20).allowed(50, 0.4) == 50


def test_a_lifetime_with_draws_takes_the_iterations_requested():
    learner = make(draws=4, draw_iterations=3, payback=0.5)
    taken = []
    for task in 'abcdef':
        learner.start_task(task, seed=1)
        while learner.iteration < learner.plan(8):
            iterate(learner, 1)
            learner = copy_of(learner)
        taken.append(learner.iteration)
        learner.finish_task(toy_batch(learner, seed=1))
        measure(learner)
    assert taken[0] == 18
    assert min(taken) == 4
    beside = learner._account.probes + learner._account.probes_before
    assert sum(taken) * 8 + beside <= 6 * 8 * 8 + 8


def test_a_state_from_before_debts_can_be_read():
    learner = make()
    learn(learner, 'a')
    for task in 'bc':
        learner.start_task(task, seed=1)
        iterate(learner)
        if task == 'b':
            learner.park_task()
    state = learner.state()
    old = {n: a for n, a in state.items() if n != 'run/debt' and not n.endswith('/asked')}
    # the next iteration file is new, the shared knowledge it goes on from is still the old one
    mixed = old | {n: a for n, a in state.items() if n.startswith('run/')}
    for read in (old, mixed):
        with pytest.raises(StateMismatch):
            copy_of(learner).load_state(read)
        other = copy_of(learner)
        other.load_state(present_schema(read, {}))
        assert other.plan(5) == 5
        other.park_task()
        other.start_task('b', seed=1)
        assert other.plan(5) == 5


def fail(*args, **kwargs):
    raise NonFinite('as asked')


@pytest.mark.parametrize('broken', ['task', 'step'])
def test_a_failing_step_keeps_the_values_a_task_started_with(broken, monkeypatch):
    learner = make(value_start='explaining')
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    before, batch = learner._run.values.parameters.copy(), toy_batch(learner)
    exact = learner._finished['a'].values
    features = value_features(batch.observations, batch.step_in_trajectory)
    goal = discounted_returns(batch, learner.config.gamma)
    for _ in range(100):
        exact.fit(features, goal, np.random.default_rng(1), epochs=5, learning_rate=1e-2)
    bad = replace(batch, task='x') if broken == 'task' else batch
    monkeypatch.setattr(learner._base_learner, 'step', fail)
    with pytest.raises((LearnerMisuse, NonFinite)):
        learner.improve(bad)
    monkeypatch.undo()
    np.testing.assert_array_equal(learner._run.values.parameters, before)
    learner.improve(batch)
    np.testing.assert_array_equal(learner._run.values.parameters, exact.parameters)


def test_a_fold_that_fails_owes_nothing(monkeypatch):
    learner = make(payback=0.5)
    learner.start_task('a', seed=1)
    iterate(learner)
    learner.plan(10)
    batch = toy_batch(learner, seed=1)
    monkeypatch.setattr(learner, '_local_model', fail)
    with pytest.raises(NonFinite):
        learner.finish_task(batch)
    monkeypatch.undo()
    assert learner._account.debt == 0
    learner.finish_task(batch)
    assert learner._account.debt == -8 * batch.n_trajectories


# -- values and policies that are carried over ---------------------------------------------------


@pytest.mark.parametrize('value_start', ['fresh', 'explaining'])
def test_a_new_task_takes_the_values_that_explain_its_first_batch(value_start):
    learner = make(value_start=value_start)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    own, batch = learner._run.values.copy(), toy_batch(learner)
    features = value_features(batch.observations, batch.step_in_trajectory)
    goal = discounted_returns(batch, learner.config.gamma)
    # the values of task a know exactly what this batch returns
    exact = learner._finished['a'].values
    for _ in range(200):
        exact.fit(features, goal, np.random.default_rng(1), epochs=5, learning_rate=1e-2)
    learner.improve(batch)
    wanted = exact if value_start == 'explaining' else own
    np.testing.assert_array_equal(learner._run.values.parameters, wanted.parameters)
    learner.fit_values()
    assert not np.array_equal(learner._run.values.parameters, wanted.parameters)
    kept = learner._run.values.parameters.copy()
    iterate(learner, 1)  # only the first batch decides
    assert learner._run.values.n_updates > 0
    assert not np.array_equal(kept, exact.parameters)


@pytest.mark.parametrize('taken', ['none', 'latest_policy', 'best_policy'])
def test_a_new_task_may_start_from_the_policy_of_another(taken):
    learner = make(max_columns=1, std_start='one', policy_start='measured', **MEASURED)
    learn(learner, 'a', 'b', 'c')
    measure(learner)
    learner._memory.earned |= {'a': np.full(8, 5.0), 'b': np.full(8, 9.0), 'c': np.full(8, 1.0)}
    learner.start_task('d', seed=1)
    learner.park_task()
    learner = copy_of(learner)
    learner.start_task('d', seed=9)
    plain = learner.factors()
    donors = {'latest_policy': 'c', 'best_policy': 'b'}
    theta = {name: learner.knowledge().policy(task).theta for name, task in donors.items()}

    def gain(probe):
        here = learner.knowledge().compose(probe.factors).theta
        return 1e4 * (taken in theta and np.array_equal(here, theta[taken]))

    series = measure(learner, gain)
    assert series[-1][2] == {name: float(name == taken) for name in donors}
    now = learner.factors()
    if taken == 'none':
        np.testing.assert_array_equal(now.coefficients, plain.coefficients)
    else:
        done = learner._finished[donors[taken]]
        np.testing.assert_array_equal(now.residual, done.factors.residual)
        np.testing.assert_array_equal(learner._run.values.parameters, done.values.parameters)
        assert learner._run.values is not done.values
    iterate(learner)
    assert_same_state(learner, copy_of(learner))


@pytest.mark.parametrize('method', ['stl', 'lpg-ftw', 'lpg-ftw-adaptive', 'ewc', 'er'])
def test_every_method_starts_with_the_sigma_asked_for(method):
    learner = make_learner(method, LINEAR, {'initial_log_std': -1.2, 'value_epochs': 1}, seed=3)
    learner.start_task('a', seed=1)
    np.testing.assert_array_equal(learner.factors().log_std, [-1.2, -1.2])


def test_the_latest_policy_is_that_of_the_task_learned_last():
    learner = make(max_columns=1, policy_start='measured')
    learn(learner, 'a', 'b', 'a')
    learner.start_task('c', seed=1)
    assert learner._shown_policies()['a'] in ('latest_policy', 'best_policy')
    assert list(learner._memory.earned) == ['b', 'a']
    assert list(copy_of(learner)._memory.earned) == ['b', 'a']


def test_a_task_without_a_residual_does_not_take_the_policy_of_one_that_has_it():
    donor = make(max_columns=1, policy_start='measured')
    learn(donor, 'a', 'b')
    learner = make(max_columns=1, policy_start='measured', residuals='columns')
    learner.adopt(donor.state(['base', 'models']))
    learner.start_task('c', seed=1)
    assert set(learner._shown_policies()) == {'a'}


# -- what stops, fails or is told twice ----------------------------------------------------------


@pytest.mark.parametrize('method', ['lpg-ftw', 'lpg-ftw-adaptive', 'stl', 'ewc', 'er'])
def test_adopted_knowledge_has_the_task_whose_revisit_was_parked(method):
    def fresh():
        return make_learner(method, LINEAR, {'value_epochs': 1}, seed=3)

    donor, learner = fresh(), fresh()
    learn(donor, 'a', 'b')
    thetas = {task: donor.knowledge().policy(task).theta for task in 'ab'}
    donor.start_task('a', seed=4)
    iterate(donor, 1)
    donor.park_task()
    parts = ['base', 'models', *(['replay'] if method == 'er' else [])]
    learner.adopt(donor.state(parts))
    assert set(learner.knowledge().tasks) == {'a', 'b'}
    assert learner.phase('a') == 'finished'
    for task, theta in thetas.items():
        np.testing.assert_allclose(learner.knowledge().policy(task).theta, theta, atol=1e-12)


def test_what_was_measured_of_a_policy_is_forgotten_with_it():
    """A revisit whose measurement is ended leaves nothing of the policy before it."""
    learner = make(**MEASURED)
    learn(learner, 'a')
    measure(learner)
    learn(learner, 'b')
    measure(learner)
    learn(learner, 'a')
    learner.start_task('c', seed=1)
    memory = learner._memory
    assert not any('a' in book for book in (memory.best, memory.present, memory.signatures))
    assert list(memory.earned) == ['b', 'a']


def test_equal_returns_from_different_starts_are_not_one():
    """An episode cap makes returns equal; that says nothing about the next run."""

    def of(*starts):
        n = len(starts)
        return types.SimpleNamespace(
            returns=np.full(n, 100.0),
            observations=np.array(starts)[:, None],
            starts=np.arange(n),
        )

    assert len(distinct(of(1.0, 1.0, 1.0))) == 1
    assert len(distinct(of(1.0, 1.0, 2.0))) == 3


@pytest.mark.parametrize(('certainty', 'kept'), [(0.95, 0), (0.5, 7)])
def test_losses_too_small_to_prove_add_up_unless_in_doubt_a_task_is_kept(certainty, kept):
    """Each update costs two on average, two more or less on each reset."""
    level, asked, times = np.array([100.0, 110.0, 90.0]), [], []
    config = AdaptiveConfig(guard_certainty=certainty, guard_tolerance=0.01)
    memory = Memory(best={'a': level}, present={'a': level})

    def of(returns):
        return types.SimpleNamespace(
            returns=returns, observations=np.arange(3.0)[:, None], starts=np.arange(3)
        )

    for i in range(8):
        before, level = level, level - 2.0 + np.array([2.0, -2.0, 0.0]) * (-1) ** i
        means = Means(
            lambda task, basis, n, purpose: asked.append(basis[0, 0]),
            lambda: 1e9,
            lambda basis: None,
            lambda task, basis: times.append(basis),
        )
        series = guard(['a'], (np.zeros((1, 1)), np.ones((1, 1))), memory, means, config, {})
        next(series)
        with contextlib.suppress(StopIteration):
            while True:
                series.send(of(level if asked[-1] else before))
        level = before if len(times) > i else level
    assert len(times) == kept


def test_l_that_moves_during_a_task_cannot_be_guarded():
    with pytest.raises(InvalidConfig, match='guard_tolerance'):
        AdaptiveConfig(residuals='columns', update_every=5)
    AdaptiveConfig(residuals='columns', update_every=5, guard_tolerance=0.0)


def test_a_finished_task_does_not_run_again_when_a_series_about_it_was_half_answered():
    learner = make(max_columns=1, std_start='one', inherit_margin=0.05)
    learn(learner, 'a')
    measure(learner)
    learner.start_task('b', seed=1)
    iterate(learner, 3)
    learner.plan(3)
    learner.probed(answer(learner, learner.wants()))
    learner.finish_task(toy_batch(learner, seed=1))
    measure(learner)
    assert (learner.running, learner.phase('b')) == (None, 'finished')


def test_a_start_cannot_be_carried_when_nothing_is_finished_any_more():
    learner = make(**MEASURED)
    learn(learner, 'a')
    measure(learner)
    learner.start_task('b', seed=1)
    learner.park_task()
    learner.forget_task('a')
    learner.start_task('b', seed=1)
    measure(learner)
    iterate(learner)
    assert np.isfinite(learner.factors().log_std).all()


def test_a_fold_that_fails_after_the_columns_were_regrouped_changes_nothing(monkeypatch):
    learner = make(max_columns=1, columns='paying', column_share=0.0, std_start='one')
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    iterate(learner)
    before = copy_of(learner)

    def fail(*_, **options):
        raise NonFinite('the solution', 1)

    monkeypatch.setattr(type(learner._knowledge_base), '_solve', fail)
    with pytest.raises(NonFinite):
        learner.finish_task(toy_batch(learner, seed=1))
    assert_same_state(learner, before)


def test_all_draws_are_compared_however_few_iterations_are_left():
    """In mid-round the plan leaves room until one draw is left: the best."""
    learner = make(draws=3, draw_iterations=4)
    learner.start_task('a', seed=1)
    levels = {}

    def one(asked):
        batch, seed = toy_batch(learner), learner._run.seed
        level = levels.setdefault(seed, 10.0 - len(levels))
        learner.improve(replace(batch, rewards=np.full_like(batch.rewards, level)))
        planned = learner.plan(asked)
        learner.fit_values()
        return planned

    for _ in range(5):
        one(20)
    while one(5) > learner.iteration:
        assert learner.iteration < 100
    assert not learner._draws['a'].others
    assert levels[learner._run.seed] == 10.0
