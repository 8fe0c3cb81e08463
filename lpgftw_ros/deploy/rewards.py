r"""Reward and success on an arm, from what can be measured there: hand, object, goal.

The shape is that of the paper's Meta-World rewards. With x the distance that counts and D its
value at the start of the episode,

.. math:: K(x) = \max(0,\; 1000 (D - x) + 1000 (e^{-x^2/0.01} + e^{-x^2/0.001})),

reach pays K of the distance between fingers and goal; push and drawer-close pay minus the
distance between fingers and object, and K as well while the fingers are at the object. Success is
Meta-World's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import math
from typing import Any

import numpy as np

from lpgftw_ros.deploy.observation import three_numbers
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.arrays import Array

FINGERTIPS = np.array([0.0, 0.0, -0.045])
"""From the hand body to the point between the fingertips while the tool points down, m."""
_AT_OBJECT = 0.05

Distance = Callable[[Array, Array, Array], float]


@dataclass(frozen=True, slots=True)
class ArmTask:
    """How one kind of task is judged."""

    distance: Distance
    """From (fingers, object, goal) to the distance x."""
    success: Distance
    """The distance success is about."""
    radius: float
    """Solved when the success distance is not above it, m."""
    touch: bool
    """True if K is paid only while the fingers are at the object."""


def _fingers_to_goal(fingers: Array, target: Array, goal: Array) -> float:
    return math.dist(fingers, goal)


def _object_to_goal(fingers: Array, target: Array, goal: Array) -> float:
    return math.dist(target, goal)


def _object_to_goal_on_table(fingers: Array, target: Array, goal: Array) -> float:
    return math.dist(target[:2], goal[:2])


def _object_to_goal_along_y(fingers: Array, target: Array, goal: Array) -> float:
    return abs(float(target[1] - goal[1]))


TASKS: Mapping[str, ArmTask] = {
    'reach': ArmTask(_fingers_to_goal, _fingers_to_goal, 0.05, touch=False),
    'push': ArmTask(_object_to_goal_on_table, _object_to_goal, 0.05, touch=True),
    'drawer-close': ArmTask(_object_to_goal_along_y, _object_to_goal, 0.065, touch=True),
}
"""Kinds of tasks an arm can judge by itself, training frame."""
_GOAL_OFFSETS = {'drawer-close': np.array([0.0, -0.16, 0.09])}
"""From the object a suite places to the goal, where the goal follows from the object."""


def goal_of(kind: str, given: str, settings: Mapping[str, Any]) -> Array:
    """Return the goal of a built-in reward: the numbers given, or what a suite's task says."""
    if given.strip():
        return three_numbers('goal', given)
    name = 'object' if kind in _GOAL_OFFSETS else 'goal'
    place = settings.get(name)
    point = np.array(place, dtype=np.float64) if isinstance(place, list | tuple) else np.zeros(0)
    if point.shape != (3,) or not np.isfinite(point).all():
        raise InvalidConfig(
            f"the suite gives the task no single point '{name}', which the reward {kind} needs: "
            "give goal, three numbers 'x y z' in the training frame"
        )
    return point + _GOAL_OFFSETS.get(kind, 0.0)


class ArmReward:
    """Reward and success of one episode at a time."""

    def __init__(self, kind: str, goal: Array) -> None:
        if kind not in TASKS:
            raise UnknownName('built-in reward', kind, TASKS)
        self._task, self._goal = TASKS[kind], np.asarray(goal, dtype=np.float64)
        self._start = 0.0

    def reset(self, hand: Array, target: Array) -> None:
        """Begin an episode: D is the distance now."""
        self._start = self._task.distance(hand + FINGERTIPS, target, self._goal)

    def judge(self, hand: Array, target: Array) -> tuple[float, bool]:
        """Return the reward and whether the task is solved, from positions. Shapes (3,)."""
        task, goal, fingers = self._task, self._goal, hand + FINGERTIPS
        solved = task.success(fingers, target, goal) <= task.radius
        x = task.distance(fingers, target, goal)
        near = 1000.0 * (math.exp(-(x**2) / 0.01) + math.exp(-(x**2) / 0.001))
        paid = max(0.0, 1000.0 * (self._start - x) + near)
        if not task.touch:
            return paid, solved
        away = math.dist(fingers, target)
        return (paid if away < _AT_OBJECT else 0.0) - away, solved
