"""What a run cost: parameters, memory, environment steps and seconds per phase."""

from collections.abc import Mapping
from dataclasses import dataclass
import math

from lpgftw_ros.experiments.metrics import ratio
from lpgftw_ros.experiments.run_data import RunData

BYTES_PER_PARAMETER = 8
PHASES = ('sampling', 'policy', 'value', 'knowledge', 'evaluation')


@dataclass(frozen=True, slots=True)
class Ledger:
    """Cost of one run so far."""

    tasks: int
    parameters: int
    bytes_per_task: float
    """Parameters of all policies in float64, shared basis included, over the tasks seen."""
    steps: int
    seconds: Mapping[str, float]
    """Per phase; the value fit overlaps with sampling, so phases may add up to more than wall."""
    wall: float
    steps_per_second: float
    """End to end: steps over wall-clock seconds, evaluation included."""
    sampling_steps_per_second: float

    @property
    def end_to_end_share(self) -> float:
        """End-to-end speed over sampling speed: 1 if learning cost nothing."""
        return ratio(self.steps_per_second, self.sampling_steps_per_second)

    @property
    def minutes(self) -> float:
        """Wall-clock minutes."""
        return self.wall / 60.0


def ledger(run: RunData) -> Ledger:
    """Add up what a run cost."""
    n_tasks = len({result.task for result in run.tasks if result.iterations or result.scores})
    wall = run.seconds.get('wall', 0.0)
    return Ledger(
        tasks=n_tasks,
        parameters=run.parameters,
        bytes_per_task=BYTES_PER_PARAMETER * run.parameters / n_tasks if n_tasks else math.nan,
        steps=run.steps,
        seconds={phase: run.seconds.get(phase, 0.0) for phase in PHASES},
        wall=wall,
        steps_per_second=ratio(run.steps, wall),
        sampling_steps_per_second=ratio(run.steps, run.seconds.get('sampling', 0.0)),
    )
