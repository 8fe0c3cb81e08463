r"""Adaptive LPG-FTW: :math:`\theta_t = L s_t + r_t`, with a residual that stays with its task.

It is LPG-FTW with parts that can each be turned off:

- the residual moves on every task and starts at 0; b receives :math:`\alpha_t - r_t`, so L still
  explains what is shared (`residuals`, `columns`);
- log sigma starts as that of the earlier tasks where this earns more, and the first task is drawn
  several times (`start`);
- a task ends when more iterations do not pay, and restarts if it got nowhere (`budget`);
- after an update of L the tasks at risk are run, and one that loses keeps its theta; old tasks
  adopt the policy of a later one that is better (`guard`);
- a task without a name is recognised by how it answers known policies (`recognise`).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
import time

import numpy as np

from lpgftw_ros.errors import LearnerMisuse
from lpgftw_ros.learning.adaptive.budget import Account, history_sizes, is_over, is_stuck, remember
from lpgftw_ros.learning.adaptive.columns import regrouped
from lpgftw_ros.learning.adaptive.config import AdaptiveConfig
from lpgftw_ros.learning.adaptive.guard import (
    at_risk,
    better_heir,
    EXPLORING,
    Found,
    guard,
    heirs,
    Inquiry,
    Means,
    Memory,
    Pending,
    Series,
)
from lpgftw_ros.learning.adaptive.recognise import Recognition
from lpgftw_ros.learning.adaptive.start import (
    advance,
    Candidate,
    Draws,
    draws_arrays,
    kept_start,
    measured_start,
    note_start,
    noted_start,
    random_factors,
    read_draws,
    start_sizes,
    total_iterations,
    transferred_factors,
)
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.knowledge_base import grow
from lpgftw_ros.learning.learner import measure, Probe, StatePart, StepReport, ValueReport
from lpgftw_ros.learning.lifetime import FinishedTask, TaskRun
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.lpg_ftw import LpgFtw
from lpgftw_ros.learning.policies import (
    Activations,
    compose,
    PolicySnapshot,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.randomness import derive_seed, generator, Purpose
from lpgftw_ros.learning.serialise import AnyArray, StateReader
from lpgftw_ros.learning.solvers import TaskModel, with_form
from lpgftw_ros.learning.steps import Coordinates, Fisher, Move
from lpgftw_ros.learning.values import (
    discounted_returns,
    relative_error,
    value_features,
    ValueFunction,
    whitened_advantages,
)

DRAWS_LEFT = measure('draws_left', 'random starts of the first task that are left')
RESTARTED = measure('restarted', 'iterations without progress before the task restarted')


class AdaptiveLpgFtw(LpgFtw):
    """LPG-FTW with residuals that stay, draws, a budget, a guard and inheritance."""

    name = 'lpg-ftw-adaptive'
    _config: AdaptiveConfig

    def __init__(self, spec: PolicySpec, config: AdaptiveConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self._draws: dict[str, Draws] = {}
        self._memory = Memory()
        self._account = Account()
        self._inquiry: Inquiry[None] | None = None
        self._found: Found = {}
        self._stepped: TaskRun | None = None  # the draw whose values are to be fitted

    # The start of a task.

    def _first_factors(self, task: str, seed: int) -> TaskFactors:
        if self._knowledge_base.n_columns == 0:
            super()._first_factors(task, seed)  # refuses if every column waits
            return random_factors(self._spec, self._initial_log_std(), self._seed)
        if self._config.residuals == 'columns':
            factors = super()._first_factors(task, seed)
        else:
            s = self._knowledge_base.first_coefficients(self._config.coefficient_start)
            factors = transferred_factors(self._spec, s, self._initial_log_std(), seed)
        carried = self._config.std_start == 'mean' and bool(self._finished)
        return replace(factors, log_std=self._carried_std()) if carried else factors

    def _carried_std(self) -> Array:
        """Return the mean log sigma of the finished tasks."""
        stds = [done.factors.log_std for done in self._finished.values()]
        return np.asarray(np.mean(stds, axis=0))

    def _extra_sizes(self) -> dict[str, int]:
        start = start_sizes(self._spec, self._config.max_columns)
        return history_sizes(self._config) | start

    def _first_extras(self) -> dict[str, Array]:
        return {name: np.zeros(size) for name, size in self._extra_sizes().items()}

    def start_task(self, task: str, *, seed: int) -> None:
        """Begin a new task, continue a parked one, or revisit a finished one.

        An unfinished inquiry is dropped: the update stays as it is.
        """
        phase, k = self.phase(task), self._knowledge_base.n_columns
        super().start_task(task, seed=seed)
        self._memory.pending = self._inquiry = None
        run = self._need_run()
        if phase != 'parked':
            run.extras |= note_start(run.factors, self._config.max_columns)
        if phase == 'new' and self._finished and k and self._candidates(run):
            run.extras['unmeasured'] = np.ones(1)
        if phase == 'new' and k == 0 and self._config.draws > 1:
            others = range(1, self._config.draws)
            self._draws[task] = Draws(tuple(self._random_run(run, i) for i in others))

    def _random_run(self, run: TaskRun, number: int) -> TaskRun:
        """Return another random start of a task."""
        own = derive_seed(run.seed, Purpose.POLICY_INIT, number)
        values = ValueFunction.create(self._spec.obs_dim, generator(own, Purpose.VALUE_INIT))
        k = len(run.factors.coefficients)
        std = self._initial_log_std()
        factors = random_factors(self._spec, std, self._seed, number, columns=k)
        extras = self._first_extras() | note_start(factors, self._config.max_columns)
        return TaskRun(run.task, own, factors, values, extras=extras)

    # One iteration.

    @property
    def iteration(self) -> int:
        """Finished iterations of the running task, over all its starts."""
        draws = self._draws.get(self.running or '', Draws())
        return super().iteration + draws.iterations

    def _coordinates(self, run: TaskRun) -> Coordinates:
        free = self._config.residuals == 'stay'
        return replace(super()._coordinates(run), free=free or run.task in self._reserved)

    def _gradient(
        self, policy: PolicySnapshot, at: Activations, batch: Batch, advantages: Array
    ) -> Move:
        r"""Return the gradient of :math:`J - \mu \|s\|_1 - \lambda\, r^\top F r`."""
        gradient = super()._gradient(policy, at, batch, advantages)
        run, weight = self._need_run(), self._config.residual_penalty
        if weight == 0.0 or run.task in self._reserved or not len(gradient.residual):
            return gradient
        r = run.factors.residual
        Fr, _ = Fisher(policy, at).product(r, np.zeros(self._spec.head_size))
        return replace(gradient, residual=gradient.residual - 2.0 * weight * Fr)

    def improve(self, batch: Batch) -> StepReport:
        """Take one policy step."""
        self._check(batch)
        run = self._need_run()
        values, run.values = run.values, self._first_values(run, batch)
        try:
            report = super().improve(batch)
        except BaseException:
            run.values = values
            raise
        run, measures = self._need_run(), dict(report.measures)
        run.extras = remember(run.extras, batch, first=run.iteration == 1)
        self._stepped, self._inquiry = run, None
        n, account = batch.n_trajectories, self._account
        self._account = replace(account, learning=account.learning + n, batch=n)
        draws = self._draws.get(run.task, Draws())
        if draws.others:
            measures[DRAWS_LEFT] = 1 + len(draws.others)
        if draws.failed and run.iteration == 1:
            measures[RESTARTED] = draws.failed
        return replace(report, measures=measures)

    def _first_values(self, run: TaskRun, batch: Batch) -> ValueFunction:
        """Return the values of a task; at first those that explain a new task's batch best."""
        config = self._config
        if config.value_start == 'fresh' or run.iteration or run.task in self._finished:
            return run.values
        features = value_features(batch.observations, batch.step_in_trajectory)
        returns = discounted_returns(batch, config.gamma)
        known = [run.values, *(done.values for done in self._finished.values())]
        errors = [relative_error(values.predict(features), returns) for values in known]
        return known[int(np.argmin(errors))].copy()

    def fit_values(self) -> ValueReport:
        """Fit the value function of the start that took the last step."""
        began, run = time.perf_counter(), self._need_run()
        report = (self._stepped or run).fit_values(self._config)
        self._stepped = None
        return replace(report, seconds=time.perf_counter() - began)

    def plan(self, iterations: int) -> int:
        """Return how many iterations the running task takes, over all its starts.

        It also chooses which start goes on: the next draw, or a new one if this came nowhere.
        """
        total = self._plan(self._account.allowed(iterations, self._config.payback))
        self._need_run().extras['asked'] = np.array([float(iterations)])
        return total

    def _plan(self, iterations: int) -> int:
        run, config = self._need_run(), self._config
        draws = self._draws.get(run.task, Draws())
        if draws.others:
            self._draws[run.task], self._run = advance(draws, run, iterations, config)
            least = self.iteration + bool(self._draws[run.task].others)
            return max(least, total_iterations(config.draws, iterations, config))
        if self._starts_anew(run, draws, iterations):
            failed = draws.failed + run.iteration
            self._draws[run.task] = replace(draws, failed=failed)
            self._run = self._random_run(run, config.draws + failed)
            return max(self.iteration, iterations + draws.spent)
        over = is_over(run.extras, run.iteration, config)
        total = self.iteration if over else max(self.iteration, iterations + draws.spent)
        run.extras['over'] = np.full(1, float(total == self.iteration))
        return total

    def _starts_anew(self, run: TaskRun, draws: Draws, iterations: int) -> bool:
        """Return whether a new task got nowhere and may try another start."""
        config, least = self._config, self._config.restart_after * iterations
        if least == 0.0 or run.task in self._finished or config.residuals == 'columns':
            return False
        left = iterations - draws.failed - run.iteration
        over = is_over(run.extras, run.iteration, config)
        if not (run.iteration >= least or over) or left < least:
            return False
        return is_stuck(run.extras, run.iteration, self._memory.earned, config.restart_share)

    # The end of a task.

    def _fold(self, run: TaskRun, batch: Batch) -> TaskFactors:
        """Add alpha - r and s to A and b, solve for L, and keep r with its task."""
        kb, factors = self._knowledge_base, run.factors
        if run.task in self._reserved or self._config.residuals == 'columns':
            alone = kb.tasks == (run.task,)
            before = kb.basis if not alone else kb.basis[:, : len(factors.coefficients)]
            if run.task in self._reserved:
                before, _ = grow(before, factors.coefficients, factors.residual)
            tuned = self._running_policy()
            factors = super()._fold(run, batch)
        else:
            before, tuned = kb.basis, self._running_policy()
            advantages = run.advantages(batch, self._config, self._config.model_gae_lambda)
            model = self._local_model(tuned, batch, advantages)
            if self._config.columns == 'paying':
                if isinstance(model, LocalModel):
                    model = with_form(model, kb.solver.form, kb.spec)
                factors, before = self._fold_regrouped(run.task, factors, model)
            else:
                factors = self._add(run.task, factors, model)
        self._memory.forget(run.task)  # of a policy it no longer has; the latest task comes last
        self._memory.earned[run.task] = batch.returns
        self._settle_account(run)
        self._draws.pop(run.task, None)
        if self._inquires:
            self._memory.pending = Pending(run.task, before, tuned.theta)
        self._inquiry = None
        return factors

    def _add(self, task: str, factors: TaskFactors, model: TaskModel | LocalModel) -> TaskFactors:
        model = replace(model, alpha=model.alpha - factors.residual)
        s = self._knowledge_base.add(task, factors.coefficients, model)
        return replace(factors, coefficients=s)

    def _fold_regrouped(
        self, task: str, factors: TaskFactors, model: TaskModel
    ) -> tuple[TaskFactors, Array]:
        """Fold a task in after maybe regrouping all; if that fails nothing has changed."""
        saved = self.state(['run', 'base', 'models'])
        try:
            factors = self._regroup(task, factors, model)
            before = self._knowledge_base.basis
            return self._add(task, factors, model), before
        except BaseException:
            self.load_state(saved)
            raise

    def _settle_account(self, run: TaskRun) -> None:
        """Note what a task took beyond the iterations requested, over all its starts."""
        asked = int(run.extras['asked'][0])
        self._account = self._account.settled(self.iteration - asked if asked else 0)

    def _regroup(self, task: str, factors: TaskFactors, model: TaskModel) -> TaskFactors:
        """Put all tasks on another basis if the residual of this one pays for others."""
        kb, config = self._knowledge_base, self._config
        done = {t: finished.factors for t, finished in self._finished.items()}
        every = done | {task: factors}
        H = {t: term.model.H for t, term in kb.terms.items()} | {task: model.H}
        share, k = config.column_share, config.max_columns
        free = k - len(self._reserved)  # parked tasks bring their columns with them
        new = regrouped(kb.basis, every, task, H, share=share, max_columns=free)
        if new is None:
            return factors
        every = {
            t: replace(f, coefficients=new.coefficients[t], residual=new.residuals[t])
            for t, f in every.items()
        }
        models = {
            t: replace(m.model, alpha=m.model.alpha + done[t].residual - new.residuals[t])
            for t, m in kb.terms.items()
        }
        for t, parked in self._parked.items():
            self._parked[t] = _moved_run(kb.basis, new.basis, parked, k)
        for t, draws in self._draws.items():
            waiting, ended = (
                tuple(_moved_run(kb.basis, new.basis, run, k) for run in runs)
                for runs in (draws.waiting, draws.done)
            )
            self._draws[t] = replace(draws, waiting=waiting, done=ended)
        kb.restore(new.basis, {t: new.coefficients[t] for t in kb.tasks}, models, {}, None)
        self._finished |= {
            t: replace(finished, factors=every[t]) for t, finished in self._finished.items()
        }
        return every[task]

    def _may_grow(self) -> bool:
        first = self._config.columns == 'first' or self._knowledge_base.n_columns == 0
        return first and super()._may_grow()

    @property
    def _inquires(self) -> bool:
        """Whether trajectories follow the end of a task."""
        config = self._config
        return config.guard_tolerance > 0.0 or config.inherit_margin > 0.0 or config.signatures

    # What is measured, in series of probes.

    def wants(self) -> Probe | None:
        """Return the next probe of the start, the guard or inheritance, if any."""
        if self._inquiry is None and (series := self._next_series()) is not None:
            self._inquiry = Inquiry(series, self._found)
            self._settle()
        return None if self._inquiry is None else self._inquiry.probe

    def _next_series(self) -> Series[None] | None:
        """Return the next measurement."""
        run, pending = self._run, self._memory.pending
        if run is not None and run.extras['unmeasured'][0]:
            return self._measure_start(run)
        if run is not None:
            built_on = self._config.inherit_margin > 0.0 and len(run.factors.coefficients)
            return self._compare_start(run) if built_on and run.extras['over'][0] else None
        return None if pending is None else self._after_finish(pending)

    def probed(self, batch: Batch) -> Mapping[str, float]:
        """Take the trajectories of a probe."""
        if self._inquiry is None or self._inquiry.probe is None:
            return super().probed(batch)
        if batch.task != self._inquiry.probe.task:
            raise LearnerMisuse(
                f"trajectories of '{batch.task}', asked for '{self._inquiry.probe.task}'"
            )
        self._count(self._inquiry.probe.purpose, batch.n_trajectories)
        found = self._inquiry.answer(batch)
        self._settle()
        return found

    def _count(self, purpose: str, n: int) -> None:
        """Note the trajectories of a probe in the account of the part that asked for them."""
        part = 'guard' if purpose in ('reference', 'guard') else 'inheritance'
        self._account = self._account.probed(n, None if purpose == 'start' else part)

    def _settle(self) -> None:
        if self._inquiry is not None and self._inquiry.probe is None:
            self._memory.pending = self._inquiry = None
            self._version += 1

    def _candidates(self, run: TaskRun) -> dict[str, Candidate]:
        """Return the starts of a new task besides the usual one."""
        config, found = self._config, {}
        if config.std_start == 'measured' and self._finished:
            carried = replace(run.factors, log_std=self._carried_std())
            found['carried'] = Candidate(carried, config.start_margin)
        if config.policy_start == 'measured':
            for task, name in self._shown_policies().items():
                done = self._finished[task]
                factors = self._widened(done.factors)
                found[name] = Candidate(factors, config.policy_margin, done.values)
        return found

    def _shown_policies(self) -> dict[str, str]:
        """Return the finished tasks whose policies a new task may start from, with a name.

        Without a residual of its own a task cannot take that of another.
        """
        free = self._coordinates(self._need_run()).free
        level = {
            task: float(np.mean(r))
            for task, r in self._memory.earned.items()
            if free or not self._finished[task].factors.residual.any()
        }
        if not level:
            return {}
        return {list(level)[-1]: 'latest_policy', max(level, key=level.__getitem__): 'best_policy'}

    def _measure_start(self, run: TaskRun) -> Series[None]:
        """Start with what earns most."""
        config = self._config
        taken = yield from measured_start(run, self._candidates(run), config, self._found)
        start = run.factors if taken is None else taken.factors
        if taken is not None and taken.values is not None:
            run = replace(run, values=taken.values.copy())
        noted = note_start(start, config.max_columns) | {'unmeasured': np.zeros(1)}
        self._run = replace(run, factors=start, extras=run.extras | noted)

    def _compare_start(self, run: TaskRun) -> Series[None]:
        """Go back to where the task started if its mean action earned more there."""
        start, n = noted_start(run.extras, len(run.factors.coefficients)), self._per_task
        tuned, first = (
            Probe(run.task, self._fixed(each), n, False, 'keep') for each in (run.factors, start)
        )
        back = yield from kept_start(tuned, first, self._config, self._found)
        extras = run.extras | {'over': np.zeros(1)}
        self._run = replace(run, factors=start if back else run.factors, extras=extras)

    def _after_finish(self, pending: Pending) -> Series[None]:
        """Measure the tuned task, guard the others, let them inherit."""
        kb, task, config = self._knowledge_base, pending.task, self._config
        tuned = self._with_theta(self._finished[task].factors, pending.theta)
        batch = yield Probe(task, tuned, self._per_task, False, 'reference')
        self._memory.tuned(task, batch)
        moved = not np.array_equal(pending.basis, kb.basis)
        if config.guard_tolerance > 0.0 and len(kb.terms) > 1 and moved:
            update, means = (pending.basis, kb.basis), self._means('guard', config.guard_share)
            tasks = at_risk(kb.terms, *update)
            yield from guard(tasks, update, self._memory, means, config, self._found)
        if config.inherit_margin > 0.0:
            yield from self._inherit(task)

    def _inherit(self, finished: str) -> Series[None]:
        """Try the policy of the finished task on earlier ones."""
        config, done = self._config, self._finished[finished]
        means = self._means('inheritance', config.inherit_share)
        for task in heirs(finished, self._memory, self._knowledge_base.terms):
            policies = (self._finished[task].factors, done.factors)
            own, other = (
                Probe(task, self._fixed(each), EXPLORING, True, 'adopt') for each in policies
            )
            batch = yield from better_heir(task, (own, other), self._memory, means, config)
            if batch is not None:
                self._adopt(task, done, batch)
                self._found['adopted'] = 1.0

    def _adopt(self, task: str, done: FinishedTask, batch: Batch) -> None:
        """Give an old task the factors of another, and its own local model."""
        values, config = done.values.copy(), self._config
        policy = self.knowledge().compose(done.factors)
        advantages = whitened_advantages(values, batch, config, config.model_gae_lambda)
        model = self._local_model(policy, batch, advantages)
        model = replace(model, alpha=model.alpha - done.factors.residual)
        self._knowledge_base.exchange(task, done.factors.coefficients, model)
        self._finished[task] = FinishedTask(done.factors, values)
        self._version += 1

    def _means(self, part: str, share: float) -> Means:
        """Return what the series of a part may do."""

        def probe(task: str, basis: Array, n: int, purpose: str) -> Probe:
            return Probe(task, self._fixed(self._finished[task].factors, basis), n, False, purpose)

        def left() -> float:
            return self._account.left(share, getattr(self._account, part))

        def move(basis: Array) -> None:
            self._knowledge_base.move_to(basis)
            self._version += 1

        return Means(
            probe, left, move, None if self._config.residuals == 'columns' else self._keep
        )

    def _keep(self, task: str, basis: Array) -> None:
        """Let a finished task keep its theta on a former basis: its residual takes up the rest."""
        kb, done = self._knowledge_base, self._finished[task]
        theta, model = compose(basis, done.factors), kb.terms[task].model
        residual = done.factors.residual + theta - compose(kb.basis, done.factors)
        model = replace(model, alpha=model.alpha + done.factors.residual - residual)
        kb.exchange(task, done.factors.coefficients, model)
        kept = replace(done.factors, residual=residual)
        self._finished[task] = replace(done, factors=kept)
        self._version += 1

    @property
    def _per_task(self) -> int:
        return self._config.guard_trajectories

    def _fixed(self, factors: TaskFactors, basis: Array | None = None) -> TaskFactors:
        """Return factors of the same policy that do not depend on L."""
        theta = compose(self._basis() if basis is None else basis, factors)
        return self._with_theta(factors, theta)

    def _with_theta(self, factors: TaskFactors, theta: Array) -> TaskFactors:
        return replace(factors, coefficients=np.zeros(0), residual=theta)

    def recognise(self, task: str) -> Recognition:
        """Return the inquiry that tells which known task an environment is.

        Its probes run in the environment of `task`; the name decides nothing else. Tasks
        without a signature are left out.
        """
        signatures = self._memory.signatures
        return Recognition(task, {name: self._tuned(name) for name in signatures}, signatures)

    def _tuned(self, task: str) -> TaskFactors:
        """Return a finished task as it was tuned; as it is now if its model was not kept."""
        factors, term = self._finished[task].factors, self._knowledge_base.terms.get(task)
        if term is None:
            return self._fixed(factors)
        return self._with_theta(factors, term.model.alpha + factors.residual)

    # Tasks and state.

    def park_task(self) -> None:
        """Set the running task aside; a start that is being measured is measured again."""
        super().park_task()
        self._inquiry = None

    def cancel_task(self) -> None:
        """Drop the running task; a revisited task returns to its state before the revisit."""
        task = self._need_run().task
        super().cancel_task()
        self._draws.pop(task, None)
        self._stepped = self._inquiry = None

    def forget_task(self, task: str) -> None:
        """Remove a finished or parked task and all it contributed; L is solved for without it."""
        super().forget_task(task)
        self._draws.pop(task, None)
        self._memory.forget(task)
        self._memory.pending = self._inquiry = None

    def adopt(self, shared: dict[str, AnyArray]) -> None:
        """Replace everything learned by another learner's state; no task has draws then."""
        super().adopt(shared)
        self._draws = {}

    def _need_fitted(self, run: TaskRun) -> None:
        super()._need_fitted(self._stepped or run)

    def _shared_state(self, parts: Collection[StatePart]) -> dict[str, AnyArray]:
        state = super()._shared_state(parts)
        if 'run' in parts:
            state |= draws_arrays(self._draws) | self._account.arrays()
        if 'base' in parts:
            state |= self._memory.arrays()
        return state

    def _read_shared(self, reader: StateReader, finished: list[str]) -> None:
        super()._read_shared(reader, finished)
        k = self._knowledge_base.n_columns
        self._draws = read_draws(reader, self._spec, k, self._extra_sizes())
        self._account = Account.read(reader)
        self._memory = Memory.read(reader, self._spec)
        self._inquiry, self._found, self._stepped = None, {}, None


def _moved(old: Array, new: Array, factors: TaskFactors) -> TaskFactors:
    """Return factors of the same theta on another basis."""
    theta = compose(old, factors)
    s = np.linalg.lstsq(new, theta, rcond=None)[0]
    return replace(factors, coefficients=s, residual=theta - new @ s)


def _moved_run(old: Array, new: Array, run: TaskRun, max_columns: int) -> TaskRun:
    """Return a run on another basis; the start it may go back to is of the old one too."""
    start = noted_start(run.extras, len(run.factors.coefficients))
    moved = note_start(_moved(old, new, start), max_columns)
    return replace(run, factors=_moved(old, new, run.factors), extras=run.extras | moved)
