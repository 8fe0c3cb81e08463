"""The solver for diagonal curvature: one k x k system per parameter."""

from collections.abc import Iterable, Mapping

import numpy as np

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.solvers.terms import TaskTerm


class DiagonalSolver:
    r"""Row i of L solves :math:`(\sum_t 2 h_{ti} s_t s_t^\top / T - \lambda I) l_i = b_i / T`.

    Memory is d k^2 and the cost does not grow with the number of tasks.
    """

    form = 'diagonal'

    def __init__(self) -> None:
        self._A: Array | None = None  # (d, k, k)
        self._b: Array | None = None  # (d, k)

    def add(self, term: TaskTerm) -> None:
        """Add a task."""
        self._A, self._b = self._with(len(term.s), ((term, 1.0),), len(term.model.g))

    def rebuild(self, terms: Iterable[TaskTerm]) -> None:
        """Forget the sums and add these terms in this order."""
        self._A = self._b = None
        for term in terms:
            self.add(term)

    def solve(
        self,
        L: Array,
        *,
        n_tasks: int,
        ridge: float,
        plus: TaskTerm | None = None,
        minus: TaskTerm | None = None,
    ) -> Array:
        """Return the basis for the kept sums, with one term more and one less."""
        d, k = L.shape
        changes = [(t, sign) for t, sign in ((minus, -1.0), (plus, 1.0)) if t is not None]
        A, b = self._with(k, changes, d)
        system = ridge * np.eye(k) - A / n_tasks
        try:
            return np.linalg.solve(system, -b[:, :, None] / n_tasks)[:, :, 0]
        except np.linalg.LinAlgError as error:
            raise NonFinite(f'the system for the basis has no solution: {error}') from None

    def _with(
        self, k: int, changes: Iterable[tuple[TaskTerm, float]], d: int
    ) -> tuple[Array, Array]:
        """Return the sums with some terms added (1) or taken away (-1), k columns wide."""
        wide = k if self._b is None else max(k, self._b.shape[1])
        A, b = np.zeros((d, wide, wide)), np.zeros((d, wide))
        if self._A is not None and self._b is not None:
            kept = self._b.shape[1]
            A[:, :kept, :kept], b[:, :kept] = self._A, self._b
        for term, sign in changes:
            s = term.padded(wide)
            A += (2.0 * sign * term.model.H.diagonal())[:, None, None] * np.outer(s, s)
            b += sign * np.outer(term.pull, s)
        return A, b

    def sums(self) -> dict[str, Array]:
        """Return A and b as named arrays, for a state without local models."""
        return {} if self._A is None or self._b is None else {'A': self._A, 'b': self._b}

    def sum_shapes(self, d: int, k: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays `sums` may return."""
        return {'A': (d, k, k), 'b': (d, k)}

    def load_sums(self, named: Mapping[str, Array]) -> None:
        """Take up what `sums` returned."""
        self._A, self._b = named.get('A'), named.get('b')
