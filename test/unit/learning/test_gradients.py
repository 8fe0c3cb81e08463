"""Derivatives against finite differences and against automatic differentiation."""

import numpy as np
import pytest
import torch

from lpgftw_ros.learning.policies import (
    backward,
    forward,
    log_likelihood,
    mean_action,
    mean_kl,
    PolicySnapshot,
    PolicySpec,
    push_forward,
    surrogate_gradient,
)
from lpgftw_ros.learning.steps import Fisher


def flat(policy):
    return np.concatenate((policy.theta, policy.head, policy.log_std))


def rebuild(spec, vector):
    d, h = spec.n_parameters, spec.head_size
    return PolicySnapshot(spec, vector[:d], vector[d : d + h], vector[d + h :])


def torch_mean(spec, vector, obs):
    n, m = spec.obs_dim, spec.act_dim
    if not spec.hidden:
        rows = vector[: m * (n + 1)].reshape(m, n + 1)
        return obs @ rows[:, :n].T + rows[:, n]
    a, b = spec.hidden
    W0, b0, W1, b1, W2, b2 = torch.split(
        vector[: spec.n_parameters + spec.head_size], [a * n, a, b * a, b, m * b, m]
    )
    h1 = torch.tanh(obs @ W0.reshape(a, n).T + b0)
    return torch.tanh(h1 @ W1.reshape(b, a).T + b1) @ W2.reshape(m, b).T + b2


def torch_kl(spec, vector, old, obs):
    mean, old_mean = torch_mean(spec, vector, obs), torch_mean(spec, old, obs)
    log_std, old_log_std = vector[-spec.act_dim :], old[-spec.act_dim :]
    ratio = (torch.exp(2 * old_log_std) + (mean - old_mean) ** 2) * torch.exp(-2 * log_std)
    return (log_std - old_log_std + 0.5 * (ratio - 1)).sum(dim=1).mean()


def surrogate(spec, vector, obs, actions, weights):
    policy = rebuild(spec, vector)
    mean = mean_action(spec, policy.theta, policy.head, obs)
    return float(np.mean(weights * log_likelihood(policy, mean, actions)))


def gradient_of(policy, obs, actions, weights):
    g = surrogate_gradient(policy, forward(policy, obs), actions, weights)
    return np.concatenate((g.theta, g.head, g.log_std))


def relative(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def test_forward_is_the_mean_action(policy, obs):
    acted = mean_action(policy.spec, policy.theta, policy.head, obs)
    np.testing.assert_array_equal(forward(policy, obs).mean, acted)


def test_gradient_matches_finite_differences(policy, obs, actions, weights):
    at, h = flat(policy), 1e-5
    wanted = np.array(
        [
            (
                surrogate(policy.spec, at + h * e, obs, actions, weights)
                - surrogate(policy.spec, at - h * e, obs, actions, weights)
            )
            / (2 * h)
            for e in np.eye(len(at))
        ]
    )
    assert relative(gradient_of(policy, obs, actions, weights), wanted) <= 1e-6


def test_gradient_matches_autograd_of_the_likelihood_ratio(policy, obs, actions, weights):
    vector = torch.tensor(flat(policy), requires_grad=True)
    x, u, w = (torch.tensor(a) for a in (obs, actions, weights))
    log_std = vector[-policy.spec.act_dim :]
    z = (u - torch_mean(policy.spec, vector, x)) * torch.exp(-log_std)
    log_p = (-0.5 * z**2 - log_std).sum(dim=1)
    torch.mean(torch.exp(log_p - log_p.detach()) * w).backward()
    found = gradient_of(policy, obs, actions, weights)
    assert relative(found, vector.grad.numpy()) <= 1e-12


def test_likelihood_matches_the_normal_density(policy, obs, actions):
    mean = forward(policy, obs).mean
    normal = torch.distributions.Normal(torch.tensor(mean), torch.tensor(np.exp(policy.log_std)))
    wanted = normal.log_prob(torch.tensor(actions)).sum(dim=1).numpy()
    np.testing.assert_allclose(log_likelihood(policy, mean, actions), wanted, rtol=1e-12)


def dense_fisher(policy, obs):
    """Hessian of the mean KL at the policy itself, by automatic differentiation."""
    old, x = torch.tensor(flat(policy)), torch.tensor(obs)
    hessian = torch.autograd.functional.hessian(lambda v: torch_kl(policy.spec, v, old, x), old)
    return hessian.numpy()


def test_fisher_of_theta_matches_the_hessian_of_the_kl(policy, obs):
    d = policy.spec.n_parameters
    found = Fisher(policy, forward(policy, obs)).of_theta()
    assert relative(found, dense_fisher(policy, obs)[:d, :d]) <= 1e-12


def test_fisher_of_theta_matches_finite_differences_of_the_kl(policy, obs):
    """Second differences of the mean KL along random directions give v' F v."""
    d, at, h = policy.spec.n_parameters, forward(policy, obs), 1e-3
    F = Fisher(policy, at).of_theta()
    for direction in np.random.default_rng(3).standard_normal((5, d)):
        v = direction / np.linalg.norm(direction)

        def kl(step, v=v):
            moved = PolicySnapshot(
                policy.spec, policy.theta + step * v, policy.head, policy.log_std
            )
            return mean_kl(policy, at.mean, moved, forward(moved, obs).mean)

        # five points: the fourth order of the KL cancels, the sixth is below the tolerance
        second = (16 * (kl(h) + kl(-h)) - (kl(2 * h) + kl(-2 * h))) / (12 * h * h)
        assert second == pytest.approx(v @ F @ v, rel=1e-6)


def test_fisher_has_two_for_each_log_std_and_no_cross_terms(policy, obs):
    n = policy.spec.n_parameters + policy.spec.head_size
    F = dense_fisher(policy, obs)
    np.testing.assert_allclose(F[n:, n:], 2.0 * np.eye(policy.spec.act_dim), atol=1e-12)
    np.testing.assert_allclose(F[:n, n:], 0.0, atol=1e-12)


def test_fisher_vector_product_matches_the_dense_fisher(policy, obs, rng):
    d, h = policy.spec.n_parameters, policy.spec.head_size
    v = rng.standard_normal(d + h)
    found = np.concatenate(Fisher(policy, forward(policy, obs)).product(v[:d], v[d:]))
    assert relative(found, dense_fisher(policy, obs)[: d + h, : d + h] @ v) <= 1e-12


@pytest.mark.parametrize('k', [0, 3])
def test_fisher_of_coefficients_is_the_projected_fisher(policy, obs, rng, k):
    d, h = policy.spec.n_parameters, policy.spec.head_size
    L = rng.standard_normal((d, k))
    P = np.zeros((d + h, k + h))
    P[:d, :k], P[d:, k:] = L, np.eye(h)
    wanted = P.T @ dense_fisher(policy, obs)[: d + h, : d + h] @ P
    found = Fisher(policy, forward(policy, obs)).of_coefficients(L)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_linear_closed_form_equals_the_batch_jacobian(rng, obs):
    spec = PolicySpec(3, 2)
    policy = PolicySnapshot(spec, rng.standard_normal(8), np.zeros(0), np.array([0.3, -0.4]))
    at = forward(policy, obs)
    columns = [push_forward(policy, at, e, np.zeros(0)) for e in np.eye(8)]
    J = np.stack(columns, axis=2)  # (M, act, d)
    general = np.einsum('mai,a,maj->ij', J, np.exp(-2.0 * policy.log_std), J) / len(obs)
    np.testing.assert_allclose(Fisher(policy, at).of_theta(), general, rtol=1e-12, atol=1e-14)


def test_weighted_fisher_is_the_sum_of_weighted_rows(policy, obs, weights):
    rows = [Fisher(policy, forward(policy, x[None])).of_theta() for x in obs]
    wanted = np.mean([w * F for w, F in zip(weights, rows, strict=True)], axis=0)
    found = Fisher(policy, forward(policy, obs)).of_theta(weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_backward_is_the_adjoint_of_push_forward(policy, obs, rng):
    at = forward(policy, obs)
    d_theta, d_head = rng.standard_normal(len(policy.theta)), rng.standard_normal(len(policy.head))
    d_mean = rng.standard_normal(at.mean.shape)
    theta, head = backward(policy, at, d_mean)
    forward_side = np.sum(d_mean * push_forward(policy, at, d_theta, d_head))
    assert forward_side == pytest.approx(theta @ d_theta + head @ d_head, rel=1e-12)


def test_kl_matches_the_formula_of_torch(policy, obs, rng):
    new = rebuild(policy.spec, flat(policy) + 0.1 * rng.standard_normal(len(flat(policy))))
    old_mean, new_mean = forward(policy, obs).mean, forward(new, obs).mean
    pairs = ((old_mean, policy), (new_mean, new))
    normals = [
        torch.distributions.Normal(torch.tensor(m), torch.tensor(np.exp(p.log_std)))
        for m, p in pairs
    ]
    wanted = torch.distributions.kl_divergence(*normals).sum(dim=1).mean().item()
    assert mean_kl(policy, old_mean, new, new_mean) == pytest.approx(wanted, rel=1e-12)


def test_large_batches_are_worked_through_in_chunks(policy, rng):
    """Every row counts once: a batch repeated to several chunks has the same Fisher."""
    obs = rng.standard_normal((64, 3))
    once, often = (Fisher(policy, forward(policy, x)) for x in (obs, np.tile(obs, (70, 1))))
    v = rng.standard_normal(len(policy.theta) + len(policy.head))
    parts = np.split(v, [len(policy.theta)])
    for found, wanted in zip(often.product(*parts), once.product(*parts), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(often.of_theta(), once.of_theta(), rtol=1e-10, atol=1e-13)
