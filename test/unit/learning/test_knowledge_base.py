"""L, S, A and b: what enters, what leaves, and what must not change by it."""

import numpy as np
import pytest

from lpgftw_ros.errors import LearnerMisuse, LpgftwError, NonFinite, UnknownName, WrongShape
from lpgftw_ros.learning.knowledge_base import BasisRules, grow, KnowledgeBase
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import compose, PolicySpec, TaskFactors
from lpgftw_ros.learning.solvers import make_solver, SOLVERS

SPEC = PolicySpec(obs_dim=3, act_dim=2)
D = SPEC.n_parameters
RNG = np.random.default_rng


def random_model(rng, curvature=1.0):
    B = rng.standard_normal((D, D))
    H = -curvature * (B @ B.T / D + 0.1 * np.eye(D))
    return LocalModel(rng.standard_normal(D), rng.standard_normal(D), H)


def base(k=3, solver='dense', **rules):
    return KnowledgeBase(SPEC, make_solver(solver), BasisRules(max_columns=k, **rules))


def theta(kb, task):
    empty = np.zeros(0)
    return compose(kb.basis, TaskFactors(kb.coefficients(task), np.zeros(D), empty, empty))


def filled(rng, n_tasks=6, k=3, **options):
    """Return a knowledge base that grew its columns and learned some more tasks."""
    kb = base(k, **options)
    for t in range(n_tasks):
        if kb.n_columns < k:
            kb.add(f't{t}', kb.first_coefficients(), random_model(rng), rng.standard_normal(D))
        else:
            kb.add(f't{t}', rng.standard_normal(k), random_model(rng))
    return kb


def contents(kb):
    """Return copies of L, A and b."""
    A = kb.solver.normal_matrix(D, kb.n_columns)
    return kb.basis.copy(), A, kb.solver.normal_rhs(D, kb.n_columns).copy()


def assert_untouched(kb, before):
    for now, then in zip(contents(kb), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.fixture
def rng():
    return RNG(11)


# -- columns -----------------------------------------------------------------------------------


def test_the_first_column_is_the_residual_itself(rng):
    column = rng.standard_normal(D)
    basis, s = grow(np.zeros((D, 0)), np.zeros(0), column)
    np.testing.assert_array_equal(basis[:, 0], column)
    np.testing.assert_array_equal(s, [1.0])


def test_a_new_column_is_as_long_as_the_others_are_on_average(rng):
    L, s, residual = rng.standard_normal((D, 2)), rng.standard_normal(2), rng.standard_normal(D)
    basis, _ = grow(L, s, residual)
    mean_norm = np.mean(np.linalg.norm(L, axis=0))
    assert np.linalg.norm(basis[:, 2]) == pytest.approx(mean_norm, rel=1e-12)


def test_a_new_column_stands_for_the_residual(rng):
    L, s, residual = rng.standard_normal((D, 2)), rng.standard_normal(2), rng.standard_normal(D)
    basis, grown = grow(L, s, residual)
    np.testing.assert_allclose(basis @ grown, L @ s + residual, rtol=1e-12)


def test_coefficients_shorter_than_the_basis_are_padded_before_the_new_one(rng):
    L, residual = rng.standard_normal((D, 2)), rng.standard_normal(D)
    basis, grown = grow(L, np.zeros(0), residual)
    np.testing.assert_allclose(basis @ grown, residual, rtol=1e-12)


def test_a_zero_residual_adds_no_column(rng):
    L, s = rng.standard_normal((D, 2)), rng.standard_normal(2)
    basis, grown = grow(L, s, np.zeros(D))
    assert basis.shape == (D, 2)
    np.testing.assert_array_equal(grown, s)


def test_a_column_beside_zero_columns_keeps_its_length(rng):
    residual = rng.standard_normal(D)
    basis, grown = grow(np.zeros((D, 1)), np.ones(1), residual)
    np.testing.assert_allclose(basis[:, 1], residual)
    assert grown[1] == 1.0


def test_old_parameters_keep_every_bit_when_a_column_is_added(rng):
    kb = base(k=4, update_from='after_columns')  # L is not solved for: only the column comes
    for t in range(3):
        kb.add(
            f't{t}', rng.standard_normal(kb.n_columns), random_model(rng), rng.standard_normal(D)
        )
    before = [theta(kb, f't{t}') for t in range(3)]
    kb.add('t3', rng.standard_normal(3), random_model(rng), rng.standard_normal(D))
    for t in range(3):
        np.testing.assert_array_equal(theta(kb, f't{t}'), before[t])


def test_a_new_task_starts_from_the_mean_of_all_coefficients(rng):
    kb = filled(rng, 3)
    padded = [np.append(kb.coefficients('t0'), [0.0, 0.0])]
    padded += [np.append(kb.coefficients('t1'), [0.0]), kb.coefficients('t2')]
    np.testing.assert_allclose(kb.first_coefficients(), np.mean(padded, axis=0))
    np.testing.assert_array_equal(base().first_coefficients(), np.zeros(0))


def test_a_new_task_may_start_from_the_latest_coefficients(rng):
    kb = filled(rng, 2)
    kb.add('alike', np.array([3.0]), random_model(rng))
    np.testing.assert_array_equal(kb.first_coefficients('latest'), [3.0, 0.0])
    np.testing.assert_array_equal(base().first_coefficients('latest'), np.zeros(0))
    several = filled(rng, n_tasks=6)
    latest = several.coefficients('t5')
    np.testing.assert_array_equal(several.first_coefficients('latest'), latest)


# -- the solve ---------------------------------------------------------------------------------


def test_exactly_fitting_tasks_take_the_newton_step(rng):
    kb = base(k=3, ridge=0.0)
    models = [random_model(rng) for _ in range(3)]
    for t, model in enumerate(models):
        kb.add(f't{t}', rng.standard_normal(kb.n_columns), model, rng.standard_normal(D))
        for i in range(t + 1 if t else 0):
            newton = models[i].alpha - 0.5 * np.linalg.solve(models[i].H, models[i].g)
            np.testing.assert_allclose(theta(kb, f't{i}'), newton, rtol=1e-6, atol=1e-8)


def test_the_basis_maximises_the_mean_of_the_local_models(rng):
    kb = filled(rng, 7)
    terms = list(kb.terms.values())

    def objective(L):
        values = [term.model.value(L @ term.padded(3)) for term in terms]
        return np.mean(values) - 0.5 * kb.rules.ridge * np.sum(L * L)

    best = objective(kb.basis)
    for _ in range(20):
        assert objective(kb.basis + 1e-3 * rng.standard_normal((D, 3))) < best


def test_normal_equations_are_the_sums_of_the_paper(rng):
    kb = filled(rng, 6)
    A, b = np.zeros((3 * D, 3 * D)), np.zeros(3 * D)
    for term in kb.terms.values():
        s = term.padded(3)
        A += 2.0 * np.kron(np.outer(s, s), term.matrix)
        b += np.kron(s, 2.0 * term.matrix @ term.model.alpha - term.model.g)
    _, kept_A, kept_b = contents(kb)
    np.testing.assert_allclose(kept_A, A, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kept_b, b, rtol=1e-12, atol=1e-12)


def test_the_first_task_leaves_its_column_as_it_was(rng):
    kb, column = base(), rng.standard_normal(D)
    kb.add('t0', np.zeros(0), random_model(rng), column)
    np.testing.assert_array_equal(kb.basis[:, 0], column)


def test_after_columns_solves_from_the_task_after_the_last_column(rng):
    kb, columns = base(k=2, update_from='after_columns'), []
    for t in range(2):
        columns.append(rng.standard_normal(D))
        kb.add(f't{t}', np.zeros(kb.n_columns), random_model(rng), columns[-1])
    np.testing.assert_array_equal(kb.basis[:, 0], columns[0])
    kb.add('t2', np.ones(2), random_model(rng))
    assert not np.array_equal(kb.basis[:, 0], columns[0])


# -- leaving and coming back -------------------------------------------------------------------


@pytest.mark.parametrize('solver', SOLVERS)
def test_removing_and_adding_the_same_model_changes_nothing(rng, solver):
    kb = filled(rng, 6, solver=solver)
    before, term = kb.basis.copy(), kb.terms['t3']
    kb.remove('t3')
    kb.add('t3', term.s, term.model)
    error = np.linalg.norm(kb.basis - before) / np.linalg.norm(before)
    assert error <= 1e-8


def test_a_replaced_model_leaves_nothing_behind(rng):
    kb, model = filled(rng, 6), random_model(rng)
    kb.add('t2', np.ones(3), random_model(rng))
    kb.add('t2', 2.0 * np.ones(3), model)
    fresh = KnowledgeBase(SPEC, make_solver('dense'), kb.rules)
    fresh.basis = kb.basis
    for task, term in kb.terms.items():
        fresh.add(task, term.s, term.model)
    for now, then in zip(contents(kb)[1:], contents(fresh)[1:], strict=True):
        np.testing.assert_array_equal(now, then)


def test_replacing_keeps_the_order_of_the_tasks(rng):
    kb = filled(rng, 4)
    kb.add('t1', np.ones(3), random_model(rng))
    assert kb.tasks == ('t0', 't1', 't2', 't3')


def test_trying_out_leaves_the_normal_equations_alone(rng):
    kb = filled(rng, 5)
    before = contents(kb)
    assert kb.try_out('new', np.ones(3), random_model(rng))
    assert not np.array_equal(kb.basis, before[0])
    for now, then in zip(contents(kb)[1:], before[1:], strict=True):
        np.testing.assert_array_equal(now, then)


def test_trying_out_counts_in_place_of_the_old_terms(rng):
    kb, other, model = filled(rng, 5), filled(RNG(11), 5), random_model(rng)
    kb.try_out('t2', np.ones(3), model)
    other.add('t2', np.ones(3), model)
    np.testing.assert_allclose(kb.basis, other.basis, rtol=1e-8)


def test_taking_back_restores_everything(rng):
    kb = filled(rng, 5)
    before = contents(kb)
    for _ in range(3):
        kb.try_out('t2', rng.standard_normal(3), random_model(rng))
    assert kb.take_back('t2')
    assert_untouched(kb, before)


def test_taking_back_after_another_update_changes_nothing(rng):
    kb = filled(rng, 5)
    kb.try_out('a', np.ones(3), random_model(rng))
    kb.add('b', np.ones(3), random_model(rng))
    before = contents(kb)
    assert not kb.take_back('a')
    assert_untouched(kb, before)


def test_the_first_task_is_not_tried_out(rng):
    kb = base()
    assert not kb.try_out('t0', np.zeros(0), random_model(rng))


def test_the_last_task_can_be_removed_and_its_columns_dropped(rng):
    kb = filled(rng, 1)
    with pytest.raises(LearnerMisuse, match='in use'):
        kb.clear_columns()
    kb.remove('t0')
    np.testing.assert_array_equal(kb.first_coefficients(), [1.0])
    kb.clear_columns()
    assert kb.n_columns == 0
    assert kb.tasks == ()


def test_the_column_of_a_task_that_is_alone_is_replaced(rng):
    kb, column = filled(rng, 1), rng.standard_normal(D)
    s = kb.add('t0', np.zeros(0), random_model(rng), column)
    np.testing.assert_array_equal(kb.basis, column[:, None])
    np.testing.assert_array_equal(s, [1.0])


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize('solver', ['dense', 'diagonal'])
def test_without_local_models_nothing_can_be_replaced_or_removed(rng, solver):
    kb = filled(rng, 4, solver=solver, keep_local_models=False)
    assert kb.terms == {}
    with pytest.raises(LearnerMisuse, match='keep_local_models'):
        kb.remove('t1')
    with pytest.raises(LearnerMisuse, match='keep_local_models'):
        kb.add('t1', np.ones(3), random_model(rng))


def test_the_basis_does_not_depend_on_keeping_local_models(rng):
    with_models, without = filled(RNG(1)), filled(RNG(1), keep_local_models=False)
    np.testing.assert_array_equal(with_models.basis, without.basis)


def test_an_unknown_task_is_refused_with_the_known_ones(rng):
    with pytest.raises(UnknownName, match='t0, t1'):
        filled(rng, 2).remove('t9')


@pytest.mark.parametrize(
    ('s', 'residual', 'error'),
    [
        (np.full(3, np.nan), None, NonFinite),
        (np.ones(4), None, WrongShape),
        (np.ones(3), np.full(D, np.inf), NonFinite),
        (np.full(3, 1e200), None, NonFinite),
    ],
)
def test_bad_numbers_are_refused_before_anything_changes(rng, s, residual, error):
    kb = filled(rng, 5)
    before = contents(kb)
    with pytest.raises(error):
        kb.add('new', s, random_model(rng), residual)
    assert_untouched(kb, before)
    assert kb.tasks == ('t0', 't1', 't2', 't3', 't4')


def test_a_model_of_other_parameters_is_refused(rng):
    model = LocalModel(np.zeros(3), np.zeros(3), -np.eye(3))
    with pytest.raises(LpgftwError, match='alpha'):
        filled(rng, 2).add('new', np.ones(2), model)
