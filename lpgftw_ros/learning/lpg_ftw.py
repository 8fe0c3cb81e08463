r"""LPG-FTW: lifelong policy gradients for faster training without forgetting.

Every policy is :math:`\theta_t = L s_t`. A new task moves only its coefficients s and its own head
and log sigma. While columns may still be added it also learns a residual, :math:`\theta = L s +
\epsilon`, which becomes a column (Algorithm 2). When the task is learned, its local quadratic
model goes into the knowledge base and L is solved for (Algorithm 1).

========================= ====================== ================ ==============================
T (tasks, this one too)   s starts as            residual starts  a step moves
========================= ====================== ================ ==============================
1                         none                   the first column residual
2 ... k                   mean of all earlier s  0; MLP: random   s, residual
k + 1 ...                 mean of all earlier s  0, fixed         s
========================= ====================== ================ ==============================

With the setting `coefficient_start: latest` s starts as that of the task that joined last.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lpgftw_ros.errors import InvalidConfig, LearnerMisuse
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.config import setting, TrainingConfig
from lpgftw_ros.learning.knowledge_base import BasisRules, KnowledgeBase
from lpgftw_ros.learning.learner import StatePart
from lpgftw_ros.learning.lifetime import LifelongLearner, TaskRun
from lpgftw_ros.learning.policies import (
    Activations,
    initial_head,
    initial_theta,
    pad,
    PolicySnapshot,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.serialise import (
    AnyArray,
    knowledge_state,
    pack_names,
    read_knowledge,
    StateReader,
)
from lpgftw_ros.learning.solvers import make_solver, SOLVERS, TaskModel
from lpgftw_ros.learning.steps import Coordinates, Move, with_decay, with_sparsity


@dataclass(frozen=True, kw_only=True, slots=True)
class LpgFtwConfig(TrainingConfig):
    """Settings of LPG-FTW; the defaults are the published code, `PAPER` the text."""

    max_columns: int = setting(5, 'most columns of the shared basis (k)', min=1, max=10_000)
    sparsity: float = setting(1e-5, 'weight of the 1-norm of s (mu)', min=0.0, max=1e3)
    ridge: float = setting(1e-5, 'subtracted from the diagonal of A / T', min=1e-12, max=1e3)
    residual_penalty: float = setting(
        0.0, 'weight of the squared residual while a column is learned', min=0.0, max=1e3
    )
    coefficient_start: Literal['mean', 'latest'] = setting(
        'mean',
        'initial s of a new task: mean of all earlier s, or the latest one',
        choices=('mean', 'latest'),
    )
    update_every: int = setting(
        0, 'iterations between updates of the basis (M); 0: at the end of a task', min=0
    )
    update_from: Literal['second', 'after_columns'] = setting(
        'second',
        'first task after which the basis is solved for',
        choices=('second', 'after_columns'),
    )
    solver: Literal['dense', 'cg', 'diagonal', 'kronecker'] = setting(
        'dense', 'how the basis is solved for', choices=SOLVERS
    )
    solver_tolerance: float = setting(
        1e-10, 'relative residual at which an iterative solver stops', min=1e-15, max=1e-2
    )
    solver_iterations: int = setting(2000, 'most iterations of such a solver', min=1)
    keep_local_models: bool = setting(
        True, 'keep the local model of each task, so that it can be learned again'
    )

    def __post_init__(self) -> None:
        """Reject values outside their range, and solvers without the models they need."""
        TrainingConfig.__post_init__(self)
        if not self.keep_local_models and self.solver in ('cg', 'kronecker'):
            raise InvalidConfig(f"solver '{self.solver}' needs keep_local_models to be true")


PAPER = {'ridge': 2e-5, 'residual_penalty': 1e-5, 'update_from': 'after_columns'}
"""Settings where the text of the paper differs from the published code."""


class LpgFtw(LifelongLearner):
    """Learn s on a shared basis; fold each finished task into the basis."""

    name = 'lpg-ftw'
    _config: LpgFtwConfig

    def __init__(self, spec: PolicySpec, config: LpgFtwConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self._knowledge_base = self._empty_knowledge()
        self._reserved: set[str] = set()  # running and parked tasks that will add a column

    # Algorithm 2 while columns may be added, else the first lines of Algorithm 1.

    def _first_factors(self, task: str, seed: int) -> TaskFactors:
        spec, k, grows = self._spec, self._knowledge_base.n_columns, self._may_grow()
        if k == 0 and not grows:
            names = ', '.join(sorted(self._reserved))
            raise LearnerMisuse(
                f'every column waits for a parked task; continue one of them first: {names}'
            )
        # the first column is where single-task learning starts
        rng = generator(seed if k else self._seed, Purpose.POLICY_INIT)
        theta, head = initial_theta(spec, rng), initial_head(spec, rng)
        learned = k == 0 or (grows and spec.hidden)  # theta = 0 would be a dead network
        residual = theta if learned else np.zeros(spec.n_parameters)
        s = self._knowledge_base.first_coefficients(self._config.coefficient_start)
        return TaskFactors(s, residual, head, self._initial_log_std())

    def _coordinates(self, run: TaskRun) -> Coordinates:
        columns = self._basis()[:, : len(run.factors.coefficients)]
        return Coordinates(self._spec, columns, free=run.task in self._reserved)

    def _gradient(
        self, policy: PolicySnapshot, at: Activations, batch: Batch, advantages: Array
    ) -> Move:
        """Return the gradient of J - mu |s|_1 - lambda |eps|^2, from the second task on."""
        run, gradient = self._need_run(), super()._gradient(policy, at, batch, advantages)
        gradient = with_sparsity(gradient, run.factors.coefficients, self._config.sparsity)
        if run.task in self._reserved and len(run.factors.coefficients):
            weight = self._config.residual_penalty
            gradient = with_decay(gradient, run.factors.residual, weight)
        return gradient

    def _after_step(
        self, run: TaskRun, policy: PolicySnapshot, batch: Batch, advantages: Array
    ) -> bool:
        """Solve for L with the running task's present terms, every M iterations."""
        every = self._config.update_every
        if every == 0 or run.iteration % every or run.task in self._reserved:
            return False
        model = self._local_model(policy, batch, advantages)
        updated = self._knowledge_base.try_out(run.task, run.factors.coefficients, model)
        self._version += updated
        return updated

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        """Enter the task's terms into A and b, its residual into L, and solve for L."""
        advantages = run.advantages(batch, self._config, self._config.model_gae_lambda)
        model = self._local_model(self._running_policy(), batch, advantages)
        residual = run.factors.residual if run.task in self._reserved else None
        s = self._knowledge_base.add(run.task, run.factors.coefficients, model, residual)
        self._reserved = self._reserved - {run.task}
        return replace(run.factors, coefficients=s, residual=np.zeros(self._spec.n_parameters))

    def _local_model(self, policy: PolicySnapshot, batch: Batch, advantages: Array) -> TaskModel:
        """Return alpha, g and H at the policy that sampled the batch."""
        form = self._knowledge_base.solver.form
        return self._base_learner.task_model(policy, batch, advantages, form)

    # Tasks.

    def start_task(self, task: str, *, seed: int) -> None:
        """Begin a new task, continue a parked one, or revisit a finished one."""
        column = self._may_grow() and (self.phase(task) == 'new' or self._is_alone(task))
        super().start_task(task, seed=seed)
        self._reserved = self._reserved | {task} if column else self._reserved

    def cancel_task(self) -> None:
        """Drop the running task; a revisited task returns to its state before the revisit."""
        task = self._need_run().task
        super().cancel_task()
        self._release(task)

    def forget_task(self, task: str) -> None:
        """Remove a finished or parked task and its contribution; L is solved for without it."""
        if self.running is not None:
            raise LearnerMisuse(f"'{self.running}' is running: finish, park or cancel it first")
        super().forget_task(task)
        self._release(task)
        if not self._order:
            self._knowledge_base.clear_columns()

    def _release(self, task: str) -> None:
        """Release the column reserved for a task, and undo its terms in L."""
        self._reserved = self._reserved - {task}
        self._version += self._knowledge_base.take_back(task)

    def _drop(self, task: str) -> None:
        self._knowledge_base.remove(task)

    def _revisit_factors(self, task: str) -> TaskFactors:
        self._knowledge_base.require_model(task)
        factors = self._finished[task].factors
        if self._is_alone(task) and self._may_grow():  # learn its own column again
            theta = self.knowledge().policy(task).theta
            return replace(factors, coefficients=np.zeros(0), residual=theta)
        return self._widened(factors)

    def _resume(self, run: TaskRun) -> TaskRun:
        return replace(run, factors=self._widened(run.factors))

    def _widened(self, factors: TaskFactors) -> TaskFactors:
        """Return factors with a coefficient for every present column."""
        s = pad(factors.coefficients, self._knowledge_base.n_columns)
        return replace(factors, coefficients=s)

    def _may_grow(self) -> bool:
        """Return whether there is a column that no task uses or has reserved."""
        taken = self._knowledge_base.n_columns + len(self._reserved)
        return taken < self._config.max_columns

    def _is_alone(self, task: str) -> bool:
        return self._knowledge_base.tasks == (task,) and not self._parked

    def _basis(self) -> Array:
        return self._knowledge_base.basis

    # The state.

    def _empty_knowledge(self) -> KnowledgeBase:
        config = self._config
        rules = BasisRules(
            config.max_columns, config.ridge, config.update_from, config.keep_local_models
        )
        solver = make_solver(
            config.solver,
            tolerance=config.solver_tolerance,
            max_iterations=config.solver_iterations,
        )
        return KnowledgeBase(self._spec, solver, rules)

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        state = knowledge_state(self._knowledge_base, parts)
        running = {task for task in self._reserved if task == self.running}
        if 'base' in parts:
            state['base/reserved'] = pack_names(sorted(self._reserved - running))
        if 'run' in parts:
            state['run/reserved'] = pack_names(sorted(running))
        return state

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        self._knowledge_base = self._empty_knowledge()
        read_knowledge(reader, finished, self._knowledge_base)
        self._reserved = {*reader.names('base/reserved'), *reader.names('run/reserved')}
