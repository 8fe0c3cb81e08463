"""The page in the browser: watch a run or a graph, and steer the graph. No ROS import here."""

from dataclasses import dataclass, field
import math
from typing import Protocol

from lpgftw_ros.deploy.safety.limits import Nearness
from lpgftw_ros.domains.vector_env import SceneState
from lpgftw_ros.experiments.explain import (
    contributions,
    describe_explanation,
    explain,
    similarity,
)
from lpgftw_ros.learning.arrays import Array, Integers
from lpgftw_ros.learning.policies import Knowledge

# What the page shows, and its sources: one small interface, one class per source.


NAN = math.nan


@dataclass(frozen=True, slots=True)
class Curve:
    """Return and success of one visit to a task, one number per iteration."""

    task: str
    visit: int
    returns: Array
    success: Array
    """NaN if the task has no success criterion."""


@dataclass(frozen=True, slots=True)
class TaskLine:
    """One line of the table of tasks; NaN: not measured."""

    task: str
    state: str
    """new, running, parked or finished."""
    has_policy: bool = False
    iteration: int = 0
    iterations: int = 0
    return_now: float = NAN
    success_now: float = NAN
    return_tuned: float = NAN
    """Right after it was learned."""
    success_tuned: float = NAN


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of learning; NaN: not known."""

    suite: str = ''
    learner: str = ''
    task: str = ''
    state: str = ''
    """idle, sampling, learning, evaluating, paused, failed, finished or running."""
    message: str = ''
    visit: float = NAN
    visits: float = NAN
    iteration: float = NAN
    iterations: float = NAN
    total_steps: float = NAN
    steps_per_second: float = NAN
    wall_seconds: float = NAN
    task_seconds_left: float = NAN
    run_seconds_left: float = NAN


@dataclass(frozen=True, slots=True)
class KnowledgeView:
    """The shared knowledge, ready to be drawn."""

    version: int
    tasks: tuple[str, ...]
    coefficients: Array
    """What each task takes of each column, s times the column's norm. Shape (tasks, k)."""
    similarity: Array
    """Cosine between the tasks' parameters. Shape (tasks, tasks); (0, 0) if not known."""
    growth: tuple[tuple[str, int], ...]
    """Task just finished, and the columns of L after it."""
    explained: tuple[tuple[str, ...], ...] = ()
    """What each task reuses, in words."""

    @classmethod
    def of(cls, knowledge: Knowledge, growth: tuple[tuple[str, int], ...]) -> 'KnowledgeView':
        """Prepare a knowledge base for drawing."""
        said = (
            describe_explanation(explain(knowledge, task), detailed=False)
            for task in knowledge.tasks
        )
        return cls(
            version=knowledge.version,
            tasks=tuple(knowledge.tasks),
            coefficients=contributions(knowledge),
            similarity=similarity(knowledge),
            growth=growth,
            explained=tuple(tuple(lines) for lines in said),
        )


@dataclass(frozen=True, slots=True)
class ArmView:
    """State of the safety guard; `None` in a view means there is no arm."""

    level: str
    """ok, limited, stopped, latched, inactive, or silent."""
    code: str
    text: str
    since: float
    """Seconds in this state."""
    count: int
    limits: tuple[Nearness, ...] = ()
    interventions: tuple[str, ...] = ()
    """Newest first, one line each."""
    links: tuple[tuple[str, float], ...] = ()
    """Node and the seconds since it was last heard."""
    problem: str = ''
    """Why the limits cannot be shown."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the page shows but the scene."""

    title: str
    progress: Progress = field(default_factory=Progress)
    curves: tuple[Curve, ...] = ()
    alone: tuple[Curve, ...] = ()
    """The same tasks learned alone, if there is such a run."""
    tasks: tuple[TaskLine, ...] = ()
    knowledge: KnowledgeView | None = None
    arm: ArmView | None = None
    problems: tuple[str, ...] = ()
    """What is missing or wrong now, one line each: a node that is silent, a damaged file."""
    still: str = ''
    """Why nothing moves in the scene, if it is known."""


@dataclass(frozen=True, slots=True)
class SceneFrame:
    """Row 0 at one moment."""

    suite: str
    task: str
    state: SceneState
    physics: str = ''
    """Fingerprint of the model it belongs to; empty: the model is the page's own."""
    live: bool = False
    """Whether its time is wall-clock time, of a real arm."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a button."""

    success: bool
    message: str


class Source(Protocol):
    """Where a page gets its content. Called from one thread of the page; may not block long."""

    actions: tuple[str, ...]
    """Buttons it answers to: of switch, learn, evaluate, pause, resume, stop, emergency_stop."""
    replays: bool
    """Whether the scene is a replay whose task and speed the page chooses."""

    def snapshot(self) -> Snapshot:
        """Return the current state; never raises for what is missing."""

    def frame(self) -> SceneFrame | None:
        """Return where row 0 is now; None if nothing moves or can be drawn."""

    def picture(self) -> Integers | None:
        """Return a picture of row 0, uint8 (height, width, 3), if there is no model."""

    def watch_scene(self, watched: bool) -> None:
        """Start or stop providing frames; they are needed only while a browser is open."""

    def replay(self, task: str, speed: float) -> None:
        """Replay another task (empty: the current one), `speed` times real time (0: fastest)."""

    def act(self, action: str, task: str) -> Answer:
        """Carry out a button; called in its own thread, blocks until the answer arrives."""

    def close(self) -> None:
        """Release everything."""
