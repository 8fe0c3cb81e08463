"""The solvers for L.

The dense and the diagonal solver keep the sums A and b: an update costs the same for task 5 and
task 500. The iterative one keeps a model per task, so its cost grows with their number.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve, LinAlgError

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.solvers.forms import Problem, TaskTerm


class DenseSolver:
    r"""Cholesky of the whole system, :math:`-(A / T - \lambda I)`, of size dk x dk.

    A is symmetric and so is each of its d x d blocks :math:`\sum_t 2 s_i s_j H_t`: only the
    blocks on and below the diagonal are kept, and a new column costs nothing until it is used.
    """

    form = 'dense'

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all tasks."""
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

    def solve(self, L: Array, problem: Problem) -> Array:
        """Return the basis of a problem."""
        d, k = L.shape
        W = self._negated(d, k, problem)
        W[np.diag_indices(d * k)] += problem.ridge
        rhs = -self.normal_rhs(d, k, problem.changes) / problem.n_tasks
        try:  # transposed, the upper blocks of W are the lower ones LAPACK reads, in its order
            factor = cho_factor(W.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError as error:
            raise NonFinite(
                f'the system for the basis is not negative definite: {error}'
            ) from None
        # products with L round by its memory layout: keep the one a loaded state has
        return np.ascontiguousarray(cho_solve(factor, rhs, check_finite=False).reshape(k, d).T)

    def _negated(self, d: int, k: int, problem: Problem) -> Array:
        """Return -A / T with its upper triangle filled, block by block. Shape (dk, dk)."""
        W, n_tasks = np.empty((d * k, d * k)), problem.n_tasks
        scratch = np.empty((d, d))
        for i in range(k):
            for j in range(i + 1):
                block = W[j * d : (j + 1) * d, i * d : (i + 1) * d]
                if (i, j) in self._blocks:
                    np.multiply(self._blocks[i, j], -1.0 / n_tasks, out=block)
                else:
                    block[:] = 0.0
                for term, sign in problem.changes:
                    if term.at(i) * term.at(j) != 0.0:
                        factor = -2.0 * sign * term.at(i) * term.at(j) / n_tasks
                        block += np.multiply(term.matrix, factor, out=scratch)
        return W

    def normal_matrix(self, d: int, k: int) -> Array:
        """Return A in full. Shape (dk, dk)."""
        A = np.zeros((d * k, d * k))
        for (i, j), block in self._blocks.items():
            A[i * d : (i + 1) * d, j * d : (j + 1) * d] = block
            A[j * d : (j + 1) * d, i * d : (i + 1) * d] = block
        return A

    def normal_rhs(self, d: int, k: int, changes: Iterable[tuple[TaskTerm, float]] = ()) -> Array:
        """Return b, with some terms added (1) or taken away (-1). Shape (dk,)."""
        b = np.zeros((k, d))
        for j, values in self._rhs.items():
            b[j] = values
        for term, sign in changes:
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
        """Restore what `sums` returned."""
        parts = {name: [int(i) for i in name.split('_')[1:]] for name in named}
        self._blocks = {(at[0], at[1]): named[n] for n, at in parts.items() if len(at) == 2}
        self._rhs = {at[0]: named[n] for n, at in parts.items() if len(at) == 1}


class DiagonalSolver:
    r"""Row i of L solves :math:`(\sum_t 2 h_{ti} s_t s_t^\top / T - \lambda I) l_i = b_i / T`.

    Memory is d k^2 and the cost does not grow with the number of tasks.
    """

    form = 'diagonal'

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all tasks."""
        self._A: Array | None = None  # (d, k, k)
        self._b: Array | None = None  # (d, k)

    def add(self, term: TaskTerm) -> None:
        """Add a task."""
        self._A, self._b = self._with(len(term.s), ((term, 1.0),), len(term.model.g))

    def solve(self, L: Array, problem: Problem) -> Array:
        """Return the basis of a problem."""
        d, k = L.shape
        A, b = self._with(k, problem.changes, d)
        system = problem.ridge * np.eye(k) - A / problem.n_tasks
        try:
            return np.linalg.solve(system, -b[:, :, None] / problem.n_tasks)[:, :, 0]
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
        """Restore what `sums` returned."""
        self._A, self._b = named.get('A'), named.get('b')


def _used(s: Array) -> list[int]:
    """Return the columns a task uses."""
    return [int(j) for j in np.flatnonzero(s)]


def _pairs(s: Array) -> list[tuple[int, int]]:
    """Return the blocks (i, j), i >= j, a task with coefficients s adds to."""
    return [(i, j) for i in _used(s) for j in _used(s) if i >= j and s[i] * s[j] != 0.0]


# Conjugate gradient on the system for the basis; A is never formed.
#
# With V of shape (d, k), the product with :math:`-(A / T - \lambda I)` is
#
# .. math:: \lambda V - \frac2T \sum_t H_t (V s_t) s_t^\top
#
# so one product with each task's H is all it takes. One model per task is kept, and one product
# costs as much as there are tasks.


class IterativeSolver:
    """Preconditioned conjugate gradient, started from the present basis."""

    def __init__(self, form: str, *, tolerance: float, max_iterations: int) -> None:
        self.form = form
        self._tolerance, self._max_iterations = tolerance, max_iterations
        self.residual = 0.0
        """Relative residual the last solve ended with."""
        self.clear()

    def clear(self) -> None:
        """Forget all tasks."""
        self._terms: list[TaskTerm] = []

    def add(self, term: TaskTerm) -> None:
        """Add a task."""
        self._terms.append(term)

    def solve(self, L: Array, problem: Problem) -> Array:
        """Return the basis of a problem.

        Stops at the tolerance or after the last iteration. Every iteration raises the objective,
        so the answer is never worse than the basis it starts from.
        """
        terms = [term for term in self._terms if term is not problem.minus]
        terms += [] if problem.plus is None else [problem.plus]
        system = _System(terms, L.shape[1], problem.n_tasks, problem.ridge)
        X, self.residual = _conjugate_gradient(system, L, self._tolerance, self._max_iterations)
        return X

    def sums(self) -> dict[str, Array]:
        """Return nothing: this solver keeps terms, not sums."""
        return {}

    def sum_shapes(self, d: int, k: int) -> dict[str, tuple[int, ...]]:
        """Return nothing."""
        return {}

    def load_sums(self, named: Mapping[str, Array]) -> None:
        """Restore nothing."""


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
