r"""Conjugate gradient on the system for the basis; A is never formed.

With V of shape (d, k), the product with :math:`-(A / T - \lambda I)` is

.. math:: \lambda V - \frac2T \sum_t H_t (V s_t) s_t^\top

so one product with each task's H is all it takes. One model per task is kept, and one product
costs as much as there are tasks.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.solvers.terms import TaskTerm


class IterativeSolver:
    """Preconditioned conjugate gradient, started from the present basis."""

    def __init__(self, form: str, *, tolerance: float, max_iterations: int) -> None:
        self.form = form
        self._tolerance, self._max_iterations = tolerance, max_iterations
        self._terms: list[TaskTerm] = []
        self.residual = 0.0
        """Relative residual the last solve ended with."""

    def add(self, term: TaskTerm) -> None:
        """Add a task."""
        self._terms.append(term)

    def rebuild(self, terms: Iterable[TaskTerm]) -> None:
        """Keep these terms in this order."""
        self._terms = list(terms)

    def solve(
        self,
        L: Array,
        *,
        n_tasks: int,
        ridge: float,
        plus: TaskTerm | None = None,
        minus: TaskTerm | None = None,
    ) -> Array:
        """Return the basis for the kept terms, with one more and one less.

        Stops at the tolerance or after the last iteration; every iteration raises the objective,
        so the answer is never worse than the basis it started from.
        """
        terms = [term for term in self._terms if term is not minus]
        system = _System(terms if plus is None else [*terms, plus], L.shape[1], n_tasks, ridge)
        X, self.residual = _conjugate_gradient(system, L, self._tolerance, self._max_iterations)
        return X

    def sums(self) -> dict[str, Array]:
        """Return nothing: this solver keeps terms, not sums."""
        return {}

    def sum_shapes(self, d: int, k: int) -> dict[str, tuple[int, ...]]:
        """Return nothing."""
        return {}

    def load_sums(self, named: Mapping[str, Array]) -> None:
        """Take up nothing."""


class _System:
    """The negated system of some terms, matrix-free."""

    def __init__(self, terms: Sequence[TaskTerm], k: int, n_tasks: int, ridge: float) -> None:
        self._terms, self._ridge, self._scale = terms, ridge, 2.0 / n_tasks
        self._S = np.array([term.padded(k) for term in terms])  # (T, k)
        pulls = np.array([term.pull for term in terms])  # (T, d)
        self.rhs = -(pulls.T @ self._S) / n_tasks  # (d, k)
        curvature = -np.array([term.model.H.diagonal() for term in terms])  # (T, d)
        blocks = self._scale * np.einsum('td,ti,tj->dij', curvature, self._S, self._S)
        self._preconditioner = np.linalg.inv(blocks + ridge * np.eye(k))  # (d, k, k)

    def product(self, V: Array) -> Array:
        """Return -(A / T - ridge I) V. Shape (d, k)."""
        total = self._ridge * V
        for term, s in zip(self._terms, self._S, strict=True):
            total -= np.outer(term.model.H.apply(V @ s), self._scale * s)
        return total

    def precondition(self, R: Array) -> Array:
        """Return R divided by the k x k block of each parameter."""
        return np.asarray(np.einsum('dij,dj->di', self._preconditioner, R))


def _conjugate_gradient(
    system: _System, start: Array, tolerance: float, max_iterations: int
) -> tuple[Array, float]:
    """Return the solution and the relative residual reached."""
    X = start.copy()
    R = system.rhs - system.product(X)
    size = float(np.linalg.norm(system.rhs)) or 1.0
    P, rz = np.zeros_like(X), np.inf
    for _ in range(max_iterations):
        if np.linalg.norm(R) <= tolerance * size:
            break
        Z = system.precondition(R)
        rz, rz_old = float(np.sum(R * Z)), rz
        P = Z + (rz / rz_old) * P
        AP = system.product(P)
        curvature = float(np.sum(P * AP))
        if not curvature > 0.0:
            raise NonFinite('the system for the basis is not negative definite')
        X += (rz / curvature) * P
        R -= (rz / curvature) * AP
    return X, float(np.linalg.norm(R)) / size
