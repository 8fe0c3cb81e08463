"""ROS nodes: the only place for rclpy and message types."""

from collections.abc import Callable
from functools import partial
import importlib
import os
import signal

if not os.environ.get('DISPLAY'):  # read when MuJoCo is imported; ROS starts nodes without it
    os.environ.setdefault('MUJOCO_GL', 'egl')


def __getattr__(name: str) -> Callable[[], None]:
    """Return the executable of a node: `run_policy` loads the policy node and runs it."""
    if not name.startswith('run_'):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return partial(_run, name.removeprefix('run_'))


def _run(node: str) -> None:
    """Load a node, which takes a second or two, and run it.

    A signal that comes meanwhile ends the process as if it had not been started, without a
    traceback; afterwards the node handles signals itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    importlib.import_module(f'{__name__}.{node}').main()
