"""Lifelong robot learning with factored policies, in ROS 2 and in process."""

import importlib
import os
from typing import Any

from lpgftw_ros.arithmetic import pin

__version__ = '0.2.0'
ARITHMETIC = pin(os.environ)
"""`pinned`, or why this process uses the computer's own kernels."""

_API = ('Policy', 'Run', 'evaluate', 'load', 'register_method', 'train')


def __getattr__(name: str) -> Any:
    """Load the Python API when it is first used: numpy must not load before the pins are set."""
    if name in _API:
        return getattr(importlib.import_module('lpgftw_ros.api'), name)
    raise AttributeError(f"module 'lpgftw_ros' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return what there is, the API included."""
    return sorted((*globals(), *_API))
