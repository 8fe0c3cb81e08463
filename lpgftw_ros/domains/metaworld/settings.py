"""Settings of the Meta-World tasks: task, reward, observation, places of object and goal.

Defaults and bounds are in `sim/metaworld.yaml`, upstream's own reset spaces; the simulator is not
loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
import math
from pathlib import Path
from typing import Any

from lpgftw_ros.domains.suites import Traits
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.resources import data_folder, read_yaml

REWARDS = ('v1', 'v2')
OBSERVATIONS = {'paper6': 6, 'full39': 39}
"""Names of the observations and how many numbers they have; `MetaWorldRows._show` picks them."""
ACT_DIM = 4

Point = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """The range of a point, and its default."""

    default: Point
    low: Point
    high: Point

    def contains(self, point: Point) -> bool:
        """Return whether the point is inside, up to rounding."""
        pairs = zip(self.low, point, self.high, strict=True)
        return all(low - 1e-9 <= x <= high + 1e-9 for low, x, high in pairs)


@dataclass(frozen=True, slots=True)
class Placement:
    """How a task places its object and its goal."""

    object: Box
    goal: Box | None = None
    """None if the goal follows from the object."""
    gap: float = 0.0
    """Least distance on the table between object and goal (or filler)."""
    filler: Point | None = None
    """Numbers upstream draws for the goal and then ignores."""


@cache
def placements() -> Mapping[str, Placement]:
    """Return the placement of each of the 50 tasks, by its name without `-v3`."""
    path = data_folder('sim') / 'metaworld.yaml'
    return {
        name: Placement(
            object=_box(entry['object']),
            goal=_box(entry['goal']) if 'goal' in entry else None,
            gap=entry.get('gap', 0.0),
            filler=_point('filler', entry['filler']) if 'filler' in entry else None,
        )
        for name, entry in read_yaml(path).items()
    }


def _box(entry: Mapping[str, Any]) -> Box:
    return Box(*(_point(key, entry[key]) for key in ('default', 'low', 'high')))


def _point(name: str, value: Any) -> Point:
    """Return three finite numbers as a point."""
    numbers = value.tolist() if hasattr(value, 'tolist') else value
    if (
        not isinstance(numbers, list | tuple)
        or len(numbers) != 3
        or not all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers)
        or not all(math.isfinite(x) for x in numbers)
    ):
        raise InvalidConfig(f'{name} must be three finite numbers [x, y, z], got {value!r}')
    return float(numbers[0]), float(numbers[1]), float(numbers[2])


def _points(name: str, value: Any) -> tuple[Point, ...]:
    """Return one point or a list of points as a tuple of points."""
    numbers = value.tolist() if hasattr(value, 'tolist') else value
    if isinstance(numbers, list | tuple) and numbers and isinstance(numbers[0], list | tuple):
        return tuple(_point(name, point) for point in numbers)
    return (_point(name, numbers),)


@dataclass(frozen=True, kw_only=True)
class MetaWorldSettings:
    """One Meta-World task and its variations."""

    task: str
    """Upstream's name, with or without `-v3`."""
    reward: str = 'v1'
    observation: str = 'paper6'
    """paper6: hand and object position. full39: upstream's, goal visible."""
    goal: Any = None
    """One point, or a list of which each trajectory draws one by its seed; None: the default."""
    object: Any = None
    """As `goal`. Two lists go in pairs and must have the same length."""

    def __post_init__(self) -> None:
        """Reject what upstream does not offer or allow."""
        if not isinstance(self.task, str):
            raise InvalidConfig(f'task must be a name, got {self.task!r}')
        object.__setattr__(self, 'task', self.task.removesuffix('-v3'))
        if self.task not in placements():
            raise UnknownName('Meta-World task', self.task, placements())
        if self.reward not in REWARDS:
            raise UnknownName('Meta-World reward', str(self.reward), REWARDS)
        if self.observation not in OBSERVATIONS:
            raise UnknownName('Meta-World observation', str(self.observation), OBSERVATIONS)
        self.vectors()

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> 'MetaWorldSettings':
        """Build from the settings of a suite's task; unknown keys are errors."""
        known = [f.name for f in fields(cls)]
        for key in settings:
            if key not in known:
                raise UnknownName('setting of a Meta-World task', str(key), known)
        if 'task' not in settings:
            raise InvalidConfig("'task' is missing (a Meta-World name such as reach)")
        return cls(**settings)

    @property
    def obs_dim(self) -> int:
        """Numbers in one observation."""
        return OBSERVATIONS[self.observation]

    def vectors(self) -> tuple[tuple[float, ...], ...]:
        """Return upstream's placement vector of each variant: object, then goal if it has one."""
        placement = placements()[self.task]
        objects = self._inside('object', self.object, placement.object)
        if placement.goal is None:
            if self.goal is not None:
                raise InvalidConfig(
                    f"the goal of {self.task} follows from its object: set 'object' instead"
                )
            goals: tuple[tuple[float, ...], ...] = (placement.filler or (),)
        else:
            goals = self._inside('goal', self.goal, placement.goal)
        count = max(len(objects), len(goals))
        if len(objects) not in (1, count) or len(goals) not in (1, count):
            raise InvalidConfig(
                f'{len(objects)} objects and {len(goals)} goals: give one of each, or equally many'
            )
        pairs = [(objects[i % len(objects)], goals[i % len(goals)]) for i in range(count)]
        for point, goal in pairs:
            if goal and math.dist(point[:2], goal[:2]) < placement.gap:
                raise InvalidConfig(
                    f'{self.task} needs {placement.gap} m on the table between object and goal, '
                    f'got {list(point)} and {list(goal)}'
                )
        return tuple((*point, *goal) for point, goal in pairs)

    def _inside(self, name: str, value: Any, box: Box) -> tuple[Point, ...]:
        """Return the points of a setting, all inside the box."""
        points = (box.default,) if value is None else _points(name, value)
        for point in points:
            if not box.contains(point):
                raise InvalidConfig(
                    f'{name} {list(point)} of {self.task} is outside what upstream allows: '
                    f'{list(box.low)} to {list(box.high)}'
                )
        return points


def describe(settings: Mapping[str, Any], folder: Path | None = None) -> Traits:
    """Check the settings of a Meta-World task and return its traits."""
    task = MetaWorldSettings.from_mapping(settings)
    return Traits(task.obs_dim, ACT_DIM, deterministic_resets=len(task.vectors()) == 1)
