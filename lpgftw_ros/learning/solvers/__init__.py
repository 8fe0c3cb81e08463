r"""Solvers of :math:`(A / T - \lambda I)\,\mathrm{vec}(L) = b / T`, behind one interface.

=========== ============================ ======================= ===========================
name        curvature H of a task        memory                  cost of an update
=========== ============================ ======================= ===========================
dense       every number                 (d k)^2                 one Cholesky, any T
diagonal    its diagonal                 d k^2                   d small systems, any T
cg          every number                 T d^2                   iterations x T d^2
kronecker   two factors per layer        T x factors             iterations x T x factors
=========== ============================ ======================= ===========================
"""

from collections.abc import Callable

import numpy as np

from lpgftw_ros.errors import UnknownName
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.learning.solvers.direct import DenseSolver, DiagonalSolver, IterativeSolver
from lpgftw_ros.learning.solvers.forms import (
    BasisSolver,
    DenseForm,
    DiagonalForm,
    layer_index,
    nearest_kronecker,
    Problem,
    rebuild,
    SymmetricForm,
    TaskModel,
    TaskTerm,
)

SOLVERS = ('dense', 'cg', 'diagonal', 'kronecker')

__all__ = [
    'SOLVERS',
    'BasisSolver',
    'Problem',
    'SymmetricForm',
    'TaskModel',
    'TaskTerm',
    'make_solver',
    'rebuild',
    'with_form',
]


def make_solver(name: str, *, tolerance: float = 1e-10, max_iterations: int = 2000) -> BasisSolver:
    """Return an empty solver; the limits apply to the iterative ones only."""
    makers: dict[str, Callable[[], BasisSolver]] = {
        'dense': DenseSolver,
        'diagonal': DiagonalSolver,
        'cg': lambda: IterativeSolver('dense', tolerance=tolerance, max_iterations=max_iterations),
        'kronecker': lambda: IterativeSolver(
            'kronecker', tolerance=tolerance, max_iterations=max_iterations
        ),
    }
    if name not in makers:
        raise UnknownName('solver', name, makers)
    return makers[name]()


def with_form(model: LocalModel, form: str, spec: PolicySpec) -> TaskModel:
    """Return a local model with its curvature in another form, the nearest possible."""
    H: SymmetricForm
    if form == 'diagonal':
        H = DiagonalForm(model.H.diagonal().copy())
    elif form == 'kronecker':
        H = nearest_kronecker(model.H, layer_index(spec))
    else:
        H = DenseForm(np.ascontiguousarray(0.5 * (model.H + model.H.T)))
    return TaskModel(model.alpha, model.g, H)
