r"""How different the tasks of a suite are: policies learned alone, run on each other's tasks.

The gap of task j is :math:`1 - \bar R_{\cdot j} / R_{jj}`: what is lost on average when the task
is met with the policy of another one. Zero: one policy does for all.
"""

from dataclasses import dataclass
import json
from pathlib import Path

import numpy as np

from lpgftw_ros.experiments.run_files import BadRunFolder
from lpgftw_ros.learning.arrays import Array

FILE = 'cross_returns.json'


@dataclass(frozen=True, slots=True)
class CrossReturns:
    """Returns of every policy of a run on every task."""

    tasks: tuple[str, ...]
    returns: Array
    """Row i: policy of task i; column j: on task j. Shape (tasks, tasks)."""

    def gaps(self) -> Array:
        """Return the gap of each task; NaN where its own return is not positive."""
        n = len(self.tasks)
        own = np.diag(self.returns)
        others = (self.returns.sum(axis=0) - own) / max(1, n - 1)
        safe = np.where(own > 0.0, own, np.nan)
        return np.asarray(1.0 - others / safe) if n > 1 else np.zeros(n)


def read_cross_returns(run: Path) -> CrossReturns | None:
    """Return the cross returns kept in a run folder, None if there are none."""
    if not (run / FILE).is_file():
        return None
    try:
        content = json.loads((run / FILE).read_text(encoding='utf-8'))
        return CrossReturns(tuple(content['tasks']), np.array(content['returns'], dtype=float))
    except (ValueError, KeyError, TypeError) as error:
        raise BadRunFolder(f"cannot read '{run / FILE}': {error!r}") from error


def write_cross_returns(run: Path, found: CrossReturns) -> None:
    """Keep cross returns in a run folder."""
    content = {'tasks': found.tasks, 'returns': np.round(found.returns, 3).tolist()}
    (run / FILE).write_text(json.dumps(content) + '\n', encoding='utf-8')
