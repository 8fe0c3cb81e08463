"""What the guard says about itself: a level, a cause, and how often each cause was met."""

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
    'waiting': 'ready, waiting for the first command and fresh inputs',
    'workspace': 'the hand would leave the workspace box',
    'speed': 'the hand would be too fast',
    'acceleration': 'the hand would speed up, slow down or turn too hard',
    'joint_limit': 'a joint would pass its limit',
    'joint_speed': 'a joint would be too fast',
    'joint_acceleration': 'a joint would accelerate too hard',
    'tilt': 'the tool would tilt too far from straight down',
    'not_finite': 'a message has numbers that are not finite or the wrong count of them',
    'jump': 'a message is too far from the one before it or from its limit',
    'sequence': 'a command is older than one already received',
    'first_command': 'the first command does not start where the arm is',
    'contract': 'the command comes from another policy than the one agreed',
    'stale_joints': 'no fresh joint state',
    'stale_object': 'no fresh object pose',
    'stale_action': 'no fresh command',
    'clock': 'the steady clock jumped or the guard was not called in time',
    'tracking': 'the arm is not where it was sent',
    'emergency_stop': 'emergency stop',
    'deadman': 'the deadman is not held',
    'second_writer': 'another node writes commands to the arm',
}
"""Every cause the guard knows, in words for people."""


class SafetyRefused(LpgftwError):
    """The guard does not allow what was asked of it."""


class Mode(Enum):
    """Where the guard's state machine is."""

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


def worst(code: str, value: Array, low: Array, high: Array, unit: str) -> Finding:
    """Return the coordinate that is furthest outside [low, high]."""
    below, above = low - value, value - high
    i = int(np.argmax(np.maximum(below, above)))
    return Finding(code, float(value[i]), float(low[i] if below[i] > above[i] else high[i]), unit)


@dataclass(frozen=True, slots=True)
class SafetyReport:
    """The guard's present state."""

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
        """Start counting anew."""
        self._counts.clear()

    def count(self, code: str) -> None:
        """Count one intervention."""
        self._counts[code] += 1

    def state(self, level: Level, finding: Finding, now: float, count: bool = True) -> None:
        """Set the present state; a change of level or cause is timed and (if `count`) counted."""
        if (level, finding.code) != (self._level, self._finding.code):
            self._since = now
            if count and finding.code not in ('ok', 'inactive', 'waiting'):
                self._counts[finding.code] += 1
        self._level, self._finding = level, finding

    def report(self) -> SafetyReport:
        """Return the present state."""
        found = self._finding
        return SafetyReport(
            self._level,
            found.code,
            CODES[found.code],
            found.value,
            found.limit,
            found.unit,
            self._since,
            self._counts.total(),
            dict(self._counts),
        )
