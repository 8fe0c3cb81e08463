r"""What a task reuses of the shared basis, and whether the basis is large enough for it.

**Share of a column** in a task: :math:`|s_j|\,\|l_j\| / \sum_i |s_i|\,\|l_i\|`.

**Saturation.** The local model of a finished task, :math:`g^\top\Delta + \Delta^\top H \Delta`,
promises at best a gain of :math:`-\tfrac14 g^\top H^{-1} g`; with :math:`\Delta = L a` only
:math:`-\tfrac14 (L^\top g)^\top (L^\top H L)^{-1} L^\top g`. The rest lies outside the span of L.
Pure sampling noise has the same expected gain in each dimension. So the basis counts as too small
for a task only if the gain *per dimension* is significantly larger outside the span than inside (F
test, 5 %).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtri

from lpgftw_ros.errors import UnknownName
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import compose, Knowledge, pad

SIGNIFICANCE = 0.05


@dataclass(frozen=True, slots=True)
class Saturation:
    """How much of a task's predicted improvement the basis cannot express."""

    outside_share: float
    """Share of the predicted gain outside the span of L, 0 to 1."""
    per_dimension: float
    """Gain per dimension outside over that inside."""
    threshold: float
    """The 95 % quantile under noise alone."""

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
    threshold = float(fdtri(d - k, k, 1.0 - SIGNIFICANCE))
    return Saturation(outside / full, per_dimension, threshold)


def explain(
    knowledge: Knowledge, task: str, models: Mapping[str, LocalModel] | None = None
) -> Explanation:
    """Return the composition of a task; `models` adds its history and saturation."""
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


def similarity(knowledge: Knowledge) -> Array:
    """Return the cosine between the parameters of all tasks. Shape (tasks, tasks)."""
    thetas = [compose(knowledge.basis, factors) for factors in knowledge.tasks.values()]
    if not thetas:
        return np.zeros((0, 0))
    rows = np.array(thetas)
    scale = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    unit = rows / scale
    return np.asarray(unit @ unit.T)


def describe_explanation(one: Explanation, *, detailed: bool) -> list[str]:
    """Return an explanation in words, one line each; the first one is not indented."""
    near = one.nearest if detailed else one.nearest[:1]
    s = ', '.join(f'{value:.3g}' for value in one.coefficients)
    lines = [f'{one.task}: s = [{s}]']
    if len(one.shares):
        lines.append('  share of columns: ' + ' '.join(f'{share:.0%}' for share in one.shares))
    if one.residual_share > 0.0:
        lines.append(f'  own residual: {one.residual_share:.0%} of its parameters')
    if near:
        lines.append('  nearest: ' + ', '.join(f'{name} ({value:.2f})' for name, value in near))
    if detailed and one.moved is not None:
        lines.append(f'  moved since it was tuned: {one.moved:.2%} of its parameters')
    if one.saturation is not None and (detailed or one.saturation.saturated):
        lines.append(_saturation_line(one.saturation))
    return lines


def _saturation_line(found: Saturation) -> str:
    numbers = (
        f'{found.outside_share:.0%} of its predicted gain lies outside the span of L, '
        f'{found.per_dimension:.2g} times the gain per dimension inside '
        f'(noise reaches {found.threshold:.2g})'
    )
    if found.saturated:
        return f'  warning: the basis is too small for this task: {numbers}; try more max_columns'
    return f'  saturation: none found, {numbers}'


# What an adaptive learner measured and decided, from the metrics of a run.


def decisions(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (task, sentence) for every start, draw, column, shortened update and inheritance."""
    told: list[tuple[str, str]] = []
    visits: dict[int, str] = {}
    columns = 0
    for row in rows:
        if row['kind'] == 'iteration':
            visits[row['visit']] = row['task']
            if row['iteration'] == 0 and 'draws_left' in row:
                told.append((row['task'], f'{row["draws_left"]:.0f} random starts were drawn'))
            if 'restarted' in row:
                came = f'started anew: {row["restarted"]:.0f} iterations came to nothing'
                told.append((row['task'], came))
        elif row['kind'] == 'update':
            if row['columns'] != columns:
                told.append((row['task'], f'L has {row["columns"]} columns, before {columns}'))
            columns = row['columns']
        elif row['kind'] == 'probe':
            told += _probe(row, visits.get(row['visit'], row['task']))
    return told


_STARTS = {
    'carried': ('sigma was carried over', 'sigma starts anew: carrying it did not pay'),
    'latest_policy': ('starts from the policy of the task before', ''),
    'best_policy': ('starts from the policy that earned most', ''),
}
"""Measured start -> what to say where it was taken and where it was not."""


def _start(row: Mapping[str, Any]) -> list[str]:
    """Return which measured start was taken; if none, which were not."""
    taken = [yes for name, (yes, _) in _STARTS.items() if row.get(name)]
    return taken or [no for name, (_, no) in _STARTS.items() if name in row and no]


def _probe(row: Mapping[str, Any], visited: str) -> list[tuple[str, str]]:
    """Return what was decided from one probe, `visited` being the task learned at the time."""
    task = row['task']
    if any(name in row for name in _STARTS):
        return [(task, text) for text in _start(row)]
    if row.get('start_kept'):
        return [(task, 'went back to its start, which earned more than the tuned policy')]
    if 'kept' in row:
        return [(task, f'kept its parameters: the update of L after {visited} cost it too much')]
    if 'shortened' in row:
        what = f'shortened to {row["shortened"]:g}' if row['shortened'] else 'taken back'
        return [(visited, f'its update of L was {what}: it cost {task} too much')]
    if 'adopted' in row:
        return [(task, f'adopted the policy of {visited}')]
    return []
