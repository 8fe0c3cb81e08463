r"""PG-ELLA: fit the basis to policies that single-task learning has found.

For task t with STL parameters :math:`\theta_t` and curvature :math:`D_t = -H_t`,

.. math::
    s_t = \arg\min_s \tfrac1{2d} \|\theta_t - L s\|^2_{D_t} + \mu \|s\|_1, \qquad
    L = \arg\min_L \tfrac1T \sum_t \|\theta_t - L s_t\|^2_{D_t} + \lambda \|L\|^2

where the first k tasks get a column each (:math:`s_t = e_t`). Nothing is trained here: heads and
sigma come from STL.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lpgftw_ros.errors import InvalidConfig, LearnerMisuse, UnknownName
from lpgftw_ros.learning.arrays import Array, Batch, require_finite
from lpgftw_ros.learning.config import setting, TrainingConfig
from lpgftw_ros.learning.learner import StatePart, StepReport
from lpgftw_ros.learning.lifetime import LifelongLearner, TaskRun
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec, TaskFactors
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.serialise import (
    AnyArray,
    model_arrays,
    pack_names,
    read_factors,
    read_model,
    StateReader,
)
from lpgftw_ros.learning.solvers import make_solver, Problem, rebuild, TaskModel, TaskTerm
from lpgftw_ros.learning.solvers.forms import DenseForm
from lpgftw_ros.learning.values import discounted_returns, value_features, whitened_advantages

FREE = '/'
"""Owner of a column whose task was forgotten; no task can have this name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PgEllaConfig(TrainingConfig):
    """Settings of PG-ELLA."""

    max_columns: int = setting(5, 'columns of the basis (k)', min=1, max=1000)
    sparsity: float = setting(1e-5, 'L1 weight on s in the lasso (mu)', min=0.0, max=1e3)
    ridge: float = setting(1e-5, 'weight of |L|^2 in the system for L', min=1e-12, max=1e3)

    def __post_init__(self) -> None:
        """Reject values outside their range, and observations its policies were not made for."""
        TrainingConfig.__post_init__(self)
        if self.normalise:
            raise InvalidConfig('pg-ella takes finished policies as they are: no normalise')


class PgElla(LifelongLearner):
    """Fit a basis to finished STL policies, one after another."""

    name = 'pg-ella'
    _config: PgEllaConfig

    def __init__(
        self,
        spec: PolicySpec,
        config: PgEllaConfig,
        seed: int,
        source: Mapping[str, PolicySnapshot],
    ) -> None:
        super().__init__(spec, config, seed)
        for task, policy in source.items():
            if policy.spec != spec:
                raise InvalidConfig(f"the STL policy of '{task}' has another shape than {spec}")
        self._source = dict(source)
        self._columns: Array = np.zeros((spec.n_parameters, 0))
        self._owners: list[str] = []
        self._models: dict[str, LocalModel] = {}
        self._solver = make_solver('dense')

    def improve(self, batch: Batch) -> StepReport:
        """Refuse: the policies come from STL."""
        raise LearnerMisuse('pg-ella does not train: finish the task to fold in its STL policy')

    def _basis(self) -> Array:
        return self._columns

    def _first_factors(self, task: str, seed: int) -> TaskFactors:
        if task not in self._source:
            raise UnknownName('finished STL policy for task', task, self._source)
        return self._revisit_factors(task)

    def _revisit_factors(self, task: str) -> TaskFactors:
        policy = self._source[task]
        return TaskFactors(np.zeros(0), policy.theta, policy.head, policy.log_std)

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        """Find s, then solve for L with the task's terms in place of its old ones."""
        model = self._local_model(run, batch)
        L, owners, s = self._coefficients(run.task, model)
        term, old = _term(s, model), self._old_term(run.task)
        n_tasks = len(self._models) + (old is None)
        ridge = self._config.ridge
        L = self._solver.solve(L, Problem(n_tasks, ridge, term, old))
        require_finite('the solution for the basis', L)
        self._columns, self._owners = L, owners
        self._models[run.task] = model
        if old is None:
            self._solver.add(term)
        else:
            self._rebuild({run.task: s})
        no_residual = np.zeros(self._spec.n_parameters)
        return replace(run.factors, coefficients=s, residual=no_residual)

    def _local_model(self, run: TaskRun, batch: Batch) -> LocalModel:
        """Build alpha, g and H at the STL policy, from its own trajectories.

        A policy of STL comes without its value function, so a new one is fitted to the same batch.
        """
        config, values = self._config, run.values.copy()
        values.fit(
            value_features(batch.observations, batch.step_in_trajectory),
            discounted_returns(batch, config.gamma),
            generator(run.seed, Purpose.VALUE_FIT, 0),
            epochs=config.value_epochs,
            learning_rate=config.value_learning_rate,
        )
        advantages = whitened_advantages(values, batch, config, config.model_gae_lambda)
        data = (self._running_policy(), batch.observations, batch.actions, advantages)
        return self._base_learner.local_model(*data)

    def _coefficients(self, task: str, model: LocalModel) -> tuple[Array, list[str], Array]:
        """Return the basis to start from, the owner of each column, and s."""
        L, owners, theta = self._columns, list(self._owners), model.alpha
        if task not in owners and FREE in owners:
            owners[owners.index(FREE)] = task
        elif task not in owners and len(owners) < self._config.max_columns:
            owners.append(task)
            L = np.column_stack((L, theta))
        if task in owners:
            return L, owners, np.eye(len(owners))[owners.index(task)]
        D_L = -(model.H @ L)
        # the published lasso has 1/(2d) before the squares
        s = lasso(L.T @ D_L, D_L.T @ theta, len(theta) * self._config.sparsity)
        return L, owners, s

    def _old_term(self, task: str) -> TaskTerm | None:
        """Return the task's term in the system for L, if any."""
        if task not in self._models:
            return None
        return _term(self._finished[task].factors.coefficients, self._models[task])

    def _rebuild(self, changed: dict[str, Array]) -> None:
        """Sum the terms of all tasks again, in order, some with a new s."""
        S = {t: done.factors.coefficients for t, done in self._finished.items()} | changed
        rebuild(self._solver, (_term(S[task], model) for task, model in self._models.items()))

    def _drop(self, task: str) -> None:
        """Solve for L without the task; a column of its own is free again."""
        old, n_tasks = self._old_term(task), len(self._models) - 1
        L: Array = np.zeros((self._spec.n_parameters, 0))
        if n_tasks:
            ridge = self._config.ridge
            L = self._solver.solve(self._columns, Problem(n_tasks, ridge, minus=old))
        del self._models[task]
        owners = [FREE if owner == task else owner for owner in self._owners]
        self._columns, self._owners = L, owners if n_tasks else []
        self._rebuild({})

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        state: dict[str, AnyArray] = {}
        if 'base' in parts:
            state['base/owners'] = pack_names(self._owners)
        if 'models' in parts:
            for task, model in self._models.items():
                state |= model_arrays(task, model)
        return state

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        d = self._spec.n_parameters
        self._owners = reader.names('base/owners')
        self._columns = reader.floats('base/basis', d, len(self._owners))
        self._models = {task: read_model(reader, task, d) for task in finished}
        self._solver = make_solver('dense')
        for task, model in self._models.items():
            factors = read_factors(reader, f'base/task/{task}', self._spec, len(self._owners))
            self._solver.add(_term(factors.coefficients, model))


def _term(s: Array, model: LocalModel) -> TaskTerm:
    """Return a task's term of the system for L: (s s') kron D and s kron (D theta)."""
    half = DenseForm(0.5 * model.H)
    return TaskTerm(s, TaskModel(model.alpha, np.zeros_like(model.g), half))


def lasso(
    G: Array, c: Array, weight: float, *, tolerance: float = 1e-12, max_sweeps: int = 10_000
) -> Array:
    r"""Return the s that minimises :math:`\frac12 s^\top G s - c^\top s + w \|s\|_1`.

    Each coordinate has a closed form: soft-threshold the residual of the others. At
    the solution :math:`|c - G s|_j \le w`, with equality and the sign of :math:`s_j` where that
    is not zero.
    """
    s = np.zeros_like(c)
    used = np.flatnonzero(np.diagonal(G) > 0.0)
    for _ in range(max_sweeps):
        largest = 0.0
        for j in used:
            left = c[j] - G[j] @ s + G[j, j] * s[j]
            new = np.sign(left) * max(abs(left) - weight, 0.0) / G[j, j]
            largest = max(largest, abs(new - s[j]) * np.sqrt(G[j, j]))
            s[j] = new
        if largest <= tolerance * (1.0 + np.abs(c).max()):
            break
    return s
