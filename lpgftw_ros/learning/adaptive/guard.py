r"""Protection of old tasks: whether an update of L costs one too much, and what they inherit.

The local model of task t predicts for a change :math:`L \to L'` the loss

.. math:: m_t(L) - m_t(L'), \qquad
          m_t(L) = g_t^\top \Delta + \Delta^\top H_t \Delta, \quad
          \Delta = L s_t - (\alpha_t - r_t)

Tasks are run by their mean action in the order of that loss. One loses if it earns less than the
most it has earned since it was tuned, by more than a tolerance and noise. If it earned more
without the update, beyond noise at `guard_certainty`, it keeps its theta: its residual takes up
what L has changed, :math:`r_t \leftarrow r_t + (L - L') s_t`. Without residuals the update is
shortened instead.
The policy of the finished task is tried on the others, and one that is better than theirs is now
takes over.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from scipy.special import stdtrit

from lpgftw_ros.learning.adaptive.config import AdaptiveConfig
from lpgftw_ros.learning.adaptive.recognise import Signature, signature
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.learner import Probe
from lpgftw_ros.learning.policies import pad, PolicySpec
from lpgftw_ros.learning.serialise import AnyArray, pack_names, StateReader
from lpgftw_ros.learning.solvers import TaskTerm

SHORTER = (0.5, 0.25, 0.0)
"""Factors on an update that costs a task too much, tried in turn; 0 takes it back."""
CONFIDENCE = 0.95
"""One-sided level of every test."""
EXPLORING = 10
"""Trajectories with exploration before a policy is adopted; they give its local model."""
T = TypeVar('T')
Found: TypeAlias = dict[str, float]


# Comparisons of paired returns: the same random numbers on both sides.


def difference(
    new: Array, old: Array, tests: int = 1, certainty: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the mean of paired differences and how much of it may be noise.

    With several tests at once the level holds for all of them together (Bonferroni). One pair has
    no noise: only returns that are always the same are kept as one (`distinct`).
    """
    n = min(len(new), len(old))
    diff = new[:n] - old[:n]
    if n == 1:
        return float(diff[0]), 0.0
    error = float(np.std(diff, ddof=1) / np.sqrt(n))
    level = 1.0 - (1.0 - certainty) / tests
    return float(np.mean(diff)), float(stdtrit(n - 1, level)) * error


def loses(new: Array, reference: Array, tolerance: float, certainty: float = CONFIDENCE) -> bool:
    """Return whether returns are below the reference by more than the tolerance and noise."""
    mean, noise = difference(new, reference, certainty=certainty)
    return -mean > max(tolerance * abs(float(np.mean(reference))), noise)


def gains(new: Array, reference: Array, margin: float) -> bool:
    """Return whether returns are above the reference by more than the margin and noise."""
    mean, noise = difference(new, reference)
    return mean > max(margin * abs(float(np.mean(reference))), noise)


def wins(new: Array, old: Array, margin: float, *, tests: int = 1) -> bool:
    """Return whether returns are above others by a share of the larger and beyond noise."""
    mean, noise = difference(new, old, tests)
    scale = max(abs(float(np.mean(new))), abs(float(np.mean(old))))
    return mean > max(margin * scale, noise)


def distinct(batch: Batch) -> Array:
    """Return one return if all trajectories are the same: one start, one return."""
    same = np.ptp(batch.observations[batch.starts], axis=0).max() == 0.0
    return batch.returns[:1] if same and np.ptp(batch.returns) == 0.0 else batch.returns


# A series of probes is a generator: it yields what it needs and receives the answer.


Series: TypeAlias = Generator[Probe, Batch, T]


class Inquiry(Generic[T]):
    """A running series: the probe it waits for and what it found last."""

    def __init__(self, series: Series[T], found: Found) -> None:
        """Run the series up to its first probe; it notes what it finds in `found`."""
        self._series, self._found = series, found
        self.probe: Probe | None = next(series, None)

    def answer(self, batch: Batch) -> Mapping[str, float]:
        """Pass on the trajectories of the probe; return what was found from them."""
        self._found.clear()
        try:
            self.probe = self._series.send(batch)
        except StopIteration:
            self.probe = None
        return dict(self._found)


# What is known of finished tasks, and the update that has to be measured.


@dataclass(frozen=True, slots=True)
class Pending:
    """A finished task whose update of L has to be measured."""

    task: str
    basis: Array
    """L before it was solved for, with the task's own column. Shape (d, k)."""
    theta: Array
    """The task's parameters as it was tuned. Shape (d,)."""


@dataclass(slots=True)
class Memory:
    """Returns of finished tasks, and their signatures."""

    earned: dict[str, Array] = field(default_factory=dict)
    """Returns with exploration when a task was tuned."""
    best: dict[str, Array] = field(default_factory=dict)
    """Mean-action returns a task is held to: the most it had since it was tuned."""
    present: dict[str, Array] = field(default_factory=dict)
    """Mean-action returns when it was last run."""
    signatures: dict[str, Signature] = field(default_factory=dict)
    pending: Pending | None = None

    def tuned(self, task: str, batch: Batch) -> None:
        """Note the mean-action trajectories of a task's policy when it is new."""
        self.best[task] = self.present[task] = distinct(batch)
        self.signatures[task] = signature(batch)

    def ran(self, task: str, batch: Batch) -> None:
        """Note mean-action trajectories of a task's policy as it is now."""
        self.present[task] = returns = distinct(batch)
        if np.mean(returns) > np.mean(self.best[task]):
            self.best[task] = returns

    def forget(self, task: str) -> None:
        """Drop what is known of a task."""
        for book in (self.earned, self.best, self.present, self.signatures):
            book.pop(task, None)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the state of the memory."""
        state: dict[str, AnyArray] = {'base/signatures': pack_names(self.signatures)}
        for name, book in self._books():
            state[f'base/{name}'] = pack_names(book)
            state |= {f'base/{name}/{task}': returns.copy() for task, returns in book.items()}
        for task, one in self.signatures.items():
            state[f'base/signatures/{task}/observations'] = one.observations.copy()
            state[f'base/signatures/{task}/rewards'] = one.rewards.copy()
        pending = self.pending
        state['base/pending'] = pack_names([] if pending is None else [pending.task])
        if pending is not None:
            state['base/pending/basis'] = pending.basis.copy()
            state['base/pending/theta'] = pending.theta.copy()
        return state

    def _books(self) -> tuple[tuple[str, dict[str, Array]], ...]:
        return ('earned', self.earned), ('best', self.best), ('present', self.present)

    @classmethod
    def read(cls, reader: StateReader, spec: PolicySpec) -> 'Memory':
        """Read what `arrays` returned."""
        memory = cls()
        for name, book in memory._books():
            for task in reader.names(f'base/{name}'):
                book[task] = reader.floats(f'base/{name}/{task}', None)
        for task in reader.names('base/signatures'):
            prefix = f'base/signatures/{task}'
            rewards = reader.floats(f'{prefix}/rewards', None)
            seen = reader.floats(f'{prefix}/observations', len(rewards), spec.obs_dim)
            memory.signatures[task] = Signature(seen, rewards)
        for task in reader.names('base/pending'):
            basis = reader.floats('base/pending/basis', spec.n_parameters, None)
            theta = reader.floats('base/pending/theta', spec.n_parameters)
            memory.pending = Pending(task, basis, theta)
        return memory


# The guard.


def predicted(term: TaskTerm, basis: Array) -> float:
    """Return the local model of a task at a basis, J(alpha) left out."""
    return term.model.value(basis @ pad(term.s, basis.shape[1]))


def at_risk(terms: Mapping[str, TaskTerm], before: Array, after: Array) -> list[str]:
    """Return tasks by the loss that their local models predict, the largest first."""
    loss = {task: predicted(t, before) - predicted(t, after) for task, t in terms.items()}
    return sorted(loss, key=lambda task: -loss[task])


def shortened(before: Array, after: Array, eta: float) -> Array:
    """Return L + eta dL; the ends exactly."""
    if eta in (0.0, 1.0):
        return after if eta else before
    return before + eta * (after - before)


@dataclass(frozen=True, slots=True)
class Means:
    """What a series may do: ask for mean-action trajectories, within its share, and move L."""

    probe: Callable[[str, Array, int, str], Probe]
    """(task, basis, trajectories, purpose) -> the probe of the task's policy on that basis."""
    left: Callable[[], float]
    """Trajectories the part may still spend."""
    move: Callable[[Array], None]
    """Replace L."""
    keep: Callable[[str, Array], None] | None = None
    """(task, basis) -> let the task keep the theta it had on that basis; None: it cannot."""


def guard(
    tasks: list[str],
    update: tuple[Array, Array],
    memory: Memory,
    means: Means,
    config: AdaptiveConfig,
    found: Found,
) -> Series[None]:
    """Let no task lose more than the tolerance by the update (L before, after).

    One that would keeps its theta, if it can have a residual; else the update is shortened. A
    task that had lost before is helped by neither. If no trajectories are left to measure a
    shorter update, the whole update is taken back.
    """
    before, after = update
    etas, now = list(SHORTER), after
    for task in tasks:
        held_to = memory.best.get(task)
        if held_to is None:
            continue
        n = len(held_to)
        if means.left() < 2 * n:
            return
        batch = yield means.probe(task, now, n, 'guard')
        if loses(batch.returns, held_to, config.guard_tolerance):
            without = yield means.probe(task, before, n, 'guard')
            blamed = loses(batch.returns, without.returns, 0.0, config.guard_certainty)
            if means.keep is not None and blamed:
                means.keep(task, before)
                found['kept'] = 1.0
                batch = without
            while loses(batch.returns, held_to, config.guard_tolerance) and loses(
                batch.returns, without.returns, 0.0, config.guard_certainty
            ):
                eta = etas.pop(0) if means.left() >= n else 0.0
                found['shortened'] = eta
                now = shortened(before, after, eta)
                means.move(now)
                if eta == 0.0:
                    memory.ran(task, without)
                    return
                batch = yield means.probe(task, now, n, 'guard')
        memory.ran(task, batch)


# Inheritance.


def heirs(task: str, memory: Memory, tasks: Mapping[str, TaskTerm]) -> list[str]:
    """Return the tasks that earn less than a finished one, the least able first."""
    own = float(np.mean(memory.best[task]))
    known = {t: float(np.mean(r)) for t, r in memory.present.items() if t in tasks}
    return sorted((t for t in known if known[t] < own), key=lambda t: known[t])


def better_heir(
    task: str, policies: tuple[Probe, Probe], memory: Memory, means: Means, config: AdaptiveConfig
) -> Series[Batch | None]:
    """Compare a task's own policy with that of another; return trajectories of the better other.

    `policies` are exploring probes of the task's own policy and of the other. The other must earn
    more by the mean action, and no less with exploration.
    """
    own, other = policies
    n = len(memory.present[task])
    by_mean = [_by_mean(probe, n, 'inherit') for probe in policies]
    if means.left() < n:
        return None
    theirs = yield by_mean[1]
    if not gains(theirs.returns, memory.present[task], config.inherit_margin):
        return None
    if means.left() < n + 2 * EXPLORING:
        return None
    mine = yield by_mean[0]
    memory.ran(task, mine)
    if not gains(theirs.returns, mine.returns, config.inherit_margin):
        return None
    explored = yield own
    batch = yield other
    if np.mean(batch.returns) < np.mean(explored.returns):
        return None  # too fragile: it earns more only by the mean action of these resets
    memory.tuned(task, theirs)
    memory.earned[task] = batch.returns
    return batch


def _by_mean(probe: Probe, n: int, purpose: str) -> Probe:
    return Probe(probe.task, probe.factors, n, False, purpose)
