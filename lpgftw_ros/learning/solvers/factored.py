r"""Local models whose curvature is never a d x d matrix.

Layer by layer, with inputs :math:`\tilde x` (a one appended) and :math:`\delta_a` the derivative
of mean action a by the layer's pre-activations, the Fisher information of a layer is

.. math:: F = E\big[\textstyle\sum_a \sigma_a^{-2}\, \delta_a \delta_a^\top \otimes
          \tilde x \tilde x^\top\big]

Its diagonal is exact. The Kronecker form takes the expectation of both factors apart, which is
exact for a linear policy. Both lead to :math:`H = -\frac12 \sqrt{g^\top \tilde F^{-1} g /
\delta}\, \tilde F` as the dense model does.
"""

import numpy as np

from lpgftw_ros.learning.arrays import Array, require_finite
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.fisher import with_one
from lpgftw_ros.learning.gradients import Activations, forward, surrogate_gradient
from lpgftw_ros.learning.local_model import kl_price
from lpgftw_ros.learning.policies import PolicySnapshot, split_head, split_theta
from lpgftw_ros.learning.solvers.forms import DiagonalForm, KroneckerForm, layer_index
from lpgftw_ros.learning.solvers.terms import TaskModel


def factored_model(
    policy: PolicySnapshot,
    obs: Array,
    actions: Array,
    advantages: Array,
    config: TrainingConfig,
    form: str,
) -> TaskModel:
    """Build the model of a task at its policy, its curvature diagonal or Kronecker-factored."""
    at = forward(policy, obs)
    g = surrogate_gradient(policy, at, actions, advantages).theta
    require_finite('the gradient of the local model', g)
    F = diagonal_fisher(policy, at) if form == 'diagonal' else kronecker_fisher(policy, at)
    F = F.shifted(max(0.0, config.fisher_floor - F.smallest()))
    price = kl_price(float(g @ F.solve(g)), config)
    return TaskModel(policy.theta, g, F.scaled(-0.5 * price))


def diagonal_fisher(policy: PolicySnapshot, at: Activations) -> DiagonalForm:
    """Return the diagonal of the Fisher information over theta."""
    values = np.empty(policy.spec.n_parameters)
    layers = zip(layer_index(policy.spec), _layers(policy, at), strict=True)
    for index, (delta, x) in layers:
        values[index] = np.einsum('mao,mao->mo', delta, delta).T @ (x * x) / len(x)
    return DiagonalForm(values)


def kronecker_fisher(policy: PolicySnapshot, at: Activations) -> KroneckerForm:
    """Return the Fisher information over theta, both factors averaged apart."""
    rows, columns = [], []
    for delta, x in _layers(policy, at):
        flat = delta.reshape(-1, delta.shape[2])
        rows.append(flat.T @ flat / len(x))
        columns.append(x.T @ x / len(x))
    return KroneckerForm(layer_index(policy.spec), tuple(rows), tuple(columns))


def _layers(policy: PolicySnapshot, at: Activations) -> list[tuple[Array, Array]]:
    """Return delta / sigma (M, act, out) and the inputs with a one (M, in + 1), per layer."""
    scale = np.exp(-policy.log_std)
    if not policy.spec.hidden:
        delta = np.broadcast_to(np.diag(scale), (len(at.obs), len(scale), len(scale)))
        return [(delta, with_one(at.obs))]
    _, _, W1, _ = split_theta(policy.spec, policy.theta)
    W2, _ = split_head(policy.spec, policy.head)
    d2 = (scale[:, None] * W2) * at.slopes[1][:, None, :]
    d1 = (d2 @ W1) * at.slopes[0][:, None, :]
    return [(d1, with_one(at.obs)), (d2, with_one(at.hidden[0]))]
