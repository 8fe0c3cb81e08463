"""Between the policy's world and the arm's: one frame, one scale, one gripper rule.

A policy learned in Meta-World's frame (workspace along +y) with steps of 1 cm at 80 Hz, which is
0.8 m/s. On an arm the same action means a velocity: clip(a, -1, 1) times a speed that is chosen.
The frame is applied to observations and actions alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math

import numpy as np

from lpgftw_ros.deploy.safety_limits import SPEED_CAP
from lpgftw_ros.errors import InvalidConfig
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
        """Reject values out of range and speeds nobody asked for."""
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
        """Return the control steps in which the hand gets as far as in `sim_steps` simulated."""
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
    """Opens or closes fully, with hysteresis: real grippers do not like to chatter."""

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
