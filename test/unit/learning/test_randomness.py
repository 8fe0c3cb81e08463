"""Random streams depend on what is asked for, not on when."""

import numpy as np
import pytest

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


def test_noise_does_not_go_back():
    noise = ExplorationNoise(9, 1, 2)
    noise.at(300)
    with pytest.raises(ValueError, match='noise of step 1 was already dropped'):
        noise.at(1)
