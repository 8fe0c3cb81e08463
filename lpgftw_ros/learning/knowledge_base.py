r"""The shared basis L and what determines it: S, A and b.

.. math::
    A = \sum_t 2\,(s_t s_t^\top) \otimes H_t, \qquad
    b = \sum_t s_t \otimes (2 H_t \alpha_t - g_t), \qquad
    (A / T - \lambda I)\,\mathrm{vec}(L) = b / T

vec stacks columns. Every change is computed and checked before it is stored, so an error leaves
the knowledge base unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lpgftw_ros.errors import LearnerMisuse, UnknownName, WrongShape
from lpgftw_ros.learning.arrays import Array, require_finite, require_shape
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import pad, PolicySpec
from lpgftw_ros.learning.solvers import (
    BasisSolver,
    Problem,
    rebuild,
    TaskModel,
    TaskTerm,
    with_form,
)

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


class KnowledgeBase:
    """L, S, A and b of all finished tasks."""

    def __init__(self, spec: PolicySpec, solver: BasisSolver, rules: BasisRules) -> None:
        self.spec, self.rules = spec, rules
        self.solver = solver
        self.basis: Array = np.zeros((spec.n_parameters, 0))
        """L. Shape (d, k); replaced by an update, never changed in place."""
        self._coefficients: dict[str, Array] = {}
        self.terms: dict[str, TaskTerm] = {}
        """Kept terms by task: s and the local model."""
        self.provisional: tuple[str, Array] | None = None
        """The task whose terms are in L for now, and L without them."""

    @property
    def n_columns(self) -> int:
        """Columns L has now."""
        return int(self.basis.shape[1])

    @property
    def tasks(self) -> tuple[str, ...]:
        """Finished tasks, in the order they were first finished."""
        return tuple(self._coefficients)

    def coefficients(self, task: str) -> Array:
        """Return s of a finished task; columns beyond its length count as zero."""
        if task not in self._coefficients:
            raise UnknownName('finished task', task, self._coefficients)
        return self._coefficients[task]

    def first_coefficients(self, rule: str = 'mean') -> Array:
        """Return the initial s of a new task. Shape (k,).

        It is the mean of all s, or the s of the task that joined last. Without tasks every column
        has the same weight.
        """
        k = self.n_columns
        S = [pad(s, k) for s in self._coefficients.values()]
        if not S:
            return np.full(k, 1.0 / max(k, 1))
        return S[-1] if rule == 'latest' else np.mean(S, axis=0)

    def add(
        self, task: str, s: Array, model: LocalModel | TaskModel, residual: Array | None = None
    ) -> Array:
        """Fold in a finished task and solve for L; return its s.

        A `residual` first becomes a new column of L; if the task is the only one, it replaces the
        column the task had. A task that was folded in before is replaced: its old terms leave A
        and b as the new ones enter.
        """
        basis = self.basis if self.tasks != (task,) else self.basis[:, : len(s)]
        if residual is not None:
            require_finite('residual', residual)
            basis, s = grow(basis, s, residual)
        term, old = self._term(s, model, basis.shape[1]), self._old_term(task)
        n_tasks = len(self._coefficients) + (task not in self._coefficients)
        if self.rules.updates(n_tasks):
            basis = self._solve(basis, n_tasks, plus=term, minus=old)
        self._enter(task, term, replaces=old is not None)
        self._take(basis)
        return term.s

    def try_out(self, task: str, s: Array, model: LocalModel | TaskModel) -> bool:
        """Solve for L with the present terms of a task in training, keeping A and b.

        They replace any earlier terms of this task. Returns whether L was solved for; `take_back`
        undoes it.
        """
        n_tasks = len(self._coefficients) + (task not in self._coefficients)
        if not self.rules.updates(n_tasks) or self.n_columns == 0:
            return False
        term = self._term(s, model, self.n_columns)
        basis = self._solve(self.basis, n_tasks, plus=term, minus=self._old_term(task))
        before = self.basis if self.provisional is None else self.provisional[1]
        self._take(basis)
        self.provisional = (task, before)
        return True

    def take_back(self, task: str) -> bool:
        """Undo what `try_out` of this task did to L; return whether anything had to be undone.

        A later update has undone it already, since it was solved without these terms.
        """
        if self.provisional is None or self.provisional[0] != task:
            return False
        self._take(self.provisional[1])
        return True

    def remove(self, task: str) -> None:
        """Take a task's terms out of A and b and solve for L without them."""
        self.coefficients(task)
        old, n_tasks = self._old_term(task), len(self._coefficients) - 1
        basis = self.basis if self.provisional is None else self.provisional[1]
        if self.rules.updates(n_tasks):
            basis = self._solve(basis, n_tasks, minus=old)
        del self._coefficients[task], self.terms[task]
        rebuild(self.solver, self.terms.values())
        self._take(basis)

    def move_to(self, basis: Array) -> None:
        """Use another L than the one solved for, until the next update solves for it again."""
        require_shape('the basis', basis, self.basis.shape)
        require_finite('the basis', basis)
        self._take(basis)

    def exchange(self, task: str, s: Array, model: LocalModel | TaskModel) -> None:
        """Replace a finished task's terms in A and b; L stays until the next update."""
        self.coefficients(task)
        self.require_model(task)
        self._enter(task, self._term(s, model, self.n_columns), replaces=True)

    def clear_columns(self) -> None:
        """Drop all columns; there must be no finished tasks."""
        if self._coefficients:
            raise LearnerMisuse('the basis is in use by finished tasks')
        self._take(np.zeros((self.spec.n_parameters, 0)))

    def require_model(self, task: str) -> None:
        """Raise unless the task's terms can be taken out of A and b."""
        if task not in self.terms:
            raise LearnerMisuse(
                f"'{task}' is part of the basis for good: its local model was not kept "
                '(keep_local_models is false)'
            )

    def restore(
        self,
        basis: Array,
        coefficients: Mapping[str, Array],
        models: Mapping[str, TaskModel],
        sums: Mapping[str, Array],
        provisional: tuple[str, Array] | None,
    ) -> None:
        """Restore a saved knowledge base; A and b are summed again, or restored too."""
        self._coefficients = dict(coefficients)
        self.terms = {task: TaskTerm(coefficients[task], models[task]) for task in models}
        if self.rules.keep_local_models:
            rebuild(self.solver, self.terms.values())
        else:
            self.solver.load_sums(sums)
        self.basis, self.provisional = basis, provisional

    def _term(self, s: Array, model: LocalModel | TaskModel, k: int) -> TaskTerm:
        """Return checked terms of a task, the curvature in the solver's form."""
        if len(s) > k:
            raise WrongShape(f'a task has {len(s)} coefficients but L has {k} columns')
        require_shape('alpha', model.alpha, (self.spec.n_parameters,))
        if isinstance(model, LocalModel):
            model = with_form(model, self.solver.form, self.spec)
        term = TaskTerm(s.copy(), model)
        require_finite('what the task adds to A and b', term.extent())
        return term

    def _old_term(self, task: str) -> TaskTerm | None:
        """Return the terms the task has in A and b, if any."""
        if task in self._coefficients:
            self.require_model(task)
        return self.terms.get(task)

    def _solve(
        self, L: Array, n_tasks: int, plus: TaskTerm | None = None, minus: TaskTerm | None = None
    ) -> Array:
        basis = self.solver.solve(L, Problem(n_tasks, self.rules.ridge, plus, minus))
        require_finite('the solution for the basis', basis)
        return basis

    def _enter(self, task: str, term: TaskTerm, *, replaces: bool) -> None:
        """Add terms to A and b; after a replacement both are summed again in task order.

        So their last bits depend on the terms alone, not on the history.
        """
        self._coefficients[task] = term.s
        if self.rules.keep_local_models:
            self.terms[task] = term
        if replaces:
            rebuild(self.solver, self.terms.values())
        else:
            self.solver.add(term)

    def _take(self, basis: Array) -> None:
        self.basis, self.provisional = basis, None


def grow(basis: Array, s: Array, residual: Array) -> tuple[Array, Array]:
    r"""Append the residual as a column, scaled to the mean length of the others.

    With :math:`e = \|\epsilon\|` and the mean column norm :math:`\bar c`, the column is
    :math:`\epsilon \bar c / e` and its coefficient :math:`e / \bar c`, so that the new L s equals
    the old L s + residual. The first column is not scaled; a zero residual adds no column.
    """
    if basis.shape[1] == 0:
        return residual[:, None].copy(), np.ones(1)
    e = float(np.linalg.norm(residual))
    if e == 0.0:
        return basis, s
    length = float(np.mean(np.linalg.norm(basis, axis=0))) or e
    grown = np.append(pad(s, basis.shape[1]), e / length)
    return np.column_stack((basis, residual * (length / e))), grown
