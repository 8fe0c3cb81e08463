"""MuJoCo's warnings go to Python's log instead of a file in the working folder.

An unstable row is marked in its trajectory; MuJoCo's own text about it is for debugging.
"""

import logging

import mujoco

_log = logging.getLogger('lpgftw_ros.physics')


def _on_warning(text: str) -> None:
    _log.debug('MuJoCo: %s', text)


def log_warnings() -> None:
    """Send MuJoCo's warnings to the log, unless the program has its own handler."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_on_warning)
