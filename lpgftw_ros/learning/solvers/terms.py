"""What one task adds to the system for the basis, and the interface of all its solvers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array, require_finite
from lpgftw_ros.learning.basis import pad
from lpgftw_ros.learning.solvers.forms import DenseForm, SymmetricForm


@dataclass(frozen=True, slots=True)
class TaskModel:
    """Quadratic model of one task's return, its curvature in the form the solver uses."""

    alpha: Array
    """Tuned parameters, the expansion point. Shape (d,)."""
    g: Array
    """Gradient of the return at `alpha`. Shape (d,)."""
    H: SymmetricForm
    """Half the Hessian at `alpha`, negative definite."""

    def __post_init__(self) -> None:
        """Check finiteness before anything is built on the model."""
        require_finite('alpha', self.alpha)
        require_finite('g', self.g)
        for name, array in self.H.arrays().items():
            require_finite(name, array)
        if np.max(self.H.diagonal()) >= 0.0:
            raise NonFinite('the local model has no maximum: H is not negative definite')

    def value(self, theta: Array) -> float:
        """Return g'(theta - alpha) + (theta - alpha)' H (theta - alpha)."""
        step = theta - self.alpha
        return float(self.g @ step + step @ self.H.apply(step))


@dataclass(frozen=True, slots=True)
class TaskTerm:
    """One task in the system for the basis."""

    s: Array
    """Coefficients; columns beyond its length count as zero. Shape (<= k,)."""
    model: TaskModel

    def at(self, column: int) -> float:
        """Return the coefficient of a column."""
        return float(self.s[column]) if column < len(self.s) else 0.0

    def padded(self, k: int) -> Array:
        """Return s with a zero for every column beyond its length. Shape (k,)."""
        return pad(self.s, k)

    def extent(self) -> Array:
        """Return the sizes of the largest numbers it adds to A and b; finite if all are."""
        with np.errstate(over='ignore', invalid='ignore'):
            largest = np.max(self.s * self.s, initial=0.0) + 0.0 * np.sum(self.s)
            in_A = 2.0 * largest * np.max(np.abs(self.model.H.diagonal()))
            return np.array([in_A, np.sqrt(largest) * np.max(np.abs(self.pull))])

    @property
    def pull(self) -> Array:
        """2 H alpha - g, what the task wants of b. Shape (d,)."""
        return 2.0 * self.model.H.apply(self.model.alpha) - self.model.g

    @property
    def matrix(self) -> Array:
        """H as a full matrix; only for the dense form. Shape (d, d)."""
        assert isinstance(self.model.H, DenseForm)
        return self.model.H.matrix


class BasisSolver(Protocol):
    r"""Solves :math:`(A / T - \lambda I)\,\mathrm{vec}(L) = b / T` for the sum of some terms."""

    form: str
    """The form of H it works with: dense, diagonal or kronecker."""

    def add(self, term: TaskTerm) -> None:
        """Add a task."""

    def rebuild(self, terms: Iterable[TaskTerm]) -> None:
        """Forget everything and add these terms in this order."""

    def solve(
        self,
        L: Array,
        *,
        n_tasks: int,
        ridge: float,
        plus: TaskTerm | None = None,
        minus: TaskTerm | None = None,
    ) -> Array:
        """Return the basis for the kept terms, with one more and one less; changes nothing.

        `L` gives the shape of the answer and is where an iterative solver starts.
        """

    def sums(self) -> dict[str, Array]:
        """Return the summed terms as named arrays."""

    def sum_shapes(self, d: int, k: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays `sums` may return."""

    def load_sums(self, named: Mapping[str, Array]) -> None:
        """Take up what `sums` returned."""
