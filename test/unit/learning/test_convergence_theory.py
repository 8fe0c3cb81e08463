r"""The paper's propositions, measured on a long stream of quadratic tasks.

Task t pays J_t(theta) = -(theta - theta*_t)' D_t (theta - theta*_t), so its local model is exact.
When it arrives, s_t maximises J_t(L_{t-1} s) - mu |s|_1; then L_t is solved for. With

    g^_t(L) = mean_{i <= t} [J_i(L s_i) - mu |s_i|_1] - lambda/2 |L|^2         (s as found)
    g_t(L)  = mean_{i <= t} max_s [J_i(L s) - mu |s|_1] - lambda/2 |L|^2       (s as best for L)

the surrogate g^_t is what L_t maximises and never above g_t. The propositions say that L settles
as |L_t - L_{t-1}| = O(1/t) and that g_t(L_t) - g^_t(L_t) goes to zero.
"""

import numpy as np
import pytest

from lpgftw_ros.learning.knowledge_base import BasisRules, KnowledgeBase
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.learning.solvers import make_solver

SPEC = PolicySpec(obs_dim=3, act_dim=2)
D, K, N_TASKS, MU, RIDGE = 8, 3, 2000, 1e-5, 1e-5


def stream(seed):
    """Return optima (T, d) near a k-dimensional subspace and curvatures (T, d, d).

    All draws are bounded: the propositions are about tasks from a compact set.
    """
    rng = np.random.default_rng(seed)
    true_L = rng.standard_normal((D, K))
    optima = rng.uniform(-1.0, 1.0, (N_TASKS, K)) @ true_L.T
    optima += 0.1 * rng.uniform(-1.0, 1.0, (N_TASKS, D))
    B = rng.uniform(-1.0, 1.0, (N_TASKS, D, D)) / np.sqrt(D)
    return optima, B @ B.transpose(0, 2, 1) + 0.1 * np.eye(D)


def best_coefficients(L, optima, D_all, sweeps):
    """Return argmax_s J(L s) - mu |s|_1 of many tasks by coordinate ascent. Shape (T, k)."""
    G = L.T @ D_all @ L  # (T, k, k)
    c = (optima[:, None, :] @ D_all @ L)[:, 0]  # (T, k)
    S = np.linalg.solve(G, c[:, :, None])[:, :, 0]
    for _ in range(sweeps):
        for j in range(L.shape[1]):
            pull = c[:, j] - np.einsum('tk,tk->t', G[:, j], S) + G[:, j, j] * S[:, j]
            S[:, j] = np.sign(pull) * np.maximum(np.abs(pull) - 0.5 * MU, 0.0) / G[:, j, j]
    return S


def objective(L, S, optima, D_all):
    """Return the mean of J(L s) - mu |s|_1, less the ridge."""
    gap = S @ L.T - optima
    J = -np.einsum('td,tde,te->t', gap, D_all, gap)
    return np.mean(J - MU * np.abs(S).sum(axis=1)) - 0.5 * RIDGE * np.sum(L * L)


@pytest.fixture(scope='module', params=[0, 1])
def lifetime(request):
    """Run the stream; return t |L_t - L_{t-1}| for all t and g_t - g^_t for some."""
    optima, D_all = stream(request.param)
    rules = BasisRules(max_columns=K, ridge=RIDGE)
    kb = KnowledgeBase(SPEC, make_solver('dense'), rules)
    S, moves, gaps = np.zeros((N_TASKS, K)), [], {}
    probes = set(np.unique(np.geomspace(100, N_TASKS, 25).astype(int)))
    for t in range(1, N_TASKS + 1):
        i, before = t - 1, kb.basis
        if kb.n_columns < K:
            s, alpha = np.zeros(kb.n_columns), optima[i]
            residual = optima[i]
        else:
            s = best_coefficients(before, optima[i:t], D_all[i:t], sweeps=3)[0]
            alpha, residual = before @ s, None
        g = -2.0 * D_all[i] @ (alpha - optima[i])
        s = kb.add(f'task {t}', s, LocalModel(alpha, g, -D_all[i]), residual)
        S[i, : len(s)] = s
        if before.shape == kb.basis.shape:
            moves.append((t, t * np.linalg.norm(kb.basis - before)))
        if t in probes:
            best = best_coefficients(kb.basis, optima[:t], D_all[:t], sweeps=3)
            past = (optima[:t], D_all[:t])
            gaps[t] = objective(kb.basis, best, *past) - objective(kb.basis, S[:t], *past)
    return np.array(moves), gaps


def test_the_basis_settles_like_one_over_t(lifetime):
    t, scaled = lifetime[0].T
    first, second = scaled[t <= N_TASKS // 2].max(), scaled[t > N_TASKS // 2].max()
    assert second <= 1.5 * first


def test_the_surrogate_is_never_above_the_objective(lifetime):
    assert min(lifetime[1].values()) >= -1e-12


def test_the_surrogate_approaches_the_objective(lifetime):
    t, gap = np.array(sorted(lifetime[1].items())).T
    slope = np.polyfit(np.log(t), np.log(gap), 1)[0]
    assert slope <= -0.5
