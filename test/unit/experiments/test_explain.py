import numpy as np
import pytest

from lpgftw_ros.errors import UnknownName
from lpgftw_ros.experiments.explain import column_use, contributions, explain, saturation
from lpgftw_ros.experiments.run_data import CrossReturns
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors

SPEC = PolicySpec(obs_dim=3, act_dim=2)  # d = 8


def factors(*s: float) -> TaskFactors:
    return TaskFactors(np.array(s), np.zeros(8), np.zeros(0), np.zeros(2))


@pytest.fixture
def knowledge() -> Knowledge:
    basis = np.zeros((8, 2))
    basis[0, 0], basis[1, 1] = 2.0, 1.0
    tasks = {'a': factors(1.0), 'b': factors(1.0, 0.2), 'c': factors(0.0, 3.0)}
    return Knowledge(1, SPEC, basis, tasks)


def test_shares_weigh_coefficients_by_column_norms(knowledge):
    np.testing.assert_allclose(explain(knowledge, 'b').shares, [2.0 / 2.2, 0.2 / 2.2])


def test_columns_a_task_does_not_know_count_as_zero(knowledge):
    np.testing.assert_array_equal(explain(knowledge, 'a').coefficients, [1.0, 0.0])


def test_nearest_tasks_come_first(knowledge):
    (first, cosine), (last, _) = explain(knowledge, 'a').nearest
    assert (first, last) == ('b', 'c')
    assert cosine == pytest.approx(2.0 / np.hypot(2.0, 0.2))


def test_column_use_is_the_share_over_all_tasks(knowledge):
    np.testing.assert_allclose(column_use(contributions(knowledge)), [4.0 / 7.2, 3.2 / 7.2])


def test_moved_is_relative_to_the_tuned_parameters(knowledge):
    alpha = np.zeros(8)
    alpha[0] = 1.0  # now 2.0
    model = LocalModel(alpha, np.ones(8), -np.eye(8))
    assert explain(knowledge, 'a', {'a': model}).moved == pytest.approx(1.0)


def test_a_gradient_inside_the_span_leaves_nothing_outside(knowledge):
    g = np.zeros(8)
    g[:2] = 1.0
    found = saturation(knowledge.basis, LocalModel(np.zeros(8), g, -np.eye(8)))
    assert found.outside_share == pytest.approx(0.0, abs=1e-12)
    assert not found.saturated


def test_gain_outside_is_weighed_by_curvature(knowledge):
    g, H = np.zeros(8), -np.eye(8)
    g[0], g[7], H[7, 7] = 1.0, 2.0, -4.0
    # inside 1/4, outside 4 / (4 * 4): equal gains
    found = saturation(knowledge.basis, LocalModel(np.zeros(8), g, H))
    assert found.outside_share == pytest.approx(0.5)
    assert found.per_dimension == pytest.approx((1 / 6) / (1 / 2))


def test_a_strong_gradient_outside_is_saturation(knowledge):
    g = np.full(8, 10.0)
    g[:2] = 0.1
    found = saturation(knowledge.basis, LocalModel(np.zeros(8), g, -np.eye(8)))
    assert found.saturated


def test_pure_noise_is_called_saturation_once_in_twenty():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(40, 40))
    F = root @ root.T / 40 + 0.1 * np.eye(40)
    basis = rng.normal(size=(40, 5))
    gradients = np.linalg.cholesky(F) @ rng.normal(size=(40, 1000))
    called = [saturation(basis, LocalModel(np.zeros(40), g, -F)).saturated for g in gradients.T]
    assert 0.03 < np.mean(called) < 0.07


def test_a_basis_with_equal_columns_counts_them_once():
    basis = np.ones((8, 2))
    found = saturation(basis, LocalModel(np.zeros(8), np.arange(8.0), -np.eye(8)))
    assert found.outside_share == pytest.approx(1.0 - (28.0**2 / 8) / 140.0)


def test_no_basis_no_saturation():
    model = LocalModel(np.zeros(8), np.ones(8), -np.eye(8))
    assert saturation(np.zeros((8, 0)), model) is None


def test_an_unknown_task_is_named(knowledge):
    with pytest.raises(UnknownName, match='known: a, b, c'):
        explain(knowledge, 'x')


def test_the_gap_is_what_other_policies_lose():
    returns = np.array([[10.0, 2.0], [4.0, 8.0]])
    np.testing.assert_allclose(CrossReturns(('a', 'b'), returns).gaps(), [0.6, 0.75])


def test_the_gap_of_a_task_nobody_solves_is_unknown():
    gaps = CrossReturns(('a', 'b'), np.array([[-1.0, 1.0], [0.0, 2.0]])).gaps()
    assert np.isnan(gaps[0])
    assert gaps[1] == 0.5
