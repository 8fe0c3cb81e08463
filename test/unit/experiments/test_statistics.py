import math

import numpy as np
import pytest

from lpgftw_ros.experiments.groups import (
    iqm,
    iqm_interval,
    probability_of_improvement,
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
    estimate = iqm_interval([np.full(5, 7.0), np.full(5, 7.0)])
    assert (estimate.value, estimate.low, estimate.high) == (7.0, 7.0, 7.0)


def test_two_seeds_of_one_task_span_all_resamples():
    # each resample is (0,0), (0,2), (2,0) or (2,2): means 0, 1, 1, 2
    estimate = iqm_interval([np.array([0.0, 2.0])])
    assert (estimate.value, estimate.low, estimate.high) == (1.0, 0.0, 2.0)


def test_tasks_are_never_mixed_when_there_are_seeds():
    strata = [np.array([0.0, 0.0]), np.array([10.0, 10.0])]
    estimate = iqm_interval(strata)
    assert estimate.low == estimate.high == 5.0


def test_with_one_seed_tasks_are_resampled():
    estimate = iqm_interval([np.array([0.0]), np.array([10.0])])
    assert (estimate.low, estimate.high) == (0.0, 10.0)


def test_missing_scores_are_left_out():
    assert iqm_interval([np.array([math.nan]), np.array([3.0])]).value == 3.0


def test_the_same_seed_gives_the_same_interval():
    strata = [np.arange(5.0), np.arange(5.0) ** 2]
    assert iqm_interval(strata, seed=3) == iqm_interval(strata, seed=3)


def test_a_bootstrap_interval_covers_the_mean_of_a_normal_sample():
    scores = np.random.default_rng(0).normal(2.0, 1.0, size=(20, 10))
    estimate = iqm_interval(list(scores))
    assert estimate.low < 2.0 < estimate.high
    assert estimate.high - estimate.low < 0.6


def test_improvement_counts_pairs_and_half_ties():
    ours, others = [np.array([1.0, 3.0])], [np.array([1.0, 2.0])]
    # 1 against 1: tie, 1 against 2: loss, 3 wins twice
    assert probability_of_improvement(ours, others).value == pytest.approx(2.5 / 4)


def test_improvement_is_averaged_over_tasks():
    ours, others = [np.array([1.0]), np.array([0.0])], [np.array([0.0]), np.array([1.0])]
    assert probability_of_improvement(ours, others).value == 0.5


def test_improvement_without_common_tasks_is_nan():
    assert math.isnan(probability_of_improvement([np.array([])], [np.array([1.0])]).value)
