"""Random streams depend on what is asked for, not on when."""

import numpy as np

from lpgftw_ros.learning.randomness import derive_seed, ExplorationNoise, generator, Purpose


def test_seeds_differ_by_purpose_and_path():
    seeds = {derive_seed(1, purpose, i) for purpose in Purpose for i in range(10)}
    assert len(seeds) == 10 * len(Purpose)


def test_a_generator_is_the_same_whenever_it_is_made():
    one, other = (generator(3, Purpose.TRAIN, 1, 2).standard_normal(5) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_a_row_has_the_same_noise_whatever_stands_beside_it():
    many, single = ExplorationNoise(9, 4, 2), ExplorationNoise(9, 1, 2, first=2)
    for step in (0, 1, 300):
        np.testing.assert_array_equal(many.at(step)[2], single.at(step)[0])


def test_noise_may_be_asked_for_in_any_order():
    forward, backward = ExplorationNoise(9, 3, 2), ExplorationNoise(9, 3, 2)
    steps = range(0, 300, 7)
    there = [forward.at(step).copy() for step in steps]
    back = [backward.at(step).copy() for step in reversed(steps)]
    np.testing.assert_array_equal(there, back[::-1])


def test_noise_is_standard_normal_and_differs_by_seed_row_and_step():
    noise = ExplorationNoise(9, 40, 5)
    values = np.array([noise.at(step) for step in range(200)])
    assert len(np.unique(values)) == values.size
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1.0) < 0.02
    assert not np.isin(ExplorationNoise(10, 40, 5).at(0), values).any()
