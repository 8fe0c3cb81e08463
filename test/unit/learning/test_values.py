"""The value function against the same network trained by torch."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.values import (
    n_value_parameters,
    relative_error,
    value_features,
    ValueFunction,
    WIDTH,
)

OBS_DIM = 3


@pytest.fixture
def values(rng):
    return ValueFunction.create(OBS_DIM, rng)


@pytest.fixture
def data(rng):
    obs = rng.standard_normal((640, OBS_DIM))
    step = np.tile(np.arange(160), 4)
    return value_features(obs, step), np.sin(obs[:, 0]) + 0.01 * step


def test_features_are_clipped_observations_powers_of_time_and_one():
    found = value_features(np.array([[20.0, -5.0]]), np.array([500]))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[1.0, -0.5, 0.5, 0.25, 0.125, 0.0625, 1.0]])
    assert n_value_parameters(2) == 7 * 128 + 129 * 128 + 129


def torch_network(values):
    sizes = (OBS_DIM + 4, WIDTH, WIDTH, 1)
    layers, start = [], 0
    for fan_in, width in pairwise(sizes):
        block = values.parameters[start : start + (fan_in + 1) * width].reshape(-1, width)
        layer = torch.nn.Linear(fan_in, width)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(block[:-1].T.copy()))
            layer.bias.copy_(torch.from_numpy(block[-1].copy()))
        layers += [layer, torch.nn.ReLU()]
        start += block.size
    return torch.nn.Sequential(*layers[:-1])


def torch_fit(values, features, targets, rng, epochs, rate):
    network = torch_network(values)
    optimiser = torch.optim.Adam(network.parameters(), lr=rate, weight_decay=1e-3)
    x, y = torch.from_numpy(features[:, :-1].copy()), torch.from_numpy(targets.astype('f4'))
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for i in range(len(y) // 64 - 1):
            rows = order[64 * i : 64 * (i + 1)]
            optimiser.zero_grad()
            torch.mean((network(x[rows])[:, 0] - y[rows]) ** 2).backward()
            optimiser.step()
    return network


def test_features_are_clipped_observations_and_powers_of_time():
    row = value_features(np.array([[25.0, -1.0]]), np.array([500]))[0]
    np.testing.assert_allclose(row, [1.0, -0.1, 0.5, 0.25, 0.125, 0.0625, 1.0])


def test_prediction_is_that_of_the_same_torch_network(values, data):
    network = torch_network(values)
    with torch.no_grad():
        wanted = network(torch.from_numpy(data[0][:, :-1].copy()))[:, 0].numpy()
    np.testing.assert_allclose(values.predict(data[0]), wanted, atol=1e-6)


def test_a_fit_takes_the_steps_of_torch_adam(values, data):
    network = torch_fit(values, *data, np.random.default_rng(1), epochs=2, rate=1e-3)
    values.fit(*data, np.random.default_rng(1), epochs=2, learning_rate=1e-3)
    with torch.no_grad():
        wanted = network(torch.from_numpy(data[0][:, :-1].copy()))[:, 0].numpy()
    np.testing.assert_allclose(values.predict(data[0]), wanted, atol=1e-5)
    assert values.n_updates == 2 * 9


def test_the_optimiser_goes_on_where_it_was(values, data):
    other = values.copy()
    rng = np.random.default_rng(1)
    values.fit(*data, rng, epochs=2, learning_rate=1e-3)
    rng = np.random.default_rng(1)
    other.fit(*data, rng, epochs=1, learning_rate=1e-3)
    other.copy().fit(*data, np.random.default_rng(5), epochs=1, learning_rate=1e-3)
    other.fit(*data, rng, epochs=1, learning_rate=1e-3)
    np.testing.assert_array_equal(values.parameters, other.parameters)


def test_a_fit_lowers_the_error(values, data):
    before = relative_error(values.predict(data[0]), data[1])
    values.fit(*data, np.random.default_rng(1), epochs=20, learning_rate=1e-3)
    assert relative_error(values.predict(data[0]), data[1]) < 0.3 * before


def test_few_samples_make_one_minibatch(values, data):
    values.fit(data[0][:10], data[1][:10], np.random.default_rng(1), epochs=1, learning_rate=1e-3)
    assert values.n_updates == 1


def test_a_fit_that_diverges_changes_nothing(values, data):
    before = values.copy()
    targets = np.full(len(data[1]), 1e38)
    with np.errstate(all='ignore'), pytest.raises(NonFinite):
        values.fit(data[0], targets, np.random.default_rng(1), epochs=5, learning_rate=1.0)
    np.testing.assert_array_equal(values.parameters, before.parameters)
    np.testing.assert_array_equal(values.second_moment, before.second_moment)
    assert values.n_updates == 0


def test_initial_weights_are_uniform_by_fan_in(values):
    first = values.parameters[: (OBS_DIM + 5) * WIDTH]
    bound = 1.0 / np.sqrt(OBS_DIM + 4)
    assert np.abs(first).max() == pytest.approx(bound, rel=0.01)
    assert len(values.parameters) == n_value_parameters(OBS_DIM)


def test_the_error_of_constant_targets_is_absolute():
    assert relative_error(np.array([1.0, 3.0]), np.array([1.0, 1.0])) == 2.0
    assert relative_error(np.array([0.5, 0.5]), np.array([0.25, 0.75])) == 1.0


def test_a_scaled_fit_explains_large_returns_of_narrow_inputs_at_once(rng):
    """As on Meta-World: returns of 1e5, positions that vary by centimetres."""
    obs = 0.6 + 0.05 * rng.standard_normal((2000, OBS_DIM))
    features = value_features(obs, np.tile(np.arange(100), 20))
    targets = 1e5 * (1.0 + np.sin(20.0 * (obs[:, 0] - 0.6)))
    errors = {}
    for scaled in (False, True):
        one = ValueFunction.create(OBS_DIM, np.random.default_rng(1))
        for i in range(3):
            order = np.random.default_rng(i)
            one.fit(features, targets, order, epochs=2, learning_rate=1e-3, scaled=scaled)
        errors[scaled] = relative_error(one.predict(features), targets)
    assert errors[False] > 0.9
    assert errors[True] < 0.1


def test_scales_come_and_go_with_the_batch_and_leave_v_as_it_is(values, data):
    features, targets = data
    values.fit(features, targets, np.random.default_rng(0), epochs=2, learning_rate=1e-3)
    before = values.predict(features)
    other = 3.0 * features - 1.0
    other[:, -1] = 1.0
    values.fit(
        other, 1e4 * targets, np.random.default_rng(0), epochs=1, learning_rate=1e-30, scaled=True
    )
    np.testing.assert_allclose(values.predict(features), before, atol=1e-3)


def test_inputs_and_returns_that_do_not_vary_can_be_scaled(values):
    features = np.ones((128, OBS_DIM + 5), np.float32)
    for _ in range(2):
        values.fit(
            features,
            np.full(128, 7.0),
            np.random.default_rng(0),
            epochs=1,
            learning_rate=1e-3,
            scaled=True,
        )
    assert np.isfinite(values.predict(features)).all()
