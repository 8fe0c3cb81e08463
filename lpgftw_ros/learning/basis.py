"""How the basis grows, and the rules by which it is solved for."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lpgftw_ros.learning.arrays import Array

UpdateFrom = Literal['second', 'after_columns']


@dataclass(frozen=True, slots=True)
class BasisRules:
    """When and how L is solved for."""

    max_columns: int
    """k, the most columns L may have."""
    ridge: float = 1e-5
    """What is subtracted from the diagonal of A / T."""
    update_from: UpdateFrom = 'second'
    """Solve from the second task on, or from the first task after the last column."""
    keep_local_models: bool = True
    """Keep (alpha, g, H) of each task; without it no task can be removed or learned again."""

    def updates(self, n_tasks: int) -> bool:
        """Return whether L is solved for when it has this many tasks."""
        return n_tasks > (1 if self.update_from == 'second' else self.max_columns)


def pad(s: Array, k: int) -> Array:
    """Return s with a zero for every column beyond its length. Shape (k,)."""
    return np.concatenate((s, np.zeros(k - len(s))))


def grow(basis: Array, s: Array, residual: Array) -> tuple[Array, Array]:
    r"""Append the residual as a column as long as the others are on average.

    With :math:`e = \|\epsilon\|` and the mean column norm :math:`\bar c`, the column is
    :math:`\epsilon \bar c / e` and its coefficient :math:`e / \bar c`, so that L s is what
    L s + residual was. The first column is taken as it is; a zero residual adds no column.
    """
    if basis.shape[1] == 0:
        return residual[:, None].copy(), np.ones(1)
    e = float(np.linalg.norm(residual))
    if e == 0.0:
        return basis, s
    length = float(np.mean(np.linalg.norm(basis, axis=0))) or e
    grown = np.append(pad(s, basis.shape[1]), e / length)
    return np.column_stack((basis, residual * (length / e))), grown
