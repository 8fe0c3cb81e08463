r"""The shared basis L and everything that decides it: S, A and b.

.. math::
    A = \sum_t 2\,(s_t s_t^\top) \otimes H_t, \qquad
    b = \sum_t s_t \otimes (2 H_t \alpha_t - g_t), \qquad
    (A / T - \lambda I)\,\mathrm{vec}(L) = b / T

vec stacks columns. Every change is prepared aside and checked; only then it is taken over, so an
error leaves the knowledge base as it was.
"""

from collections.abc import Mapping

import numpy as np

from lpgftw_ros.errors import LearnerMisuse, UnknownName, WrongShape
from lpgftw_ros.learning.arrays import Array, require_finite, require_shape
from lpgftw_ros.learning.basis import BasisRules, grow, pad
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.learning.solvers import BasisSolver, TaskModel, TaskTerm, with_form


class KnowledgeBase:
    """L, S, A and b of all finished tasks."""

    def __init__(self, spec: PolicySpec, solver: BasisSolver, rules: BasisRules) -> None:
        self.spec, self.rules = spec, rules
        self.solver = solver
        self._basis: Array = np.zeros((spec.n_parameters, 0))
        self._coefficients: dict[str, Array] = {}
        self._terms: dict[str, TaskTerm] = {}
        self._provisional: tuple[str, Array] | None = None

    @property
    def basis(self) -> Array:
        """L. Shape (d, k); never changed in place."""
        return self._basis

    @property
    def n_columns(self) -> int:
        """Columns L has now."""
        return int(self._basis.shape[1])

    @property
    def tasks(self) -> tuple[str, ...]:
        """Finished tasks, in the order they were first finished."""
        return tuple(self._coefficients)

    @property
    def terms(self) -> Mapping[str, TaskTerm]:
        """The terms kept, by task: s and the local model."""
        return self._terms

    def coefficients(self, task: str) -> Array:
        """Return s of a finished task; columns beyond its length count as zero."""
        if task not in self._coefficients:
            raise UnknownName('finished task', task, self._coefficients)
        return self._coefficients[task]

    def first_coefficients(self, rule: str = 'mean') -> Array:
        """Return where s of a new task starts. Shape (k,).

        That is the mean of all s, or the latest: that of the task which joined last. Without
        tasks it is the mean of all columns.
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

        With a `residual` L first grows by that column; the column of a task that is alone is its
        own and makes room for it. A task that was there before is replaced: its old terms leave
        A and b as the new ones enter.
        """
        basis = self._basis if self.tasks != (task,) else self._basis[:, : len(s)]
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

        The terms count in place of those the task may have from before. Returns whether L was
        solved for; `take_back` undoes it.
        """
        n_tasks = len(self._coefficients) + (task not in self._coefficients)
        if not self.rules.updates(n_tasks) or self.n_columns == 0:
            return False
        term = self._term(s, model, self.n_columns)
        basis = self._solve(self._basis, n_tasks, plus=term, minus=self._old_term(task))
        before = self._basis if self._provisional is None else self._provisional[1]
        self._take(basis)
        self._provisional = (task, before)
        return True

    def take_back(self, task: str) -> bool:
        """Undo what `try_out` of this task did to L; return whether anything had to be undone.

        Another update since then has undone it already: it was solved without these terms.
        """
        if self._provisional is None or self._provisional[0] != task:
            return False
        self._take(self._provisional[1])
        return True

    def remove(self, task: str) -> None:
        """Take a task's terms out of A and b and solve for L without them."""
        self.coefficients(task)
        old, n_tasks = self._old_term(task), len(self._coefficients) - 1
        basis = self._basis if self._provisional is None else self._provisional[1]
        if self.rules.updates(n_tasks):
            basis = self._solve(basis, n_tasks, minus=old)
        del self._coefficients[task], self._terms[task]
        self.solver.rebuild(self._terms.values())
        self._take(basis)

    @property
    def provisional(self) -> tuple[str, Array] | None:
        """The task whose terms L was last tried out with, and L without them."""
        return self._provisional

    def clear_columns(self) -> None:
        """Drop all columns; only a knowledge base without tasks may."""
        if self._coefficients:
            raise LearnerMisuse('the basis is in use by finished tasks')
        self._take(np.zeros((self.spec.n_parameters, 0)))

    def require_model(self, task: str) -> None:
        """Raise unless the task's terms can be taken out of A and b."""
        if task not in self._terms:
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
        """Take up a saved knowledge base; A and b are summed anew, or taken as they are."""
        self._coefficients = dict(coefficients)
        self._terms = {task: TaskTerm(coefficients[task], models[task]) for task in models}
        if self.rules.keep_local_models:
            self.solver.rebuild(self._terms.values())
        else:
            self.solver.load_sums(sums)
        self._basis, self._provisional = basis, provisional

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
        """Return what the task has in A and b, if anything."""
        if task in self._coefficients:
            self.require_model(task)
        return self._terms.get(task)

    def _solve(
        self, L: Array, n_tasks: int, plus: TaskTerm | None = None, minus: TaskTerm | None = None
    ) -> Array:
        ridge = self.rules.ridge
        basis = self.solver.solve(L, n_tasks=n_tasks, ridge=ridge, plus=plus, minus=minus)
        require_finite('the solution for the basis', basis)
        return basis

    def _enter(self, task: str, term: TaskTerm, *, replaces: bool) -> None:
        """Enter terms into A and b; after a replacement both are summed anew in task order.

        So their last bits depend on which terms there are, never on how they came to be there.
        """
        self._coefficients[task] = term.s
        if self.rules.keep_local_models:
            self._terms[task] = term
        if replaces:
            self.solver.rebuild(self._terms.values())
        else:
            self.solver.add(term)

    def _take(self, basis: Array) -> None:
        self._basis, self._provisional = basis, None
