r"""Fisher information of a Gaussian policy over its mean parameters.

.. math:: F = E[J^\top \mathrm{diag}(1/\sigma^2) J], \qquad J = \partial\mu/\partial(\theta, head)

The block of log sigma is 2 I and has no cross terms. Nothing here differentiates numerically or
row by row: linear policies have :math:`F = \mathrm{diag}(1/\sigma^2) \otimes E[\tilde x
\tilde x^\top]`, MLPs use their batch Jacobian built layer by layer.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsyrk

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.gradients import Activations, backward, push_forward
from lpgftw_ros.learning.policies import PolicySnapshot, split_head, split_theta

CHUNK = 2048
"""Rows of the batch worked on at a time."""


def with_one(x: Array) -> Array:
    """Append a column of ones, the input of the bias."""
    return np.column_stack((x, np.ones(len(x))))


def _precision(policy: PolicySnapshot) -> Array:
    """Return 1 / sigma^2. Shape (act_dim,)."""
    return np.asarray(np.exp(-2.0 * policy.log_std))


@dataclass(frozen=True, slots=True)
class Fisher:
    """Fisher information of one policy over one batch, in the form a caller needs."""

    policy: PolicySnapshot
    at: Activations

    def product(self, d_theta: Array, d_head: Array) -> tuple[Array, Array]:
        """Return F v for v = (d_theta, d_head), without forming F.

        Chunk by chunk, so that what goes forward is still in the cache when it comes back.
        """
        theta, head = np.zeros_like(d_theta), np.zeros_like(d_head)
        weight = _precision(self.policy) / len(self.at.mean)
        for start in range(0, len(self.at.mean), CHUNK):
            at = self.at.rows(slice(start, start + CHUNK))
            d_mean = weight * push_forward(self.policy, at, d_theta, d_head)
            part = backward(self.policy, at, d_mean)
            theta, head = theta + part[0], head + part[1]
        return theta, head

    def of_theta(self, weights: Array | None = None) -> Array:
        """Return F over theta alone, head held fixed; rows may be weighted. Shape (d, d)."""
        if not self.policy.spec.hidden:
            x = with_one(self.at.obs)
            second_moment = (x if weights is None else x * weights[:, None]).T @ x / len(x)
            return np.kron(np.diag(_precision(self.policy)), second_moment)
        return _mlp_theta(self.policy, self.at, weights)

    def of_coefficients(self, basis: Array) -> Array:
        """Return P' F P for P = blkdiag(L, I): over (s, head). Shape (k + h, k + h)."""
        if not self.policy.spec.hidden:
            x = with_one(self.at.obs)
            rows = basis.reshape(self.policy.spec.act_dim, x.shape[1], -1 if basis.size else 0)
            tangents = np.einsum('ank,nm,aml->akl', rows, x.T @ x / len(x), rows)
            return np.asarray(np.einsum('a,akl->kl', _precision(self.policy), tangents))
        return _mlp_coefficients(self.policy, self.at, basis)


def _mlp_theta(policy: PolicySnapshot, at: Activations, weights: Array | None) -> Array:
    """Accumulate J' S^-1 J over actions and chunks of rows."""
    d, n_rows = policy.spec.n_parameters, len(at.mean)
    F = np.zeros((d, d), order='F')
    scale = _precision(policy) / n_rows
    for start in range(0, n_rows, CHUNK):
        rows = slice(start, start + CHUNK)
        for action in range(policy.spec.act_dim):
            J = _theta_jacobian(policy, at, rows, action)  # (chunk, d)
            if weights is None:
                F = dsyrk(scale[action], J.T, beta=1.0, c=F, overwrite_c=1)
            else:
                F += scale[action] * (J.T @ (J * weights[rows, None]))
    return F if weights is not None else np.triu(F) + np.triu(F, 1).T


def _theta_jacobian(policy: PolicySnapshot, at: Activations, rows: slice, action: int) -> Array:
    """Return d mean[action] / d theta of some rows. Shape (rows, d)."""
    spec = policy.spec
    _, _, W1, _ = split_theta(spec, policy.theta)
    W2, _ = split_head(spec, policy.head)
    x, h1 = at.obs[rows], at.hidden[0][rows]
    d2 = W2[action] * at.slopes[1][rows]
    d1 = (d2 @ W1) * at.slopes[0][rows]
    J = np.empty((len(x), spec.n_parameters))
    first, second = spec.hidden
    ends = np.cumsum((first * spec.obs_dim, first, second * first, second))
    np.multiply(d1[:, :, None], x[:, None, :], out=J[:, : ends[0]].reshape(len(x), first, -1))
    J[:, ends[0] : ends[1]] = d1
    outer = J[:, ends[1] : ends[2]].reshape(len(x), second, first)
    np.multiply(d2[:, :, None], h1[:, None, :], out=outer)
    J[:, ends[2] :] = d2
    return J


def _mlp_coefficients(policy: PolicySnapshot, at: Activations, basis: Array) -> Array:
    """Build the small Fisher from k tangents and the inputs of the head."""
    spec, k = policy.spec, basis.shape[1]
    no_head = np.zeros(spec.head_size)
    tangents = [push_forward(policy, at, column, no_head) for column in basis.T]
    J_s = np.stack(tangents, axis=2) if k else np.zeros((*at.mean.shape, 0))  # (M, act, k)
    h = with_one(at.hidden[1])  # (M, width + 1)
    gram = h.T @ h / len(h)
    F = np.zeros((k + spec.head_size, k + spec.head_size))
    for action, precision in enumerate(_precision(policy)):
        J_a = J_s[:, action]
        own = k + _head_indices(spec.hidden[1], spec.act_dim, action)
        F[:k, :k] += precision * (J_a.T @ J_a) / len(h)
        F[np.ix_(own, own)] = precision * gram
        F[:k, own] = precision * (J_a.T @ h) / len(h)
        F[own, :k] = F[:k, own].T
    return F


def _head_indices(width: int, act_dim: int, action: int) -> Array:
    """Return where one action's weights and bias sit in the head."""
    return np.append(np.arange(action * width, (action + 1) * width), act_dim * width + action)
