"""The guard's report: a level, a cause, and how often each cause occurred."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
import math

import numpy as np

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array

CODES = {
    'ok': 'commands pass unchanged',
    'inactive': 'the guard is not active',
    'waiting': 'ready, waiting for a command, fresh inputs and three joint states that agree',
    'workspace': 'the hand would leave the workspace box',
    'speed': 'the hand would be too fast',
    'acceleration': 'the hand would speed up, slow down or turn too hard',
    'joint_limit': 'a joint would pass its limit',
    'joint_speed': 'a joint would be too fast',
    'joint_acceleration': 'a joint would accelerate too hard',
    'tilt': 'the tool would tilt too far from straight down',
    'not_finite': 'a message has numbers that are not finite or the wrong count of them',
    'frame': 'a message names no frame, or another one than the arm base',
    'jump': 'a message is too far from the one before it or from its limit',
    'sequence': 'a message is older than one already received',
    'first_command': 'the first command does not start where the arm is',
    'contract': 'the policy is not the one agreed, or no longer tells its contract',
    'stale_joints': 'no fresh joint state',
    'stale_object': 'no fresh object pose',
    'stale_action': 'no fresh command',
    'clock': 'the clock jumped, the machine slept or the guard was not called in time',
    'standstill': 'the arm is sent on, but its joints are measured standing still',
    'tracking': 'the arm is not where it was sent',
    'emergency_stop': 'emergency stop',
    'deadman': 'the deadman is not held',
    'second_writer': 'another node writes commands to the arm',
}
"""Every cause the guard knows, in words for people."""


class SafetyRefused(LpgftwError):
    """The guard refuses a request."""


class Mode(Enum):
    """State of the guard's state machine."""

    INACTIVE = 'inactive'
    WAITING = 'waiting'
    RUNNING = 'running'
    LATCHED = 'latched'


class Level(IntEnum):
    """How far the guard intervenes; the numbers of SafetyState.msg."""

    OK = 0
    LIMITED = 1
    STOPPED = 2
    LATCHED = 3
    INACTIVE = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """A limit that was met."""

    code: str
    value: float = math.nan
    limit: float = math.nan
    unit: str = ''
    parameter: str = ''
    """The limit's name in the limits file, or in the arm file."""

    @property
    def text(self) -> str:
        """The cause in words, with the parameter the limit comes from."""
        return f'{CODES[self.code]} ({self.parameter})' if self.parameter else CODES[self.code]


def worst(code: str, value: Array, low: Array, high: Array, unit: str, parameter: str) -> Finding:
    """Return the coordinate that is furthest outside [low, high]."""
    below, above = low - value, value - high
    i = int(np.argmax(np.maximum(below, above)))
    bound = float(low[i] if below[i] > above[i] else high[i])
    return Finding(code, float(value[i]), bound, unit, parameter)


@dataclass(frozen=True, slots=True)
class SafetyReport:
    """The guard's current state."""

    level: Level
    code: str
    text: str
    value: float
    limit: float
    unit: str
    since: float
    """When level and code became this, on the caller's steady clock."""
    count: int
    """Interventions since activation."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The same by code."""


class Reporter:
    """Keeps the report and counts interventions.

    A dropped message counts each time; a limit that stays active counts once until it is left.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._level, self._finding, self._since = Level.INACTIVE, Finding('inactive'), 0.0

    def clear(self) -> None:
        """Start counting from zero."""
        self._counts.clear()

    def count(self, code: str) -> None:
        """Count one intervention."""
        self._counts[code] += 1

    def state(self, level: Level, finding: Finding, now: float, count: bool = True) -> None:
        """Set the current state; a change of level or cause is timed and (if `count`) counted."""
        if (level, finding.code) != (self._level, self._finding.code):
            self._since = now
            if count and finding.code not in ('ok', 'inactive', 'waiting'):
                self._counts[finding.code] += 1
        self._level, self._finding = level, finding

    def report(self) -> SafetyReport:
        """Return the current state."""
        found = self._finding
        return SafetyReport(
            self._level,
            found.code,
            found.text,
            found.value,
            found.limit,
            found.unit,
            self._since,
            self._counts.total(),
            dict(self._counts),
        )
