"""What every lifelong learner offers, whichever method is behind it.

One visit to a task runs `start_task`, then per iteration `improve` and `fit_values`, then
`finish_task`. Between two iterations the task may be parked (continue later) or cancelled.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors

StatePart = Literal['run', 'base', 'models', 'replay']
"""Parts of a learner's state, by how often they change.

- run: what `improve` and `fit_values` change, each iteration, below 1 MB;
- base: what starting, finishing, parking or forgetting a task changes;
- models: the local model of each finished task, written once per knowledge update;
- replay: stored trajectories (experience replay only).
"""
STATE_PARTS: tuple[StatePart, ...] = ('run', 'base', 'models', 'replay')

TaskPhase = Literal['new', 'parked', 'running', 'finished']


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one policy step did."""

    kl: float
    """Measured mean KL between the policy before and after the step."""
    step_length: float
    """Factor on the (natural) gradient, after halving."""
    refused_steps: int
    """How often the step was halved because its KL was above three times the allowed one."""
    gradient_norm: float
    knowledge_updated: bool = False
    """True if the basis was also updated (schedule M < N)."""
    seconds: float = 0.0
    knowledge_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ValueReport:
    """What one fit of the value function did."""

    error_after: float
    """Mean squared error over the variance of the returns, after the fit."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FinishReport:
    """What folding a task into the shared knowledge did."""

    basis_change: float
    """Relative Frobenius norm of the change of L; 0 for methods without one."""
    parameter_change: float
    """Relative norm of the change of this task's theta."""
    columns: int
    seconds: float = 0.0


class Learner(Protocol):
    """A lifelong learner."""

    @property
    def spec(self) -> PolicySpec:
        """Shape of all its policies."""

    @property
    def running(self) -> str | None:
        """The task being learned, if any."""

    @property
    def iteration(self) -> int:
        """Iterations the running task has behind it, those before parking included."""

    def phase(self, task: str) -> TaskPhase:
        """Return where the task stands."""

    def start_task(self, task: str, *, seed: int) -> None:
        """Begin a new task, continue a parked one, or revisit a finished one.

        `seed` starts the task's random numbers; a parked task keeps its own.
        """

    def improve(self, batch: Batch) -> StepReport:
        """Take one policy step from trajectories of the current policy."""

    def fit_values(self) -> ValueReport:
        """Fit the running task's value function to the batch last given to `improve`.

        Touches nothing `policy`, `factors` or `knowledge` read: it may run in another thread
        while the next trajectories are sampled.
        """

    def finish_task(self, batch: Batch) -> FinishReport:
        """Fold the running task into the shared knowledge, from extra trajectories."""

    def park_task(self) -> None:
        """Set the running task aside; `start_task` continues it at the same iteration."""

    def cancel_task(self) -> None:
        """Drop the running task; a finished task that was revisited is as before the revisit."""

    def forget_task(self, task: str) -> None:
        """Remove a finished or parked task and all it contributed."""

    def factors(self) -> TaskFactors:
        """Return the running task's factors, to be composed with `knowledge().basis`."""

    def knowledge(self) -> Knowledge:
        """Return the basis and the factors of all finished and parked tasks."""

    def state(self, parts: Collection[StatePart] = STATE_PARTS) -> dict[str, Array]:
        """Return the state as arrays named `part/...`; copies, safe to keep."""

    def load_state(self, state: dict[str, Array]) -> None:
        """Replace the whole state; raise `StateMismatch` and change nothing if it does not fit."""

    def adopt(self, shared: dict[str, Array]) -> None:
        """Replace all that was learned by another learner's (`base`, `models`, `replay`).

        Nothing may be running. Tasks the other had parked are left out, and the version counts
        on. Raises `StateMismatch` and changes nothing if the state does not fit.
        """
