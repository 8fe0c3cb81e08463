r"""Columns that grow and shrink, in the metric of the local models, without changing a policy.

With :math:`D_t = -H_t` and residuals :math:`r_t`, the direction :math:`v` explains the share

.. math:: p(v) = \sum_t \frac{(v^\top D_t r_t)^2}{v^\top D_t v} \Big/ \sum_t r_t^\top D_t r_t

of what the other tasks keep for themselves. A residual that explains enough becomes a column.
Over the budget L' and S' minimise

.. math:: E = \sum_t \|\theta_t - L' s'_t\|^2_{D_t}

by alternating closed forms. In both cases :math:`r'_t = \theta_t - L' s'_t`: every
:math:`\theta_t` stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import compose, pad, TaskFactors
from lpgftw_ros.learning.solvers import Problem, TaskModel, TaskTerm
from lpgftw_ros.learning.solvers.direct import DenseSolver
from lpgftw_ros.learning.solvers.forms import DenseForm, SymmetricForm

SWEEPS = 4
"""Rounds of the two closed forms per merge."""


@dataclass(frozen=True, slots=True)
class Factoring:
    """All policies as L s + r."""

    basis: Array
    """L. Shape (d, k)."""
    coefficients: dict[str, Array]
    """s by task. Shape (k,) each."""
    residuals: dict[str, Array]
    """r by task. Shape (d,) each."""


def regrouped(
    basis: Array,
    factors: Mapping[str, TaskFactors],
    task: str,
    H: Mapping[str, SymmetricForm],
    *,
    share: float,
    max_columns: int,
) -> Factoring | None:
    """Make a column of a task's residual if it pays for others; merge columns over the budget.

    None if it does not pay.
    """
    residuals = {t: f.residual for t, f in factors.items()}
    v, others = residuals[task], {t: r for t, r in residuals.items() if t != task}
    if explained(v, others, H) < share or not v.any():
        return None
    now = Factoring(basis, {t: f.coefficients for t, f in factors.items()}, residuals)
    new = with_column(now, v, H)
    if new.basis.shape[1] > max_columns:
        theta = {t: compose(basis, f) for t, f in factors.items()}
        new = merged(new, theta, H, max_columns)
    return new


def explained(v: Array, residuals: Mapping[str, Array], H: Mapping[str, SymmetricForm]) -> float:
    """Return the share of the residuals that a direction explains, 0 to 1."""
    total = sum(-float(r @ H[task].apply(r)) for task, r in residuals.items())
    if not total > 0.0:
        return 0.0
    return sum(_part(v, r, H[task])[1] for task, r in residuals.items()) / total


def _part(v: Array, r: Array, H: SymmetricForm) -> tuple[float, float]:
    """Return the best coefficient of v for a residual and what it explains of it."""
    Dv = -H.apply(v)
    size = float(v @ Dv)
    if not size > 0.0:
        return 0.0, 0.0
    along = float(Dv @ r)
    return along / size, along * along / size


def with_column(factoring: Factoring, v: Array, H: Mapping[str, SymmetricForm]) -> Factoring:
    """Append v, as long as the other columns are on average; every task takes its part of it."""
    L = factoring.basis
    length = float(np.mean(np.linalg.norm(L, axis=0))) if L.shape[1] else 1.0
    v = v * (length / float(np.linalg.norm(v)))
    S, R = {}, {}
    for task, r in factoring.residuals.items():
        c, _ = _part(v, r, H[task])
        S[task] = np.append(pad(factoring.coefficients[task], L.shape[1]), c)
        R[task] = r - c * v
    return Factoring(np.column_stack((L, v)), S, R)


def merged(
    factoring: Factoring, theta: Mapping[str, Array], H: Mapping[str, SymmetricForm], k: int
) -> Factoring:
    """Return the policies on k columns; the residuals take what these do not explain."""
    L = _without_least(factoring, k)
    S = {task: best_coefficients(L, theta[task], H[task]) for task in theta}
    for _ in range(SWEEPS):
        L = best_basis(L, S, theta, H)
        S = {task: best_coefficients(L, theta[task], H[task]) for task in theta}
    return Factoring(L, S, {task: theta[task] - L @ S[task] for task in theta})


def _without_least(factoring: Factoring, k: int) -> Array:
    """Return the k columns that are used most."""
    norms = np.linalg.norm(factoring.basis, axis=0)
    rows = [np.abs(pad(s, len(norms))) * norms for s in factoring.coefficients.values()]
    order = np.argsort(-np.sum(rows, axis=0), kind='stable')[:k]
    return np.asarray(factoring.basis[:, np.sort(order)])


def best_coefficients(L: Array, theta: Array, H: SymmetricForm) -> Array:
    """Return s = (L' D L)^-1 L' D theta."""
    DL = -np.column_stack([H.apply(column) for column in L.T])
    return np.asarray(np.linalg.lstsq(L.T @ DL, DL.T @ theta, rcond=None)[0])


def best_basis(
    L: Array, S: Mapping[str, Array], theta: Mapping[str, Array], H: Mapping[str, SymmetricForm]
) -> Array:
    """Return the L that minimises E for given S: (sum (s s') x D) vec L = sum s x D theta."""
    solver, d = DenseSolver(), L.shape[0]
    largest = 0.0
    for task, s in S.items():
        form = H[task] if isinstance(H[task], DenseForm) else DenseForm(_matrix(H[task], d))
        solver.add(TaskTerm(s, TaskModel(theta[task], np.zeros(d), form)))
        largest = max(largest, float(s @ s) * float(np.max(np.abs(form.diagonal()))))
    return solver.solve(L, Problem(len(S), ridge=1e-12 * max(largest, 1.0)))


def _matrix(H: SymmetricForm, d: int) -> Array:
    return np.column_stack([H.apply(column) for column in np.eye(d)])
