r"""What a task re-used of the shared basis, and whether the basis still suffices for it.

**Share of a column** in a task: :math:`|s_j|\,\|l_j\| / \sum_i |s_i|\,\|l_i\|`.

**Saturation.** The local model of a finished task, :math:`g^\top\Delta + \Delta^\top H \Delta`,
promises at best a gain of :math:`-\tfrac14 g^\top H^{-1} g`; with :math:`\Delta = L a` only
:math:`-\tfrac14 (L^\top g)^\top (L^\top H L)^{-1} L^\top g`. What is missing lies outside the
span of L. A gradient that is nothing but sampling noise has the same expected gain in each
dimension, so the basis counts as too small for a task only if the gain *per dimension* outside
the span is above that inside by more than chance allows (F test, 5 %).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import f as f_distribution

from lpgftw_ros.errors import UnknownName
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.basis import pad
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import compose, Knowledge

SIGNIFICANCE = 0.05


@dataclass(frozen=True, slots=True)
class Saturation:
    """How much of a task's predicted improvement the basis cannot express."""

    outside_share: float
    """Share of the predicted gain outside the span of L, 0 to 1."""
    per_dimension: float
    """Gain per dimension outside over that inside."""
    threshold: float
    """What noise alone exceeds once in twenty."""

    @property
    def saturated(self) -> bool:
        """True if the task's best policy lies outside the span of L."""
        return self.per_dimension > self.threshold


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one task is made of."""

    task: str
    coefficients: Array
    """s, one number per column. Shape (k,)."""
    shares: Array
    """Share of each column in the task's parameters. Shape (k,)."""
    residual_share: float
    """Norm of the residual over the norm of the parameters; 0 once it became a column."""
    nearest: tuple[tuple[str, float], ...]
    """Other tasks and the cosine between their parameters and this task's, nearest first."""
    moved: float | None
    """Relative change of the parameters since the task was tuned."""
    saturation: Saturation | None


def contributions(knowledge: Knowledge) -> Array:
    """Return s_j times the norm of column j for each task. Shape (tasks, k)."""
    norms = np.linalg.norm(knowledge.basis, axis=0)
    rows = [pad(f.coefficients, len(norms)) * norms for f in knowledge.tasks.values()]
    return np.array(rows).reshape(len(rows), len(norms))


def column_use(contribution: Array) -> Array:
    """Return each column's share over all tasks; sums to one unless nothing is used."""
    total = np.abs(contribution).sum(axis=0)
    return np.asarray(total / total.sum() if total.sum() > 0.0 else total)


def saturation(basis: Array, model: LocalModel) -> Saturation | None:
    """Return how much of the model's predicted gain lies outside the span of the basis."""
    Q, triangle = np.linalg.qr(basis)  # noqa: N806
    scale = np.abs(np.diag(triangle))
    Q = Q[:, scale > 1e-10 * scale.max(initial=0.0)]  # noqa: N806
    d, k = len(model.g), Q.shape[1]
    if k == 0 or d <= k:
        return None
    full = -0.25 * float(model.g @ np.linalg.solve(model.H, model.g))
    g_in = Q.T @ model.g
    inside = -0.25 * float(g_in @ np.linalg.solve(Q.T @ model.H @ Q, g_in))
    if not full > 0.0:
        return None
    outside = max(0.0, full - inside)
    per_dimension = (outside / (d - k)) / max(inside / k, np.finfo(float).tiny)
    threshold = float(f_distribution.ppf(1.0 - SIGNIFICANCE, d - k, k))
    return Saturation(outside / full, per_dimension, threshold)


def explain(
    knowledge: Knowledge, task: str, models: Mapping[str, LocalModel] | None = None
) -> Explanation:
    """Return what a task is made of; `models` adds its history and saturation."""
    if task not in knowledge.tasks:
        raise UnknownName('task in this run', task, knowledge.tasks)
    factors = knowledge.tasks[task]
    k = knowledge.basis.shape[1]
    s = pad(factors.coefficients, k)
    parts = np.abs(s) * np.linalg.norm(knowledge.basis, axis=0)
    theta = compose(knowledge.basis, factors)
    model = (models or {}).get(task)
    return Explanation(
        task=task,
        coefficients=s,
        shares=parts / parts.sum() if parts.sum() > 0.0 else parts,
        residual_share=_norm_ratio(factors.residual, theta),
        nearest=_nearest(knowledge, task, theta),
        moved=None if model is None else _norm_ratio(theta - model.alpha, model.alpha),
        saturation=None if model is None else saturation(knowledge.basis, model),
    )


def _norm_ratio(a: Array, b: Array) -> float:
    return float(np.linalg.norm(a) / max(np.linalg.norm(b), np.finfo(float).tiny))


def _nearest(knowledge: Knowledge, task: str, theta: Array) -> tuple[tuple[str, float], ...]:
    found = []
    for name, factors in knowledge.tasks.items():
        if name != task:
            other = compose(knowledge.basis, factors)
            scale = max(np.linalg.norm(theta) * np.linalg.norm(other), np.finfo(float).tiny)
            found.append((name, float(theta @ other / scale)))
    return tuple(sorted(found, key=lambda pair: -pair[1]))
