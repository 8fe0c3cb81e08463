r"""Observations normalised for a learner: only it sees :math:`x' = (x - m) / \sigma`.

The first layer of every policy is affine in its observation, so a policy of x' is a policy of x
with other numbers,

.. math:: W x' + c = (W / \sigma)\,x + (c - (W / \sigma)\,m),

and these are linear in theta: :math:`T(L s + r) = (T L) s + T r`. s, head and sigma stay. So
everything that leaves the learner is made for x: messages, exported policies and arms do not
change.

m and sigma are the running mean and deviation of the observations of the first task of a
lifetime: those of `FIRST_LOOK` trajectories before its first iteration, and of every batch after
its step. They stay when another task begins. L is shared, so if they ran on, learning a task
would change what the finished ones do.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.learner import (
    FinishReport,
    Learner,
    Probe,
    STATE_PARTS,
    StatePart,
    StepReport,
    TaskPhase,
    ValueReport,
)
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.learning.serialise import AnyArray, StateReader

if TYPE_CHECKING:
    from lpgftw_ros.learning.adaptive.recognise import Recognition

FIRST_LOOK = 10
"""Trajectories sampled before the first iteration of a lifetime."""
LEAST_DEVIATION = 1e-3
"""A number that varies less is only centred: it may be constant, and never small later."""
_MOMENTS = 'moments'


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of all observations so far."""

    count: int
    mean: Array
    squares: Array
    """Sum of the squared deviations from the mean. Shape (obs_dim,)."""
    updates: int = 0
    """How often they were changed."""

    @classmethod
    def none(cls, obs_dim: int) -> 'Moments':
        """Return the moments before the first observation: nothing is changed by them."""
        return cls(0, np.zeros(obs_dim), np.zeros(obs_dim))

    def joined(self, observations: Array) -> 'Moments':
        """Return the moments of these observations and all before. Shape (n, obs_dim)."""
        n, mean = len(observations), observations.mean(axis=0)
        squares = np.sum((observations - mean) ** 2, axis=0)
        total, apart = self.count + n, mean - self.mean
        return Moments(
            total,
            self.mean + apart * (n / total),
            self.squares + squares + apart**2 * (self.count * n / total),
            self.updates + 1,
        )

    @property
    def scale(self) -> Array:
        """What observations are divided by: their deviation, or 1 where it is next to nothing."""
        deviation = np.sqrt(self.squares / max(self.count, 1))
        return np.where(deviation < LEAST_DEVIATION, 1.0, deviation)

    def shown(self, observations: Array) -> Array:
        """Return x' of each observation."""
        return np.asarray((observations - self.mean) / self.scale)

    def unshown(self, shown: Array) -> Array:
        """Return x of each x'."""
        return np.asarray(shown * self.scale + self.mean)

    def plain(self, spec: PolicySpec, theta: Array) -> Array:
        """Return T theta: the numbers with which a policy of x does the same."""
        result, width = theta.copy(), spec.hidden[0] if spec.hidden else spec.act_dim
        if spec.hidden:
            split = width * spec.obs_dim
            W, c = result[:split].reshape(width, -1), result[split : split + width]
        else:
            rows = result.reshape(width, -1)
            W, c = rows[:, :-1], rows[:, -1]
        W /= self.scale
        c -= np.sum(W * self.mean, axis=1)
        return result

    def plain_factors(self, spec: PolicySpec, factors: TaskFactors) -> TaskFactors:
        """Return the factors of a policy of x."""
        return replace(factors, residual=self.plain(spec, factors.residual))

    def plain_knowledge(self, knowledge: Knowledge) -> Knowledge:
        """Return policies of x; the version counts every change of the moments."""
        spec, L = knowledge.spec, knowledge.basis
        columns = [self.plain(spec, L[:, j]) for j in range(L.shape[1])]
        return Knowledge(
            knowledge.version + self.updates,
            spec,
            np.column_stack(columns) if columns else L,
            {task: self.plain_factors(spec, own) for task, own in knowledge.tasks.items()},
        )

    def plain_model(self, spec: PolicySpec, model: LocalModel) -> LocalModel:
        """Return the local model in the parameters of policies of x."""
        T = np.column_stack([self.plain(spec, e) for e in np.eye(spec.n_parameters)])
        back = np.linalg.inv(T)
        alpha = self.plain(spec, model.alpha)
        return LocalModel(alpha, back.T @ model.g, back.T @ model.H @ back)


def moments_arrays(part: StatePart, moments: Moments) -> dict[str, AnyArray]:
    """Return the moments as arrays of one part of a state."""
    prefix = f'{part}/{_MOMENTS}'
    return {
        f'{prefix}/numbers': np.array([moments.count, moments.updates], np.uint64),
        f'{prefix}/mean': moments.mean.copy(),
        f'{prefix}/squares': moments.squares.copy(),
    }


def read_moments(state: Mapping[str, AnyArray], obs_dim: int) -> Moments | None:
    """Return the newest moments of a state; None if its learner saw observations as they are."""
    reader, found = StateReader(state), []
    for part in ('run', 'base'):
        prefix = f'{part}/{_MOMENTS}'
        if reader.has(prefix):
            count, updates = reader.array(f'{prefix}/numbers', (2,), np.uint64).tolist()
            mean = reader.floats(f'{prefix}/mean', obs_dim)
            squares = reader.floats(f'{prefix}/squares', obs_dim)
            found.append(Moments(count, mean, squares, updates))
    return max(found, key=lambda moments: moments.updates, default=None)


def without_moments(state: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return what the learner inside reads."""
    return {name: array for name, array in state.items() if f'/{_MOMENTS}/' not in name}


class Normalised:
    """A learner behind normalised observations; every method can be inside."""

    def __init__(self, inside: Learner) -> None:
        self._inside = inside
        self._moments = Moments.none(inside.spec.obs_dim)

    # Trajectories on their way in.

    def improve(self, batch: Batch) -> StepReport:
        """Take one policy step; then count what was seen, while this is the only task."""
        report = self._inside.improve(self._shown(batch))
        if not self._inside.knowledge().tasks:
            self._moments = self._moments.joined(batch.observations)
        return report

    def finish_task(self, batch: Batch) -> FinishReport:
        """Fold the running task into the shared knowledge, from extra trajectories."""
        return self._inside.finish_task(self._shown(batch))

    def wants(self) -> Probe | None:
        """Return the trajectories needed before anything else: first of all a look around."""
        if self._moments.count == 0 and self.running is not None:
            look = 'observations'
            return Probe(self.running, self.factors(), FIRST_LOOK, explore=True, purpose=look)
        probe = self._inside.wants()
        return None if probe is None else replace(probe, factors=self._plain(probe.factors))

    def probed(self, batch: Batch) -> Mapping[str, float]:
        """Take the trajectories of `wants`."""
        if self._moments.count == 0:
            self._moments = self._moments.joined(batch.observations)
            return {}
        return self._inside.probed(self._shown(batch))

    def _shown(self, batch: Batch) -> Batch:
        return replace(
            batch,
            observations=self._moments.shown(batch.observations),
            final_observations=self._moments.shown(batch.final_observations),
        )

    # Policies on their way out.

    def factors(self) -> TaskFactors:
        """Return the running task's factors, to be composed with `knowledge().basis`."""
        return self._plain(self._inside.factors())

    def knowledge(self) -> Knowledge:
        """Return the basis and the factors of all finished and parked tasks."""
        return self._moments.plain_knowledge(self._inside.knowledge())

    def recognise(self, task: str) -> 'Recognition':
        """Return the inquiry that tells which known task the environment of `task` is."""
        return self._inside.recognise(task).turned(self._plain, self._moments.unshown)

    def _plain(self, factors: TaskFactors) -> TaskFactors:
        return self._moments.plain_factors(self.spec, factors)

    # The state.

    def state(self, parts: Collection[StatePart] = STATE_PARTS) -> dict[str, AnyArray]:
        """Return the state as arrays named `part/...`; copies, safe to keep."""
        state = self._inside.state(parts)
        for part in ('run', 'base'):
            if part in parts:
                state |= moments_arrays(part, self._moments)
        return state

    def load_state(self, state: dict[str, AnyArray]) -> None:
        """Replace the whole state; raise `StateMismatch` and change nothing if it does not fit."""
        moments = self._read(state)
        self._inside.load_state(without_moments(state))
        self._moments = moments

    def adopt(self, shared: dict[str, AnyArray]) -> None:
        """Replace everything learned by another learner's state; the version keeps growing."""
        moments = self._read(shared)
        self._inside.adopt(without_moments(shared))
        self._moments = replace(moments, updates=max(moments.updates, self._moments.updates))

    def _read(self, state: Mapping[str, AnyArray]) -> Moments:
        moments = read_moments(state, self.spec.obs_dim)
        if moments is None:
            raise StateMismatch(
                'the state was learned without normalise=true, this learner is not'
            )
        return moments

    # All else is passed to the learner inside.

    @property
    def spec(self) -> PolicySpec:
        """Shape of all its policies."""
        return self._inside.spec

    @property
    def running(self) -> str | None:
        """The task being learned, if any."""
        return self._inside.running

    @property
    def iteration(self) -> int:
        """Finished iterations of the running task."""
        return self._inside.iteration

    def phase(self, task: str) -> TaskPhase:
        """Return where the task stands."""
        return self._inside.phase(task)

    def start_task(self, task: str, *, seed: int) -> None:
        """Begin a new task, continue a parked one, or revisit a finished one."""
        self._inside.start_task(task, seed=seed)

    def fit_values(self) -> ValueReport:
        """Fit the running task's value function to the batch last given to `improve`."""
        return self._inside.fit_values()

    def plan(self, iterations: int) -> int:
        """Return how many iterations the running task takes, given the number requested."""
        return self._inside.plan(iterations)

    def park_task(self) -> None:
        """Set the running task aside."""
        self._inside.park_task()

    def cancel_task(self) -> None:
        """Drop the running task."""
        self._inside.cancel_task()

    def forget_task(self, task: str) -> None:
        """Remove a finished or parked task and all it contributed."""
        self._inside.forget_task(task)
