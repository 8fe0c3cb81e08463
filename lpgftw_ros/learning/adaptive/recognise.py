r"""Which known task an environment without a name is.

Every finished task leaves a signature: the first observations :math:`o_i` and rewards
:math:`\rho_i` of one mean-action trajectory of its tuned policy. The same policy is run in the
unknown environment; with the trajectory :math:`o'_i, \rho'_i` the distance to the task is

.. math:: e^2 = \tfrac1n \sum_i \Big[\tfrac1m \sum_j \frac{(o_{ij} - o'_{ij})^2}{v_j}
          + \frac{(\rho_i - \rho'_i)^2}{v_\rho}\Big]

with the variances v of the signature. Dynamics show in the observations, the goal in the rewards.
An environment that repeats the signature is known, one that resembles it near, else new. Both
trajectories are run with the random numbers of the known task, so that equal tasks begin alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.learner import Probe
from lpgftw_ros.learning.policies import TaskFactors

STEPS = 50
"""Time steps of a signature."""
KNOWN, NEAR = 0.05, 0.5
"""Distances up to which an environment is known, and near."""
TINY = 1e-8
Kind = Literal['known', 'near', 'new']


@dataclass(frozen=True, slots=True)
class Signature:
    """How a task answers its own policy."""

    observations: Array
    """Shape (n, obs_dim)."""
    rewards: Array
    """Shape (n,)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an environment was taken for, and why."""

    kind: Kind
    task: str | None
    """The nearest known task; None if there is none."""
    distances: Mapping[str, float]
    """Distance to every task tried."""
    steps: int
    """Environment steps it took."""

    def __str__(self) -> str:
        """Return the evidence in one line."""
        if self.task is None:
            return f'{self.kind}: no task is known yet'
        ranked = sorted(self.distances.items(), key=lambda item: item[1])
        told = ', '.join(f'{task} {distance:.3g}' for task, distance in ranked[:3])
        limits = f'known up to {KNOWN:g}, near up to {NEAR:g}'
        return f'{self.kind}: distance to {told} ({limits}; {self.steps} steps)'


def signature(batch: Batch) -> Signature:
    """Return the signature of a task from a batch by its mean action."""
    n = min(STEPS, int(batch.lengths[0]))
    return Signature(batch.observations[:n].copy(), batch.rewards[:n].copy())


def distance(one: Signature, other: Signature) -> float:
    """Return e, in standard deviations of `one`; infinite if one of them ends before the other."""
    n = len(one.rewards)
    if n != len(other.rewards):
        return float('inf')
    d_obs = (one.observations[:n] - other.observations[:n]) ** 2
    d_reward = (one.rewards[:n] - other.rewards[:n]) ** 2
    obs = np.mean(d_obs, axis=0) / (np.var(one.observations, axis=0) + TINY)
    reward = np.mean(d_reward) / (float(np.var(one.rewards)) + TINY)
    return float(np.sqrt(np.mean(obs) + reward))


def verdict(distances: Mapping[str, float], steps: int) -> Verdict:
    """Return what an environment with these distances is."""
    if not distances:
        return Verdict('new', None, {}, steps)
    task = min(distances, key=lambda name: distances[name])
    e = distances[task]
    return Verdict(
        'known' if e <= KNOWN else 'near' if e <= NEAR else 'new', task, distances, steps
    )


class Recognition:
    """Runs known policies in an unknown environment until one repeats its signature."""

    def __init__(
        self,
        task: str,
        policies: Mapping[str, TaskFactors],
        signatures: Mapping[str, Signature],
    ) -> None:
        self._task, self._policies, self._signatures = task, policies, signatures
        self._left = list(policies)
        self._distances: dict[str, float] = {}
        self._steps = 0

    def turned(
        self, policy: Callable[[TaskFactors], TaskFactors], seen: Callable[[Array], Array]
    ) -> 'Recognition':
        """Return the same inquiry for other coordinates of policies and observations."""
        policies = {name: policy(factors) for name, factors in self._policies.items()}
        signatures = {
            name: Signature(seen(one.observations), one.rewards)
            for name, one in self._signatures.items()
        }
        return Recognition(self._task, policies, signatures)

    @property
    def against(self) -> str:
        """The known task that the next trajectory is compared with."""
        return self._left[0]

    @property
    def probe(self) -> Probe | None:
        """The next policy to run, if the verdict needs one."""
        if not self._left or self.verdict.kind == 'known':
            return None
        return Probe(self._task, self._policies[self._left[0]], 1, False, 'recognise')

    def answer(self, batch: Batch) -> None:
        """Compare a trajectory with the signature of the policy that made it."""
        name = self._left.pop(0)
        self._distances[name] = distance(self._signatures[name], signature(batch))
        self._steps += batch.n_steps

    @property
    def verdict(self) -> Verdict:
        """What the environment is, from the trajectories so far."""
        return verdict(self._distances, self._steps)
