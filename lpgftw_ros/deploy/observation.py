"""Between the policy's world and the arm's: a frame, a speed scale, a gripper rule.

A policy learned in Meta-World's frame (workspace along +y) with steps of 1 cm at 80 Hz, which is
0.8 m/s. On an arm the same action means a velocity: clip(a, -1, 1) times a chosen speed. The frame
applies to observations and actions alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import math
from typing import Any

import numpy as np

from lpgftw_ros.deploy.safety.limits import SPEED_CAP
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.arrays import Array, require_finite, require_shape
from lpgftw_ros.learning.config import check_settings, setting

Numbers = Sequence[float] | Array
OBS_DIM, ACT_DIM = 6, 4
SIM_RATE, SIM_STEP = 80.0, 0.01
"""Control steps per second and metres per full action in Meta-World."""


def three_numbers(name: str, text: str) -> Array:
    """Return the three finite numbers a setting holds, separated by spaces. Shape (3,)."""
    try:
        numbers = np.array([float(word) for word in text.split()])
    except ValueError:
        numbers = np.zeros(0)
    if numbers.shape != (3,) or not np.isfinite(numbers).all():
        raise InvalidConfig(f"{name} must be three numbers separated by spaces, got '{text}'")
    return numbers


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the training frame lies in the arm's base frame: base = R training + t."""

    rotation: Array
    """Shape (3, 3)."""
    translation: Array
    """Shape (3,)."""

    @classmethod
    def from_numbers(cls, xyz: Numbers, rpy: Numbers) -> 'Frame':
        """Build from a translation (m) and roll, pitch, yaw (rad), as ROS writes frames."""
        (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
        about_x = np.array([[1.0, 0.0, 0.0], [0.0, cr, -sr], [0.0, sr, cr]])
        about_y = np.array([[cp, 0.0, sp], [0.0, 1.0, 0.0], [-sp, 0.0, cp]])
        about_z = np.array([[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]])
        return cls(about_z @ about_y @ about_x, np.asarray(xyz, dtype=np.float64))

    def to_training(self, point: Array) -> Array:
        """Return a point of the arm's base in the training frame."""
        return self.rotation.T @ (point - self.translation)

    def turn_to_base(self, vector: Array) -> Array:
        """Return a direction or velocity of the training frame in the arm's base."""
        return self.rotation @ vector


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlSettings:
    """How actions become motion."""

    rate: float = setting(20.0, 'control steps per second, Hz', min=1.0, max=100.0)
    full_speed: float = setting(0.10, 'hand speed of a full action, m/s', min=0.0, max=1.0)
    speed_cap_raised: bool = setting(False, 'allow a full_speed above 0.25 m/s')
    gripper_threshold: float = setting(
        0.3, 'close above it, open below its negative, else stay', min=0.0, max=1.0
    )

    def __post_init__(self) -> None:
        """Reject values out of range, and speeds above the cap unless it is raised."""
        check_settings(self)
        if self.full_speed > SPEED_CAP and not self.speed_cap_raised:
            raise InvalidConfig(
                f'full_speed {self.full_speed} m/s is above {SPEED_CAP} m/s; '
                'set speed_cap_raised if that is meant'
            )

    @property
    def period(self) -> float:
        """Seconds per control step."""
        return 1.0 / self.rate

    def horizon(self, sim_steps: int) -> int:
        """Return the control steps in which the hand gets as far as in simulated ones."""
        if self.full_speed <= 0.0:
            raise InvalidConfig('a full_speed of 0 never gets anywhere')
        slower = SIM_RATE * SIM_STEP / self.full_speed
        return math.ceil(sim_steps * slower * self.rate / SIM_RATE)


def observation(frame: Frame, hand: Array, target: Array) -> Array:
    """Return what the policy sees: hand and object position, training frame. Shape (6,)."""
    both = np.concatenate([frame.to_training(hand), frame.to_training(target)])
    require_finite('observation', both)
    return both


def hand_velocity(frame: Frame, settings: ControlSettings, action: Array) -> Array:
    """Return the hand velocity an action asks for, arm base frame, m/s. Shape (3,).

    Its norm is limited too: the corner of Meta-World's action cube is 1.7 times as fast.
    """
    require_shape('action', action, (ACT_DIM,))
    require_finite('action', action)
    wanted = np.clip(action[:3], -1.0, 1.0)
    size = float(np.linalg.norm(wanted))
    return frame.turn_to_base(wanted * (settings.full_speed / max(size, 1.0)))


class Gripper:
    """Opens or closes fully, with hysteresis: real grippers must not chatter."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self.value = -1.0

    def reset(self) -> None:
        """Open."""
        self.value = -1.0

    def decide(self, action: float) -> float:
        """Return 1 (close) or -1 (open)."""
        if abs(action) > self._threshold:
            self.value = math.copysign(1.0, action)
        return self.value


# Reward and success on an arm, from measurements: hand, object, goal.
#
# The shape is that of the paper's Meta-World rewards. With x the distance that counts and D its
# value at the start of the episode,
#
# .. math:: K(x) = \max(0,\; 1000 (D - x) + 1000 (e^{-x^2/0.01} + e^{-x^2/0.001})),
#
# reach pays K of the distance between fingers and goal; push and drawer-close pay minus the
# distance between fingers and object, and K as well while the fingers are at the object.
# Success is Meta-World's.


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
