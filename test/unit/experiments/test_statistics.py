import math

import numpy as np
import pytest

from lpgftw_ros.experiments.groups import (
    estimate,
    iqm,
    mean_difference,
    ratio_of_sums,
    share_above,
    standard_error,
)


def test_iqm_drops_the_outer_quarters():
    assert iqm(np.array([-100.0, 2.0, 4.0, 1000.0])) == 3.0


def test_iqm_of_three_is_their_mean():
    assert iqm(np.array([1.0, 2.0, 6.0])) == 3.0


def test_iqm_of_nothing_is_nan():
    assert math.isnan(iqm(np.array([])))


def test_standard_error_is_the_published_one():
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1.0 / math.sqrt(2))


def test_equal_scores_have_an_interval_of_no_width():
    found = estimate([np.full(5, 7.0), np.full(5, 7.0)], iqm)
    assert (found.value, found.low, found.high) == (7.0, 7.0, 7.0)


def test_the_interval_of_a_mean_is_students():
    """Two runs, 0 and 2: mean 1, standard error 1, t with one degree of freedom 12.706."""
    found = estimate([np.array([0.0]), np.array([2.0])], iqm)
    assert (found.value, found.runs) == (1.0, 2)
    assert (found.low, found.high) == pytest.approx((1.0 - 12.706, 1.0 + 12.706), rel=1e-4)


def test_a_run_is_the_unit_not_a_task():
    """A hundred tasks in each of two runs say no more about seeds than one."""
    many = estimate([np.zeros(100), np.full(100, 2.0)], lambda scores: float(np.mean(scores)))
    few = estimate([np.array([0.0]), np.array([2.0])], lambda scores: float(np.mean(scores)))
    assert many == few


@pytest.mark.parametrize('n', [2, 3, 5])
def test_nineteen_intervals_of_twenty_cover_the_truth(n):
    """Runs of eight tasks that share a mean of their own."""
    rng = np.random.default_rng(n)
    trials, covered = 1000, 0
    for _ in range(trials):
        lives = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 8))
        found = estimate(list(lives), lambda scores: float(np.mean(scores)))
        covered += found.low < 0.0 < found.high
    assert 0.92 < covered / trials < 0.98


def test_with_one_run_its_tasks_are_drawn():
    found = estimate([np.array([0.0, 10.0])], iqm)
    assert (found.low, found.high) == (0.0, 10.0)


def test_a_run_without_scores_is_left_out():
    found = estimate([np.array([]), np.array([3.0, 5.0])], iqm)
    assert found == estimate([np.array([3.0, 5.0])], iqm)
    assert math.isnan(estimate([np.array([])], iqm).value)


def test_an_interval_covers_the_mean_of_a_normal_sample():
    scores = np.random.default_rng(0).normal(2.0, 1.0, size=(20, 10))
    found = estimate(list(scores), iqm)
    assert found.low < 2.0 < found.high
    assert found.high - found.low < 0.7


def test_the_width_is_that_of_the_mean_of_independent_runs():
    """Runs of standard deviation 1: 95 % of the means of 100 lie within 1.96 / 10 of it."""
    runs = np.random.default_rng(1).normal(size=(100, 1)) + np.zeros((100, 20))
    found = estimate(list(runs), lambda scores: float(np.mean(scores)))
    assert found.high - found.low == pytest.approx(2 * 1.96 / 10, rel=0.15)


def test_a_ratio_of_sums_leaves_out_numerator_and_denominator_together():
    pairs = [np.array([[2.0, 1.0], [20.0, 10.0]]), np.array([[4.0, 2.0]])]
    found = estimate(pairs, ratio_of_sums)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert estimate(pairs, mean_difference).value == pytest.approx((26.0 - 13.0) / 3)


def test_a_ratio_needs_something_positive_below():
    assert math.isnan(ratio_of_sums(np.array([[1.0, 2.0], [1.0, -2.0]])))


def test_improvement_counts_pairs_and_half_ties():
    assert share_above(np.array([[1.0, 1.0], [1.0, 2.0], [3.0, 1.0], [3.0, 2.0]])) == 2.5 / 4
