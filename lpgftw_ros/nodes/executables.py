"""Executables of the nodes: `executables.policy` loads the policy node and runs it.

Loading a node takes a second or two. A signal that comes meanwhile ends the process as if it had
not been started, without a traceback; afterwards the node handles signals itself.
"""

from collections.abc import Callable
from functools import partial
import importlib
import os
import signal


def __getattr__(node: str) -> Callable[[], None]:
    """Return the executable of a node."""
    if node.startswith('_'):
        raise AttributeError(node)
    return partial(_start, node)


def _start(node: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    importlib.import_module(f'lpgftw_ros.nodes.{node}').main()
