r"""When a task ends, when it starts again, and what a lifetime spends beside its iterations.

With the mean returns :math:`R_i` of the last w iterations, a task is on a plateau if

.. math:: \bar R_{late} - \bar R_{early} < \gamma\,|\bar R_{late}|

for the later and the earlier half of the window; it has lasting success if every batch of the
later half succeeded in at least 95 %, and the plateau is reached too. A task is stuck if no batch
of the window had a success, their mean :math:`\bar R` is above the first batch by less than a
share of the most a finished task earned, and far below what finished tasks earn:
:math:`\bar R < M - 0.9\,|M|` with their median M. So a task that starts well is never stuck.

Draws, restarts and probes take more trajectories than the iterations requested. What finished
tasks (with the batch of their last iteration) and the probes of start, guard and inheritance took
too much is a debt of D trajectories, and the probes of a task will take about as many as those of
the one before, E. With a payback p a task that may take N iterations of n trajectories takes

.. math:: N - \min(\lceil (D + E) / n \rceil, \lfloor p N \rfloor)

so that a lifetime comes down to the steps requested.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
import math

import numpy as np

from lpgftw_ros.learning.adaptive.config import AdaptiveConfig
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.serialise import AnyArray, StateReader

LASTING = 0.95
"""Success rate that counts as solved."""
FAR = 0.9
"""Share of the median return of finished tasks by which a stuck task is below it."""


@dataclass(frozen=True, slots=True)
class Account:
    """Trajectories of a lifetime."""

    learning: int = 0
    """Of all iterations."""
    guard: int = 0
    inheritance: int = 0
    debt: int = 0
    """Taken by probes and finished tasks beyond what was requested; below 0: not taken."""
    batch: int = 1
    """Of the latest iteration."""
    probes: int = 0
    """Of all probes since the last task ended."""
    probes_before: int = 0
    """Of those between the ends of the two tasks before."""

    def left(self, share: float, spent: int) -> float:
        """Return what a part may still spend that has a share of the learning."""
        return share * self.learning - spent

    def allowed(self, asked: int, payback: float) -> int:
        """Return how many of the iterations requested a task may take."""
        owed = math.ceil(max(0, self.debt + self.probes_before) / self.batch)
        return asked - min(owed, int(payback * asked))

    def probed(self, n: int, part: str | None) -> 'Account':
        """Return the account after a probe, maybe of a part that has a share of its own."""
        spent = {} if part is None else {part: getattr(self, part) + n}
        return replace(self, debt=self.debt + n, probes=self.probes + n, **spent)

    def settled(self, beyond: int) -> 'Account':
        """Return the account after a task that took so many more iterations than requested."""
        debt = self.debt + beyond * self.batch
        return replace(self, debt=debt, probes=0, probes_before=self.probes)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the state of the account."""
        numbers = (self.learning, self.guard, self.inheritance)
        return {
            'run/account': np.array(numbers, np.uint64),
            'run/debt': np.array(
                [self.debt, self.batch, self.probes, self.probes_before], np.int64
            ),
        }

    @classmethod
    def read(cls, reader: StateReader) -> 'Account':
        """Read what `arrays` returned."""
        shares = reader.array('run/account', (3,), np.uint64)
        owed = reader.array('run/debt', (4,), np.int64)
        return cls(*(int(n) for n in (*shares, *owed)))


def history_sizes(config: AdaptiveConfig) -> dict[str, int]:
    """Return the vectors kept beside a task.

    What its last iterations earned and what the first one did; whether its start is still to be
    measured and whether its iterations are over; how many iterations were requested.
    """
    window = config.plateau_window
    flags = {'unmeasured': 1, 'over': 1, 'asked': 1}
    return {'returns': window, 'success': window, 'first': 1, **flags}


def remember(history: Mapping[str, Array], batch: Batch, *, first: bool) -> dict[str, Array]:
    """Return the history with one more batch, the oldest dropped."""
    value, success = float(np.mean(batch.returns)), float(np.mean(batch.success))
    return dict(history) | {
        'returns': np.append(history['returns'][1:], value),
        'success': np.append(history['success'][1:], success),
        'first': np.array([value]) if first else history['first'],
        'unmeasured': np.zeros(1),
        'over': np.zeros(1),
    }


def recent_return(history: Mapping[str, Array], n: int = 3) -> float:
    """Return the mean return of the last few batches."""
    return float(np.mean(history['returns'][-n:]))


def is_over(history: Mapping[str, Array], iteration: int, config: AdaptiveConfig) -> bool:
    """Return whether a task with this history ends now."""
    window = config.plateau_window
    if config.until == 'iterations' or iteration < max(config.least_iterations, window):
        return False
    early, late = np.split(history['returns'], 2)
    flat = float(late.mean() - early.mean()) < config.plateau_gain * abs(float(late.mean()))
    if config.until == 'plateau':
        return flat
    return flat and bool(np.all(history['success'][window // 2 :] >= LASTING))


def is_stuck(
    history: Mapping[str, Array], iteration: int, earned: Mapping[str, Array], share: float
) -> bool:
    """Return whether a task has come nowhere, measured by what finished tasks earned."""
    if not earned or history['success'].any():
        return False
    levels = [float(np.mean(returns)) for returns in earned.values()]
    usual, scale = float(np.median(levels)), max(abs(level) for level in levels)
    recent = recent_return(history, min(iteration, len(history['returns'])))
    gained = recent - float(history['first'][0])
    return gained < share * scale and recent < usual - FAR * abs(usual)
