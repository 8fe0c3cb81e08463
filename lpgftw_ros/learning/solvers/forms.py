"""Three ways to hold half a Hessian: every number, its diagonal, or two factors per layer.

All three are symmetric matrices of d x d that can be applied, scaled and shifted. A shift adds a
multiple of the identity, as the eigenvalue floor of the Fisher matrix does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from lpgftw_ros.learning.arrays import Array, Integers
from lpgftw_ros.learning.policies import PolicySpec


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


def form_shapes(form: str, spec: PolicySpec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays a form is made of."""
    d = spec.n_parameters
    if form == 'dense':
        return {'H': (d, d)}
    if form == 'diagonal':
        return {'H_diagonal': (d,)}
    shapes: dict[str, tuple[int, ...]] = {'H_shift': (1,)}
    for i, at in enumerate(layer_index(spec)):
        shapes |= {f'H_rows_{i}': (at.shape[0],) * 2, f'H_columns_{i}': (at.shape[1],) * 2}
    return shapes


def form_from_arrays(form: str, arrays: Mapping[str, Array], spec: PolicySpec) -> SymmetricForm:
    """Return the form whose `arrays` these are."""
    if form == 'dense':
        return DenseForm(arrays['H'])
    if form == 'diagonal':
        return DiagonalForm(arrays['H_diagonal'])
    index = layer_index(spec)
    rows = tuple(arrays[f'H_rows_{i}'] for i in range(len(index)))
    columns = tuple(arrays[f'H_columns_{i}'] for i in range(len(index)))
    return KroneckerForm(index, rows, columns, float(arrays['H_shift'][0]))
