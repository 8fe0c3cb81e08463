"""Answers observations with the policy they ask for; no ROS in here.

The policy node feeds it from topics and lets it act; a composed bridge takes the policy from it
and acts itself. Both get the same bytes, since noise depends on (seed, trajectory, step) only.
"""

from dataclasses import dataclass
import threading

import numpy as np

from lpgftw_ros.errors import LpgftwError, UnknownName, WrongShape
from lpgftw_ros.graph.admission import RolloutKey, TaskPolicy
from lpgftw_ros.learning.arrays import Array, require_finite
from lpgftw_ros.learning.policies import Knowledge, PolicySnapshot
from lpgftw_ros.learning.randomness import ExplorationNoise

PARTS = 2
"""Parts of a rollout that ask in turns."""


class NotYet(LpgftwError):
    """The requested policy has not arrived; asking again later may succeed."""


@dataclass(frozen=True, slots=True)
class Query:
    """One control step of a rollout, as the policy sees it."""

    key: RolloutKey
    first: int
    step: int
    observations: Array
    """Shape (rows, obs_dim)."""


class PolicyServer:
    """Holds every policy received so far and acts with the requested one."""

    def __init__(self) -> None:
        self.knowledge: Knowledge | None = None
        self.training: TaskPolicy | None = None
        self.active = True
        """False while requests must wait."""
        self._snapshot: tuple[tuple[str, int, int], PolicySnapshot] | None = None
        self._noise: dict[tuple[int, int, int], ExplorationNoise] = {}
        self._lock = threading.Lock()  # policies arrive in one thread and act in another

    def set_knowledge(self, knowledge: Knowledge) -> None:
        """Replace the basis and the policies of all finished and parked tasks."""
        with self._lock:
            self.knowledge, self._snapshot = knowledge, None

    def set_training(self, training: TaskPolicy) -> None:
        """Replace the policy of the task in training."""
        with self._lock:
            self.training, self._snapshot = training, None

    def policy(self, asked: RolloutKey) -> PolicySnapshot:
        """Compose the requested policy, once per version."""
        key = (asked.task, asked.policy_version, asked.knowledge_version)
        if not self.active:
            raise NotYet('the policy node is not active')
        with self._lock:
            if self._snapshot is None or self._snapshot[0] != key:
                self._snapshot = (key, self._compose(*key))
            return self._snapshot[1]

    def _compose(self, task: str, policy_version: int, knowledge_version: int) -> PolicySnapshot:
        knowledge = self.knowledge
        if knowledge is None:
            raise NotYet('no knowledge base has arrived')
        if knowledge_version and knowledge.version != knowledge_version:
            raise NotYet(
                f'knowledge {knowledge_version} is asked for, {knowledge.version} is here'
            )
        if policy_version == 0:
            return knowledge.policy(task)
        training = self.training
        if training is None or training.version != policy_version:
            here = 'none' if training is None else str(training.version)
            raise NotYet(f'policy {policy_version} is asked for, {here} is here')
        if training.task != task:
            raise UnknownName(f'policy {policy_version} for task', task, [training.task])
        if training.knowledge_version != knowledge.version:
            raise NotYet(
                f'policy {policy_version} stands on knowledge {training.knowledge_version}, '
                f'{knowledge.version} is here'
            )
        _require_fit(training, knowledge)
        return knowledge.compose(training.factors)

    def act(self, query: Query) -> Array:
        """Return one action per row. Shape (rows, act_dim)."""
        policy = self.policy(query.key)
        obs = query.observations
        if obs.ndim != 2 or obs.shape[1] != policy.spec.obs_dim:
            raise WrongShape(
                f'observations have shape {obs.shape}, the policy of {query.key.task} takes '
                f'{policy.spec.obs_dim} numbers per row'
            )
        require_finite('observations', obs)
        noise = self._noise_at(query, policy.spec.act_dim) if query.key.explore else None
        return np.ascontiguousarray(policy.act(obs, noise))

    def _noise_at(self, query: Query, act_dim: int) -> Array:
        """Return the noise of this step of its rollout."""
        rows, seed = len(query.observations), query.key.seed
        key = (seed, query.first, rows)
        if key not in self._noise:
            while len(self._noise) >= PARTS:
                del self._noise[next(iter(self._noise))]
            self._noise[key] = ExplorationNoise(seed, rows, act_dim, query.first)
        return self._noise[key].at(query.step)


def _require_fit(policy: TaskPolicy, knowledge: Knowledge) -> None:
    """Raise `WrongShape` unless the policy can be composed with this knowledge."""
    if policy.spec != knowledge.spec:
        raise WrongShape(f'the policy of {policy.task} has another shape than the knowledge')
    used, columns = policy.factors.coefficients.size, knowledge.basis.shape[1]
    if used > columns:
        raise WrongShape(f'{policy.task} has {used} coefficients, the basis {columns} columns')
