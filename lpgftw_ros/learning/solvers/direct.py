"""Solvers that sum the tasks' terms once: their cost does not grow with the number of tasks."""

from collections.abc import Iterable, Mapping

import numpy as np
from scipy.linalg import cho_factor, cho_solve, LinAlgError

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.solvers.terms import TaskTerm


class DenseSolver:
    r"""Cholesky of the whole system, :math:`-(A / T - \lambda I)`, of size dk x dk.

    A is symmetric and so is each of its d x d blocks :math:`\sum_t 2 s_i s_j H_t`: only the
    blocks on and below the diagonal are kept, and a new column costs nothing until it is used.
    """

    form = 'dense'

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], Array] = {}  # (i, j) with i >= j: (d, d)
        self._rhs: dict[int, Array] = {}  # j: (d,)

    def add(self, term: TaskTerm) -> None:
        """Add a task: A += 2 (s s') kron H, b += s kron (2 H alpha - g)."""
        H, pull, s = term.matrix, term.pull, term.s
        scaled = np.empty_like(H)
        for i, j in _pairs(s):
            np.multiply(H, 2.0 * s[i] * s[j], out=scaled)
            if (i, j) in self._blocks:
                self._blocks[i, j] += scaled
            else:
                self._blocks[i, j] = scaled.copy()
        for j in _used(s):
            self._rhs[j] = self._rhs.get(j, np.zeros(len(pull))) + s[j] * pull

    def rebuild(self, terms: Iterable[TaskTerm]) -> None:
        """Forget the sums and add these terms in this order."""
        self._blocks, self._rhs = {}, {}
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
        W = self._negated(d, k, n_tasks, plus, minus)
        W[np.diag_indices(d * k)] += ridge
        rhs = -self.normal_rhs(d, k, plus, minus) / n_tasks
        try:  # transposed, the upper blocks of W are the lower ones LAPACK reads, in its order
            factor = cho_factor(W.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError as error:
            raise NonFinite(
                f'the system for the basis is not negative definite: {error}'
            ) from None
        # products with L round by its memory layout: keep the one a loaded state has
        return np.ascontiguousarray(cho_solve(factor, rhs, check_finite=False).reshape(k, d).T)

    def _negated(
        self, d: int, k: int, n_tasks: int, plus: TaskTerm | None, minus: TaskTerm | None
    ) -> Array:
        """Return -A / T with its upper triangle filled, block by block. Shape (dk, dk)."""
        W = np.empty((d * k, d * k))
        scratch = np.empty((d, d))
        for i in range(k):
            for j in range(i + 1):
                block = W[j * d : (j + 1) * d, i * d : (i + 1) * d]
                if (i, j) in self._blocks:
                    np.multiply(self._blocks[i, j], -1.0 / n_tasks, out=block)
                else:
                    block[:] = 0.0
                for term, sign in ((minus, 2.0), (plus, -2.0)):
                    if term is not None and term.at(i) * term.at(j) != 0.0:
                        factor = sign * term.at(i) * term.at(j) / n_tasks
                        block += np.multiply(term.matrix, factor, out=scratch)
        return W

    def normal_matrix(self, d: int, k: int) -> Array:
        """Return A in full. Shape (dk, dk)."""
        A = np.zeros((d * k, d * k))
        for (i, j), block in self._blocks.items():
            A[i * d : (i + 1) * d, j * d : (j + 1) * d] = block
            A[j * d : (j + 1) * d, i * d : (i + 1) * d] = block
        return A

    def normal_rhs(
        self, d: int, k: int, plus: TaskTerm | None = None, minus: TaskTerm | None = None
    ) -> Array:
        """Return b, with one term more and one less. Shape (dk,)."""
        b = np.zeros((k, d))
        for j, values in self._rhs.items():
            b[j] = values
        for term, sign in ((minus, -1.0), (plus, 1.0)):
            if term is not None:
                b[: len(term.s)] += sign * np.outer(term.s, term.pull)
        return b.ravel()

    def sums(self) -> dict[str, Array]:
        """Return A and b as named arrays, for a state without local models."""
        named = {f'A_{i:04d}_{j:04d}': block.copy() for (i, j), block in self._blocks.items()}
        return named | {f'b_{j:04d}': values for j, values in self._rhs.items()}

    def sum_shapes(self, d: int, k: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays `sums` may return."""
        blocks: dict[str, tuple[int, ...]] = {
            f'A_{i:04d}_{j:04d}': (d, d) for i in range(k) for j in range(i + 1)
        }
        return blocks | {f'b_{j:04d}': (d,) for j in range(k)}

    def load_sums(self, named: Mapping[str, Array]) -> None:
        """Take up what `sums` returned."""
        parts = {name: [int(i) for i in name.split('_')[1:]] for name in named}
        self._blocks = {(at[0], at[1]): named[n] for n, at in parts.items() if len(at) == 2}
        self._rhs = {at[0]: named[n] for n, at in parts.items() if len(at) == 1}


def _used(s: Array) -> list[int]:
    """Return the columns a task uses."""
    return [int(j) for j in np.flatnonzero(s)]


def _pairs(s: Array) -> list[tuple[int, int]]:
    """Return the blocks (i, j), i >= j, a task with coefficients s adds to."""
    return [(i, j) for i in _used(s) for j in _used(s) if i >= j and s[i] * s[j] != 0.0]
