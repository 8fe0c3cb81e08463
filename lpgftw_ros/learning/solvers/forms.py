"""Three ways to hold half a Hessian: every number, its diagonal, or two factors per layer.

All three are symmetric matrices of d x d that can be applied, scaled and shifted. A shift adds a
multiple of the identity, as the eigenvalue floor of the Fisher matrix does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from lpgftw_ros.errors import NonFinite
from lpgftw_ros.learning.arrays import Array, Integers, require_finite
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.local_model import kl_price
from lpgftw_ros.learning.policies import (
    Activations,
    forward,
    pad,
    PolicySnapshot,
    PolicySpec,
    split_head,
    split_theta,
    surrogate_gradient,
    with_one,
)


class SymmetricForm(Protocol):
    """A symmetric matrix, stored in some form."""

    def apply(self, v: Array) -> Array:
        """Return the product with a vector. Shape (d,)."""

    def diagonal(self) -> Array:
        """Return the diagonal. Shape (d,)."""

    def arrays(self) -> dict[str, Array]:
        """Return the numbers that make it up, by name."""


@dataclass(frozen=True, slots=True)
class DenseForm:
    """Every number."""

    matrix: Array
    """Shape (d, d)."""

    def apply(self, v: Array) -> Array:
        """Return the product with a vector."""
        return self.matrix @ v

    def diagonal(self) -> Array:
        """Return the diagonal."""
        return np.diagonal(self.matrix)

    def arrays(self) -> dict[str, Array]:
        """Return the matrix."""
        return {'H': self.matrix}


@dataclass(frozen=True, slots=True)
class DiagonalForm:
    """Only the diagonal; all else counts as zero."""

    values: Array
    """Shape (d,)."""

    def apply(self, v: Array) -> Array:
        """Return the product with a vector."""
        return self.values * v

    def diagonal(self) -> Array:
        """Return the diagonal."""
        return self.values

    def smallest(self) -> float:
        """Return the smallest eigenvalue."""
        return float(self.values.min())

    def solve(self, v: Array) -> Array:
        """Return the inverse applied to a vector."""
        return v / self.values

    def shifted(self, shift: float) -> Self:
        """Return the form with a multiple of the identity added."""
        return type(self)(self.values + shift)

    def scaled(self, factor: float) -> Self:
        """Return the form times a number."""
        return type(self)(factor * self.values)

    def arrays(self) -> dict[str, Array]:
        """Return the diagonal."""
        return {'H_diagonal': self.values}


@dataclass(frozen=True, slots=True)
class KroneckerForm:
    r"""One product :math:`G \otimes X` per layer, plus a shift; zero between layers.

    Layer i of theta is the matrix `theta[index[i]]` of shape (out, in + 1), bias last. The
    product with V of that shape is G V X + shift V.
    """

    index: tuple[Integers, ...]
    """Where each layer's matrix lies in theta. Shapes (out, in + 1)."""
    rows: tuple[Array, ...]
    """G, one per layer. Shapes (out, out)."""
    columns: tuple[Array, ...]
    """X, one per layer. Shapes (in + 1, in + 1)."""
    shift: float = 0.0

    def apply(self, v: Array) -> Array:
        """Return the product with a vector."""
        product = self.shift * v
        for at, G, X in zip(self.index, self.rows, self.columns, strict=True):
            product[at] += G @ v[at] @ X
        return product

    def diagonal(self) -> Array:
        """Return the diagonal."""
        values = np.full(sum(at.size for at in self.index), self.shift)
        for at, G, X in zip(self.index, self.rows, self.columns, strict=True):
            values[at] += np.outer(np.diagonal(G), np.diagonal(X))
        return values

    def smallest(self) -> float:
        """Return the smallest eigenvalue, for factors without negative eigenvalues."""
        factors = zip(self.rows, self.columns, strict=True)
        return self.shift + min(
            float(np.linalg.eigvalsh(G)[0] * np.linalg.eigvalsh(X)[0]) for G, X in factors
        )

    def solve(self, v: Array) -> Array:
        """Return the inverse applied to a vector, in the eigenvectors of the factors."""
        solution = np.empty_like(v)
        for at, G, X in zip(self.index, self.rows, self.columns, strict=True):
            g, U = np.linalg.eigh(G)
            x, V = np.linalg.eigh(X)
            solution[at] = U @ ((U.T @ v[at] @ V) / (np.outer(g, x) + self.shift)) @ V.T
        return solution

    def shifted(self, shift: float) -> Self:
        """Return the form with a multiple of the identity added."""
        return type(self)(self.index, self.rows, self.columns, self.shift + shift)

    def scaled(self, factor: float) -> Self:
        """Return the form times a number."""
        rows = tuple(factor * G for G in self.rows)
        return type(self)(self.index, rows, self.columns, factor * self.shift)

    def arrays(self) -> dict[str, Array]:
        """Return factors and shift."""
        named = {'H_shift': np.array([self.shift])}
        for i, (G, X) in enumerate(zip(self.rows, self.columns, strict=True)):
            named |= {f'H_rows_{i}': G, f'H_columns_{i}': X}
        return named


def layer_index(spec: PolicySpec) -> tuple[Integers, ...]:
    """Return where the matrix (out, in + 1) of each layer lies in theta, bias last."""
    everything = np.arange(spec.n_parameters)
    if not spec.hidden:
        return (everything.reshape(spec.act_dim, spec.obs_dim + 1),)
    layers, start = [], 0
    for fan_in, fan_out in zip((spec.obs_dim, spec.hidden[0]), spec.hidden, strict=True):
        weights = everything[start : start + fan_out * fan_in].reshape(fan_out, fan_in)
        biases = everything[start + fan_out * fan_in : start + fan_out * (fan_in + 1)]
        layers.append(np.column_stack((weights, biases)))
        start += fan_out * (fan_in + 1)
    return tuple(layers)


def nearest_kronecker(H: Array, index: tuple[Integers, ...], sweeps: int = 30) -> KroneckerForm:
    r"""Return the Kronecker form closest to a negative definite matrix, layer by layer.

    Power iteration for the leading term of :math:`\sum_r G_r \otimes X_r`; it starts from the
    identity, so G stays negative and X positive semi-definite. Exact if H has this form.
    """
    rows, columns = [], []
    for at in index:
        out, fan_in = at.shape
        block = H[np.ix_(at.ravel(), at.ravel())].reshape(out, fan_in, out, fan_in)
        X = np.eye(fan_in)
        for _ in range(sweeps):
            G = np.einsum('iajb,ab->ij', block, X, optimize=True)
            G /= np.linalg.norm(G)
            X = np.einsum('iajb,ij->ab', block, G, optimize=True)
            size = np.linalg.norm(X)
            X /= size
        rows.append(size * G)
        columns.append(X)
    return KroneckerForm(index, tuple(rows), tuple(columns))


# What one task adds to the system for the basis, and the interface of all its solvers.


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
        """Return the largest magnitudes it adds to A and b; finite if all its numbers are."""
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


@dataclass(frozen=True, slots=True)
class Problem:
    """What a solver is asked for: the kept terms, perhaps with one more and one less."""

    n_tasks: int
    ridge: float
    """Subtracted from the diagonal of A / T; a column without tasks becomes zero."""
    plus: TaskTerm | None = None
    minus: TaskTerm | None = None

    @property
    def changes(self) -> list[tuple[TaskTerm, float]]:
        """The terms that come and go, with their signs."""
        signed = ((self.minus, -1.0), (self.plus, 1.0))
        return [(term, sign) for term, sign in signed if term is not None]


class BasisSolver(Protocol):
    r"""Solves :math:`(A / T - \lambda I)\,\mathrm{vec}(L) = b / T` for the sum of some terms."""

    form: str
    """The form of H it works with: dense, diagonal or kronecker."""

    def add(self, term: TaskTerm) -> None:
        """Add a task."""

    def clear(self) -> None:
        """Forget all tasks."""

    def solve(self, L: Array, problem: Problem) -> Array:
        """Return the basis of a problem; changes nothing.

        `L` gives the shape of the answer and is where an iterative solver starts.
        """

    def sums(self) -> dict[str, Array]:
        """Return the summed terms as named arrays."""

    def sum_shapes(self, d: int, k: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays `sums` may return."""

    def load_sums(self, named: Mapping[str, Array]) -> None:
        """Restore what `sums` returned."""


def rebuild(solver: BasisSolver, terms: Iterable[TaskTerm]) -> None:
    """Let a solver forget everything, then add these terms in this order."""
    solver.clear()
    for term in terms:
        solver.add(term)


# Local models whose curvature is never a d x d matrix.
#
# Layer by layer, with inputs :math:`\tilde x` (a one appended) and :math:`\delta_a` the derivative
# of mean action a by the layer's pre-activations, the Fisher information of a layer is
#
# .. math:: F = E\big[\textstyle\sum_a \sigma_a^{-2}\, \delta_a \delta_a^\top \otimes
#           \tilde x \tilde x^\top\big]
#
# Its diagonal is exact. The Kronecker form averages both factors separately, which is
# exact for a linear policy. Both lead to :math:`H = -\frac12 \sqrt{g^\top \tilde F^{-1} g /
# \delta}\, \tilde F` as the dense model does.


def factored_model(
    policy: PolicySnapshot,
    obs: Array,
    actions: Array,
    advantages: Array,
    config: TrainingConfig,
    form: str,
) -> TaskModel:
    """Build the model of a task at its policy, its curvature diagonal or Kronecker-factored."""
    at = forward(policy, obs)
    g = surrogate_gradient(policy, at, actions, advantages).theta
    require_finite('the gradient of the local model', g)
    F = diagonal_fisher(policy, at) if form == 'diagonal' else kronecker_fisher(policy, at)
    F = F.shifted(max(0.0, config.fisher_floor - F.smallest()))
    price = kl_price(float(g @ F.solve(g)), config)
    return TaskModel(policy.theta, g, F.scaled(-0.5 * price))


def diagonal_fisher(policy: PolicySnapshot, at: Activations) -> DiagonalForm:
    """Return the diagonal of the Fisher information over theta."""
    values = np.empty(policy.spec.n_parameters)
    layers = zip(layer_index(policy.spec), _layers(policy, at), strict=True)
    for index, (delta, x) in layers:
        values[index] = np.einsum('mao,mao->mo', delta, delta).T @ (x * x) / len(x)
    return DiagonalForm(values)


def kronecker_fisher(policy: PolicySnapshot, at: Activations) -> KroneckerForm:
    """Return the Fisher information over theta, both factors averaged separately."""
    rows, columns = [], []
    for delta, x in _layers(policy, at):
        flat = delta.reshape(-1, delta.shape[2])
        rows.append(flat.T @ flat / len(x))
        columns.append(x.T @ x / len(x))
    return KroneckerForm(layer_index(policy.spec), tuple(rows), tuple(columns))


def _layers(policy: PolicySnapshot, at: Activations) -> list[tuple[Array, Array]]:
    """Return delta / sigma and the inputs with a one, per layer.

    Shapes (n_steps, act_dim, out) and (n_steps, in + 1).
    """
    scale = np.exp(-policy.log_std)
    if not policy.spec.hidden:
        delta = np.broadcast_to(np.diag(scale), (len(at.obs), len(scale), len(scale)))
        return [(delta, with_one(at.obs))]
    _, _, W1, _ = split_theta(policy.spec, policy.theta)
    W2, _ = split_head(policy.spec, policy.head)
    d2 = (scale[:, None] * W2) * at.slopes[1][:, None, :]
    d1 = (d2 @ W1) * at.slopes[0][:, None, :]
    return [(d1, with_one(at.obs)), (d2, with_one(at.hidden[0]))]
