"""All solvers of the system for the basis give the answer of Cholesky where they are exact."""

import numpy as np
import pytest

from lpgftw_ros.errors import LpgftwError, NonFinite, StateMismatch, UnknownName
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import forward, PolicySnapshot, PolicySpec
from lpgftw_ros.learning.serialise import (
    compact,
    form_from_arrays,
    form_shapes,
    read_matrix,
    StateReader,
)
from lpgftw_ros.learning.solvers import (
    make_solver,
    Problem,
    rebuild,
    SOLVERS,
    TaskModel,
    TaskTerm,
    with_form,
)
from lpgftw_ros.learning.solvers.forms import (
    DenseForm,
    diagonal_fisher,
    factored_model,
    kronecker_fisher,
    layer_index,
    nearest_kronecker,
)
from lpgftw_ros.learning.steps import Fisher, Npg

LINEAR = PolicySpec(obs_dim=3, act_dim=2)
MLP = PolicySpec(obs_dim=3, act_dim=2, hidden=(4, 3))


def negative_definite(rng, d):
    B = rng.standard_normal((d, d))
    return -(B @ B.T) / d - 0.1 * np.eye(d)


def kronecker_matrix(rng, spec):
    """Return a block-diagonal H with G kron X of each layer, in theta's order."""
    H = np.zeros((spec.n_parameters, spec.n_parameters))
    for at in layer_index(spec):
        G, X = negative_definite(rng, at.shape[0]), -negative_definite(rng, at.shape[1])
        H[np.ix_(at.ravel(), at.ravel())] = np.kron(G, X)
    return H


def terms(rng, spec, hessians, form, k=3):
    d = spec.n_parameters
    return [
        TaskTerm(
            rng.standard_normal(k),
            with_form(LocalModel(rng.standard_normal(d), rng.standard_normal(d), H), form, spec),
        )
        for H in hessians
    ]


def solved(name, terms_of, spec, *, k=3, ridge=1e-5, **changes):
    solver = make_solver(name)
    for term in terms_of:
        solver.add(term)
    n_tasks = len(terms_of) + (changes.get('plus') is not None)
    n_tasks -= changes.get('minus') is not None
    L = np.zeros((spec.n_parameters, k))
    return solver.solve(L, Problem(n_tasks, ridge, **changes))


def kronecker_system(terms_of, d, k, ridge):
    """Return L from A and b written with np.kron, as in the paper."""
    A, b = np.zeros((d * k, d * k)), np.zeros(d * k)
    for term in terms_of:
        H = term.matrix
        A += 2.0 * np.kron(np.outer(term.s, term.s), H)
        b += np.kron(term.s, 2.0 * H @ term.model.alpha - term.model.g)
    n = len(terms_of)
    vec = np.linalg.solve(A / n - ridge * np.eye(d * k), b / n)
    return vec.reshape((d, k), order='F')


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_the_extent_of_a_term_is_the_largest_it_adds(rng):
    H = negative_definite(rng, LINEAR.n_parameters)
    for term in terms(rng, LINEAR, [H], 'dense'):
        largest = float(np.max(np.abs(term.s)))
        in_A = 2.0 * largest**2 * np.max(np.abs(np.diag(H)))
        expected = [in_A, largest * np.max(np.abs(term.pull))]
        np.testing.assert_allclose(term.extent(), expected, rtol=1e-12)


def test_dense_is_the_equation_of_the_paper(rng):
    d = LINEAR.n_parameters
    tasks = terms(rng, LINEAR, [negative_definite(rng, d) for _ in range(5)], 'dense')
    expected = kronecker_system(tasks, d, 3, 1e-5)
    np.testing.assert_allclose(solved('dense', tasks, LINEAR), expected, rtol=1e-8)


@pytest.mark.parametrize('spec', [LINEAR, MLP])
def test_conjugate_gradient_agrees_on_any_problem(rng, spec):
    d = spec.n_parameters
    tasks = terms(rng, spec, [negative_definite(rng, d) for _ in range(6)], 'dense')
    expected = solved('dense', tasks, spec)
    np.testing.assert_allclose(solved('cg', tasks, spec), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize('spec', [LINEAR, MLP])
def test_diagonal_agrees_on_diagonal_problems(rng, spec):
    hessians = [-np.diag(rng.uniform(0.1, 2.0, spec.n_parameters)) for _ in range(6)]
    seed = rng.integers(2**31)
    dense = terms(np.random.default_rng(seed), spec, hessians, 'dense')
    diagonal = terms(np.random.default_rng(seed), spec, hessians, 'diagonal')
    expected = solved('dense', dense, spec)
    np.testing.assert_allclose(solved('diagonal', diagonal, spec), expected, rtol=1e-8)


@pytest.mark.parametrize('spec', [LINEAR, MLP])
def test_kronecker_agrees_on_kronecker_problems(rng, spec):
    hessians = [kronecker_matrix(rng, spec) for _ in range(6)]
    seed = rng.integers(2**31)
    dense = terms(np.random.default_rng(seed), spec, hessians, 'dense')
    factored = terms(np.random.default_rng(seed), spec, hessians, 'kronecker')
    expected = solved('dense', dense, spec)
    result = solved('kronecker', factored, spec)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize('name', SOLVERS)
def test_one_term_more_and_one_less_equals_those_terms(rng, name):
    form = make_solver(name).form
    hessians = [kronecker_matrix(rng, LINEAR) for _ in range(6)]
    tasks = terms(rng, LINEAR, hessians, form)
    changed = solved(name, tasks[:5], LINEAR, plus=tasks[5], minus=tasks[2])
    expected = solved(name, [*tasks[:2], *tasks[3:]], LINEAR)
    np.testing.assert_allclose(changed, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize('name', ['dense', 'diagonal'])
def test_sums_survive_a_round_trip(rng, name):
    form = make_solver(name).form
    tasks = terms(rng, LINEAR, [kronecker_matrix(rng, LINEAR) for _ in range(4)], form)
    first, second = make_solver(name), make_solver(name)
    rebuild(first, tasks)
    second.load_sums(first.sums())
    L = np.zeros((LINEAR.n_parameters, 3))
    a, b = (solver.solve(L, Problem(4, 1e-5)) for solver in (first, second))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('name', ['cg', 'kronecker'])
def test_iterative_solvers_have_no_sums(rng, name):
    solver = make_solver(name)
    rebuild(solver, terms(rng, LINEAR, [kronecker_matrix(rng, LINEAR)], solver.form))
    solver.load_sums(solver.sums())
    assert solver.sums() == {}


def test_an_unfinished_conjugate_gradient_still_improves(rng):
    d = LINEAR.n_parameters
    tasks = terms(rng, LINEAR, [negative_definite(rng, d) for _ in range(6)], 'dense')
    start, ridge = rng.standard_normal((d, 3)), 1e-5

    def objective(L):
        values = [term.model.value(L @ term.s) for term in tasks]
        return np.mean(values) - 0.5 * ridge * np.sum(L * L)

    solver = make_solver('cg', max_iterations=2)
    rebuild(solver, tasks)
    assert objective(solver.solve(start, Problem(6, ridge))) > objective(start)
    assert solver.residual > 1e-10


@pytest.mark.parametrize('name', ['dense', 'cg', 'diagonal'])
def test_a_system_without_a_maximum_is_refused(rng, name):
    d = LINEAR.n_parameters
    tasks = terms(rng, LINEAR, [-np.eye(d)] * 2, make_solver(name).form)
    if name == 'diagonal':
        tasks = [TaskTerm(np.zeros(3), tasks[0].model)]
        with pytest.raises(NonFinite, match='no solution'):
            solved(name, tasks, LINEAR, ridge=0.0)
        return
    with pytest.raises(NonFinite, match='not negative definite'):
        solved(name, tasks, LINEAR, ridge=-10.0)


def test_an_unknown_solver_is_named_with_the_known_ones():
    with pytest.raises(UnknownName, match='known: dense'):
        make_solver('qr')


def test_a_model_without_a_maximum_is_refused(rng):
    d = LINEAR.n_parameters
    with pytest.raises(LpgftwError, match='no maximum'):
        with_form(LocalModel(np.zeros(d), np.zeros(d), np.eye(d)), 'dense', LINEAR)


@pytest.mark.parametrize('spec', [LINEAR, MLP])
def test_layers_cover_theta_once(spec):
    everything = np.concatenate([at.ravel() for at in layer_index(spec)])
    np.testing.assert_array_equal(np.sort(everything), np.arange(spec.n_parameters))


def test_kronecker_form_is_the_matrix_it_stands_for(rng):
    H = kronecker_matrix(rng, MLP)
    form = nearest_kronecker(H, layer_index(MLP)).shifted(-0.3).scaled(2.0)
    matrix = 2.0 * (H - 0.3 * np.eye(len(H)))
    v = rng.standard_normal(len(H))
    np.testing.assert_allclose(form.apply(v), matrix @ v, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(form.diagonal(), np.diagonal(matrix), rtol=1e-10)
    np.testing.assert_allclose(form.solve(v), np.linalg.solve(matrix, v), rtol=1e-8)


@pytest.mark.parametrize('form', ['dense', 'diagonal', 'kronecker'])
def test_forms_survive_a_round_trip(rng, form):
    model = terms(rng, MLP, [kronecker_matrix(rng, MLP)], form)[0].model
    again = form_from_arrays(form, model.H.arrays(), MLP)
    v = rng.standard_normal(MLP.n_parameters)
    np.testing.assert_array_equal(again.apply(v), model.H.apply(v))


def policy_and_batch(rng, spec):
    policy = PolicySnapshot(
        spec,
        rng.standard_normal(spec.n_parameters),
        rng.standard_normal(spec.head_size),
        np.array([-0.5, 0.3]),
    )
    obs = rng.standard_normal((200, spec.obs_dim))
    actions = policy.act(obs, rng.standard_normal((200, spec.act_dim)))
    return policy, obs, actions, rng.standard_normal(200)


@pytest.mark.parametrize('spec', [LINEAR, MLP])
def test_diagonal_fisher_is_the_diagonal_of_the_fisher(rng, spec):
    policy, obs, *_ = policy_and_batch(rng, spec)
    at = forward(policy, obs)
    expected = np.diagonal(Fisher(policy, at).of_theta())
    np.testing.assert_allclose(diagonal_fisher(policy, at).diagonal(), expected, rtol=1e-10)


def test_kronecker_fisher_is_exact_for_a_linear_policy(rng):
    policy, obs, *_ = policy_and_batch(rng, LINEAR)
    at = forward(policy, obs)
    F, form = Fisher(policy, at).of_theta(), kronecker_fisher(policy, at)
    v = rng.standard_normal(LINEAR.n_parameters)
    np.testing.assert_allclose(form.apply(v), F @ v, rtol=1e-10)
    assert form.smallest() == pytest.approx(np.linalg.eigvalsh(F)[0], rel=1e-9)


def test_kronecker_fisher_of_one_sample_and_action_is_exact(rng):
    spec = PolicySpec(obs_dim=3, act_dim=1, hidden=(4, 3))
    policy = PolicySnapshot(spec, rng.standard_normal(31), rng.standard_normal(4), np.array([0.2]))
    at = forward(policy, rng.standard_normal((1, 3)))
    F, form = Fisher(policy, at).of_theta(), kronecker_fisher(policy, at)
    v = rng.standard_normal(31)
    first = np.arange(31) < 16  # the form has nothing between the layers
    F[np.ix_(first, ~first)] = F[np.ix_(~first, first)] = 0.0
    np.testing.assert_allclose(form.apply(v), F @ v, rtol=1e-9, atol=1e-12)


def test_factored_model_of_a_linear_policy_is_the_dense_one(rng):
    data, config = policy_and_batch(rng, LINEAR), TrainingConfig(fisher_floor=0.5)
    dense, factored = Npg(config).local_model(*data), factored_model(*data, config, 'kronecker')
    v = rng.standard_normal(LINEAR.n_parameters)
    np.testing.assert_allclose(factored.g, dense.g, rtol=1e-12)
    np.testing.assert_allclose(factored.H.apply(v), dense.H @ v, rtol=1e-8)


@pytest.mark.parametrize('form', ['diagonal', 'kronecker'])
def test_the_newton_step_of_a_factored_model_has_half_the_allowed_kl(rng, form):
    data, config = policy_and_batch(rng, MLP), TrainingConfig(fisher_floor=0.5, max_kl=0.01)
    model = factored_model(*data, config, form)
    at = forward(data[0], data[1])
    F = (diagonal_fisher if form == 'diagonal' else kronecker_fisher)(data[0], at)
    F = F.shifted(max(0.0, 0.5 - F.smallest()))
    step = -0.5 * model.H.solve(model.g)
    assert 0.5 * step @ F.apply(step) == pytest.approx(0.005, rel=1e-9)


@pytest.mark.parametrize('form', ['dense', 'diagonal', 'kronecker'])
def test_forms_tell_their_shapes(rng, form):
    model = terms(rng, MLP, [kronecker_matrix(rng, MLP)], form)[0].model
    shapes = {name: array.shape for name, array in model.H.arrays().items()}
    assert shapes == form_shapes(form, MLP)


@pytest.mark.parametrize('name', SOLVERS)
def test_solvers_tell_the_shapes_of_their_sums(rng, name):
    solver = make_solver(name)
    rebuild(solver, terms(rng, LINEAR, [kronecker_matrix(rng, LINEAR)] * 3, solver.form))
    shapes = {key: array.shape for key, array in solver.sums().items()}
    assert shapes == solver.sum_shapes(LINEAR.n_parameters, 3)


def test_a_curvature_of_low_rank_is_kept_by_its_eigenvectors(rng):
    U = np.linalg.qr(rng.standard_normal((7, 2)))[0]
    H, full = -0.5 * np.eye(7) - (U * [3.0, 2.0]) @ U.T, -np.diag(np.arange(1.0, 8.0))
    state = compact({'models/a/H': H, 'models/b/H': full, 'base/basis': U})
    assert sorted(state) == ['base/basis', 'models/a/H_values', 'models/a/H_vectors', 'models/b/H']
    np.testing.assert_allclose(state['models/a/H_values'], [-3.0, -2.0, -0.5], rtol=1e-12)
    np.testing.assert_allclose(read_matrix(StateReader(state), 'models/a', 7), H, atol=1e-12)
    np.testing.assert_array_equal(read_matrix(StateReader(state), 'models/b', 7), full)


def test_a_model_that_rises_in_one_direction_has_no_maximum():
    zero = np.zeros(2)
    TaskModel(zero, zero, DenseForm(np.diag([-1.0, -1e-9])))
    for curvature in (0.0, 0.5):
        with pytest.raises(NonFinite, match='no maximum'):
            TaskModel(zero, zero, DenseForm(np.diag([-1.0, curvature])))
    with pytest.raises(NonFinite, match=r'^g has'):
        TaskModel(zero, np.array([0.0, np.inf]), DenseForm(-np.eye(2)))


def test_an_array_of_another_shape_is_told_with_the_one_expected():
    reader = StateReader({'base/basis': np.zeros((3, 2))})
    assert reader.floats('base/basis', 3, None).shape == (3, 2)
    with pytest.raises(StateMismatch, match=r'float64 \(3, 2\), expected float64 \(4, any\)'):
        reader.floats('base/basis', 4, None)
