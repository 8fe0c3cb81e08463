"""What the lifelong loop asks of whoever drives it."""

from dataclasses import dataclass

from lpgftw_ros.runs.visits import Stage


@dataclass(frozen=True, slots=True)
class Collect:
    """Trajectories with exploration, to learn from."""

    task: str
    n_trajectories: int
    seed: int
    visit: int
    stage: Stage
    explore: bool = True
    running: bool = True
    """Act with the policy in training, else with the task's finished one."""


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Trajectories that only measure."""

    task: str
    n_trajectories: int
    seed: int
    visit: int
    stage: Stage
    explore: bool
    running: bool


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until the next command; `held` if work waits behind it."""

    held: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Every task is learned and its final policy measured."""


Request = Collect | Evaluate
