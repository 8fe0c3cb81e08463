"""The paper: LPG-FTW and the methods it is compared with. No ROS, no simulator, no files."""

import importlib
from typing import Any, TYPE_CHECKING

from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.learner import (
    FinishReport,
    Learner,
    STATE_PARTS,
    StepReport,
    ValueReport,
)
from lpgftw_ros.learning.policies import Knowledge, PolicySnapshot, PolicySpec, TaskFactors

if TYPE_CHECKING:
    from lpgftw_ros.learning.local_model import LocalModel
    from lpgftw_ros.learning.registry import LEARNERS, make_learner

# These load scipy's solvers, the slowest import of all: nodes that only act, and
# commands that only read settings, start without them.
_LATE = {'LocalModel': 'local_model', 'LEARNERS': 'registry', 'make_learner': 'registry'}

__all__ = [
    'LEARNERS',
    'STATE_PARTS',
    'Batch',
    'FinishReport',
    'Knowledge',
    'Learner',
    'LocalModel',
    'PolicySnapshot',
    'PolicySpec',
    'StepReport',
    'TaskFactors',
    'TrainingConfig',
    'ValueReport',
    'make_learner',
]


def __getattr__(name: str) -> Any:
    """Load a late name on first use."""
    if name not in _LATE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f'{__name__}.{_LATE[name]}'), name)
