r"""Derivatives of a Gaussian policy, in closed form.

With mean :math:`\mu(x)` and :math:`J = \partial\mu/\partial(\theta, head)` at one observation,

.. math::
    \nabla\log\pi(u|x) = J^\top (u - \mu) / \sigma^2, \qquad
    \partial\log\pi(u|x) / \partial\log\sigma = ((u - \mu) / \sigma)^2 - 1

`forward` runs the network once; `backward` multiplies by J' and `push_forward` by J.
"""

from dataclasses import dataclass

import numpy as np

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import PolicySnapshot, split_head, split_theta


@dataclass(frozen=True, slots=True)
class Activations:
    """What one forward pass over a batch leaves behind for the derivatives."""

    obs: Array
    """Shape (M, obs_dim)."""
    mean: Array
    """Shape (M, act_dim)."""
    hidden: tuple[Array, ...]
    """Outputs of the tanh layers; empty for a linear policy."""
    slopes: tuple[Array, ...]
    """Their derivatives 1 - tanh^2."""

    def rows(self, rows: slice) -> 'Activations':
        """Return some rows of the batch, as views."""
        hidden, slopes = (tuple(a[rows] for a in layers) for layers in (self.hidden, self.slopes))
        return Activations(self.obs[rows], self.mean[rows], hidden, slopes)


@dataclass(frozen=True, slots=True)
class PolicyGradient:
    """A gradient with respect to everything a policy is made of."""

    theta: Array
    head: Array
    log_std: Array


def forward(policy: PolicySnapshot, obs: Array) -> Activations:
    """Return the mean actions and what their derivatives need."""
    if not policy.spec.hidden:
        rows = policy.theta.reshape(policy.spec.act_dim, -1)
        return Activations(obs, obs @ rows[:, :-1].T + rows[:, -1], (), ())
    W0, b0, W1, b1 = split_theta(policy.spec, policy.theta)
    W2, b2 = split_head(policy.spec, policy.head)
    h1 = np.tanh(obs @ W0.T + b0)
    h2 = np.tanh(h1 @ W1.T + b1)
    return Activations(obs, h2 @ W2.T + b2, (h1, h2), (1.0 - h1 * h1, 1.0 - h2 * h2))


def backward(policy: PolicySnapshot, at: Activations, d_mean: Array) -> tuple[Array, Array]:
    """Return J' d_mean summed over the batch, for theta and for the head."""
    if not policy.spec.hidden:
        rows = np.column_stack((d_mean.T @ at.obs, d_mean.sum(axis=0)))
        return rows.ravel(), np.zeros(0)
    _, _, W1, _ = split_theta(policy.spec, policy.theta)
    W2, _ = split_head(policy.spec, policy.head)
    (h1, h2), (slope1, slope2) = at.hidden, at.slopes
    d2 = (d_mean @ W2) * slope2
    d1 = (d2 @ W1) * slope1
    theta = ((d1.T @ at.obs).ravel(), d1.sum(axis=0), (d2.T @ h1).ravel(), d2.sum(axis=0))
    head = ((d_mean.T @ h2).ravel(), d_mean.sum(axis=0))
    return np.concatenate(theta), np.concatenate(head)


def push_forward(policy: PolicySnapshot, at: Activations, d_theta: Array, d_head: Array) -> Array:
    """Return the change of the mean actions, J (d_theta, d_head). Shape (M, act_dim)."""
    if not policy.spec.hidden:
        rows = d_theta.reshape(policy.spec.act_dim, -1)
        return at.obs @ rows[:, :-1].T + rows[:, -1]
    _, _, W1, _ = split_theta(policy.spec, policy.theta)
    W2, _ = split_head(policy.spec, policy.head)
    dW0, db0, dW1, db1 = split_theta(policy.spec, d_theta)
    dW2, db2 = split_head(policy.spec, d_head)
    (h1, h2), (slope1, slope2) = at.hidden, at.slopes
    t1 = (at.obs @ dW0.T + db0) * slope1
    t2 = (t1 @ W1.T + h1 @ dW1.T + db1) * slope2
    return t2 @ W2.T + h2 @ dW2.T + db2


def surrogate_gradient(
    policy: PolicySnapshot, at: Activations, actions: Array, weights: Array
) -> PolicyGradient:
    r"""Return :math:`\frac1M \sum_i w_i \nabla\log\pi(u_i|x_i)`.

    With the advantages as weights this is the gradient of the surrogate return at the policy
    that sampled the actions.
    """
    z = (actions - at.mean) * np.exp(-policy.log_std)
    w = weights[:, None] / len(weights)
    theta, head = backward(policy, at, w * z * np.exp(-policy.log_std))
    return PolicyGradient(theta, head, np.sum(w * (z * z - 1.0), axis=0))


def log_likelihood(policy: PolicySnapshot, mean: Array, actions: Array) -> Array:
    """Return log pi(u|x) of each row, from the policy's mean actions. Shape (M,)."""
    z = (actions - mean) * np.exp(-policy.log_std)
    constant = np.sum(policy.log_std) + 0.5 * actions.shape[1] * np.log(2.0 * np.pi)
    return np.asarray(-0.5 * np.sum(z * z, axis=1) - constant)


def mean_kl(old: PolicySnapshot, old_mean: Array, new: PolicySnapshot, new_mean: Array) -> float:
    r"""Return the batch mean of KL(old || new) between diagonal Gaussians.

    :math:`\sum_a \log\frac{\sigma'}{\sigma} + \frac{\sigma^2 + (\mu - \mu')^2}{2\sigma'^2}
    - \frac12`
    """
    log_ratio = new.log_std - old.log_std
    moved = np.mean((old_mean - new_mean) ** 2, axis=0) * np.exp(-2.0 * new.log_std)
    # expm1 keeps the digits of a tiny change of sigma
    return float(np.sum(log_ratio + 0.5 * (np.expm1(-2.0 * log_ratio) + moved)))
