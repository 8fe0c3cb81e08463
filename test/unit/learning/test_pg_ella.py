"""PG-ELLA: its lasso, its basis and its columns."""

import numpy as np
import pytest

from lpgftw_ros.errors import InvalidConfig, LearnerMisuse, UnknownName
from lpgftw_ros.learning.methods.pg_ella import lasso, PgElla, PgEllaConfig
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec


@pytest.fixture
def source(spec, rng):
    return {
        task: PolicySnapshot(
            spec,
            rng.standard_normal(spec.n_parameters),
            rng.standard_normal(spec.head_size),
            np.full(2, -0.3),
        )
        for task in 'abcd'
    }


@pytest.fixture
def make(spec, source, make_batch):
    def build(*tasks, **settings):
        learner = PgElla(spec, PgEllaConfig(**{'max_columns': 2} | settings), 5, source)
        for task in tasks:
            learner.start_task(task, seed=sum(task.encode()))
            learner.finish_task(make_batch(learner, n=30))
        return learner

    return build


def check_optimal(G, c, weight, s):
    """Assert the optimality conditions of the lasso."""
    pull = c - G @ s
    on = s != 0.0
    np.testing.assert_allclose(pull[on], weight * np.sign(s[on]), rtol=1e-7, atol=1e-9)
    assert np.all(np.abs(pull[~on]) <= weight * (1.0 + 1e-9) + 1e-12)


@pytest.mark.parametrize('weight', [0.0, 0.1, 2.0, 1e3])
def test_lasso_meets_its_optimality_conditions(rng, weight):
    X, y = rng.standard_normal((20, 5)), 3.0 * rng.standard_normal(20)
    G, c = X.T @ X, X.T @ y
    check_optimal(G, c, weight, lasso(G, c, weight))


def test_lasso_without_weight_is_least_squares(rng):
    X, y = rng.standard_normal((20, 5)), rng.standard_normal(20)
    s = lasso(X.T @ X, X.T @ y, 0.0)
    np.testing.assert_allclose(s, np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-8)


def test_lasso_leaves_an_empty_column_alone():
    s = lasso(np.diag([1.0, 0.0]), np.array([2.0, 0.0]), 0.5)
    np.testing.assert_array_equal(s, [1.5, 0.0])


def test_s_of_a_task_beyond_the_columns_solves_its_lasso(make, make_batch, source):
    learner = make('a', 'b', sparsity=1e-3)
    L = learner.knowledge().basis.copy()
    learner.start_task('c', seed=1)
    learner.finish_task(make_batch(learner, n=30))
    model, s = learner._models['c'], learner.knowledge().tasks['c'].coefficients
    D, d = -model.H, len(model.alpha)
    np.testing.assert_array_equal(model.alpha, source['c'].theta)
    # (1 / 2d) |theta - L s|^2_D + mu |s|_1
    check_optimal(L.T @ D @ L / d, L.T @ D @ model.alpha / d, 1e-3, s)


def test_first_tasks_take_a_column_each(make):
    knowledge = make('a', 'b').knowledge()
    np.testing.assert_array_equal(knowledge.tasks['a'].coefficients, [1.0])
    np.testing.assert_array_equal(knowledge.tasks['b'].coefficients, [0.0, 1.0])


def published_basis(learner):
    """Solve the published system for all tasks of a learner."""
    d, k, T = learner.spec.n_parameters, 2, len(learner.knowledge().tasks)
    A, b = np.zeros((d * k, d * k)), np.zeros(d * k)
    for task, factors in learner.knowledge().tasks.items():
        s = np.zeros(k)
        s[: len(factors.coefficients)] = factors.coefficients
        D = -learner._models[task].H
        A += np.kron(np.outer(s, s), D)
        b += np.kron(s, D @ learner._models[task].alpha)
    return np.linalg.solve(A / T + 1e-5 * np.eye(d * k), b / T).reshape((d, k), order='F')


def test_basis_solves_the_published_system(make):
    learner = make('a', 'b', 'c')
    L = published_basis(learner)
    np.testing.assert_allclose(learner.knowledge().basis, L, rtol=1e-6, atol=1e-9)


def test_a_task_folded_in_again_counts_with_its_new_terms_only(make, make_batch):
    learner = make('a', 'b', 'c')
    for task, n in (('c', 20), ('d', 30)):
        learner.start_task(task, seed=1)
        learner.finish_task(make_batch(learner, n=n))
        L = published_basis(learner)
        np.testing.assert_allclose(learner.knowledge().basis, L, rtol=1e-6, atol=1e-9)


def test_while_a_task_runs_it_acts_as_stl_left_it(make, source):
    learner = make('a')
    learner.start_task('b', seed=1)
    policy = learner.knowledge().compose(learner.factors())
    for part in ('theta', 'head', 'log_std'):
        np.testing.assert_array_equal(getattr(policy, part), getattr(source['b'], part))


def test_heads_and_sigma_stay_those_of_stl(make, source):
    factors = make('a', 'b', 'c').knowledge().tasks['c']
    np.testing.assert_array_equal(factors.head, source['c'].head)
    np.testing.assert_array_equal(factors.log_std, source['c'].log_std)


def test_it_does_not_train(make, make_batch):
    learner = make()
    learner.start_task('a', seed=1)
    with pytest.raises(LearnerMisuse, match='pg-ella does not train'):
        learner.improve(make_batch(learner))


def test_a_task_without_stl_policy_is_refused(make):
    with pytest.raises(UnknownName, match="no finished STL policy for task 'x'"):
        make().start_task('x', seed=1)


def test_stl_policies_of_another_shape_are_refused(source):
    with pytest.raises(InvalidConfig, match="the STL policy of 'a' has another shape"):
        PgElla(PolicySpec(4, 2), PgEllaConfig(), 5, source)


def test_folding_the_same_task_again_changes_nothing(make, make_batch):
    learner = make('a', 'b', 'c')
    before = learner.knowledge().basis.copy()
    learner.start_task('a', seed=sum(b'a'))
    learner.finish_task(make_batch(learner, n=30))
    np.testing.assert_allclose(learner.knowledge().basis, before, rtol=1e-8, atol=1e-12)


def test_forgetting_a_task_solves_without_it(make):
    learner = make('a', 'b', 'c')
    learner.forget_task('c')
    wanted = make('a', 'b').knowledge().basis
    np.testing.assert_allclose(learner.knowledge().basis, wanted, rtol=1e-8, atol=1e-12)


def test_a_column_of_a_forgotten_task_is_taken_by_the_next(make, make_batch):
    learner = make('a', 'b')
    learner.forget_task('a')
    learner.start_task('d', seed=1)
    learner.finish_task(make_batch(learner, n=30))
    np.testing.assert_array_equal(learner.knowledge().tasks['d'].coefficients, [1.0, 0.0])
    assert learner.knowledge().basis.shape[1] == 2


def test_forgetting_every_task_leaves_no_columns(make):
    learner = make('a')
    learner.forget_task('a')
    assert learner.knowledge().basis.shape[1] == 0
