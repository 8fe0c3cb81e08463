"""The interface of all lifelong learners.

One visit to a task runs `start_task`, then per iteration `improve` and `fit_values`, then
`finish_task`. Between two iterations the task may be parked, to continue later, or cancelled.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TYPE_CHECKING

from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors

if TYPE_CHECKING:
    from lpgftw_ros.learning.adaptive.recognise import Recognition

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
class Measure:
    """A number that a run records, under the same name everywhere."""

    name: str
    help: str
    unit: str = ''


MEASURES: dict[str, Measure] = {}
"""All declared measures, in the order of declaration."""


def measure(name: str, help: str, unit: str = '') -> str:
    """Declare a measure where it is computed; return its name."""
    MEASURES[name] = Measure(name, help, unit)
    return name


KL = measure('kl', 'measured mean KL between the policy before and after the step', 'nat')
STEP_LENGTH = measure('step_length', 'factor on the (natural) gradient, after halving')
REFUSED_STEPS = measure('refused_steps', 'how many times the step was shortened')
GRADIENT_NORM = measure('gradient_norm', 'norm of the gradient the step follows')
VALUE_ERROR = measure('value_error', 'squared error of the value fit over the variance of returns')
BASIS_CHANGE = measure('basis_change', 'relative Frobenius norm of the change of L')
PARAMETER_CHANGE = measure('parameter_change', "relative norm of the change of the task's theta")
COLUMNS = measure('columns', 'columns of the basis')


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one policy step did."""

    measures: Mapping[str, float]
    """By name, in the order they are recorded; `MEASURES` explains them."""
    knowledge_updated: bool = False
    """True if the basis was also updated (schedule M < N)."""
    seconds: float = 0.0
    """The policy step alone."""
    knowledge_seconds: float = 0.0
    """Time after the step: an update of the basis, or storing the batch."""

    @property
    def kl(self) -> float:
        """The KL of the step."""
        return self.measures[KL]


@dataclass(frozen=True, slots=True)
class ValueReport:
    """What one fit of the value function did."""

    measures: Mapping[str, float]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FinishReport:
    """What folding a task into the shared knowledge did."""

    measures: Mapping[str, float]
    columns: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Probe:
    """Trajectories a learner asks for in addition to those of its iterations."""

    task: str
    """The task they are sampled in."""
    factors: TaskFactors
    """The policy they are sampled with, composed with `knowledge().basis`."""
    n_trajectories: int
    explore: bool
    purpose: str
    """Their purpose: one word for the metrics."""


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
        """Finished iterations of the running task, including those before parking."""

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

        It touches nothing that `policy`, `factors` or `knowledge` read, so it may run in another
        thread while the next trajectories are sampled.
        """

    def finish_task(self, batch: Batch) -> FinishReport:
        """Fold the running task into the shared knowledge, from extra trajectories."""

    def plan(self, iterations: int) -> int:
        """Return how many iterations the running task takes, given the number requested.

        Called after each `improve`; never fewer than are finished.
        """

    def wants(self) -> Probe | None:
        """Return the trajectories needed before anything else, if any.

        The answer stays the same until `probed`. Called between two iterations and after
        `finish_task`. A restored learner asks again for every probe that was not settled.
        """

    def probed(self, batch: Batch) -> Mapping[str, float]:
        """Take the trajectories of `wants`; return the findings, for the metrics."""

    def recognise(self, task: str) -> 'Recognition':
        """Return the inquiry that tells which known task the environment of `task` is.

        Raises `LearnerMisuse` if the method cannot tell.
        """

    def park_task(self) -> None:
        """Set the running task aside; `start_task` continues it at the same iteration."""

    def cancel_task(self) -> None:
        """Drop the running task; a revisited task returns to its state before the revisit."""

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
        """Replace everything learned by another learner's `base`, `models` and `replay`.

        No task may be running. Tasks parked there are left out, and the version keeps growing.
        Raises `StateMismatch` and changes nothing if the state does not fit.
        """
