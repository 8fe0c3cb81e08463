"""Where the cells of an experiment run: processes of this machine, or tasks of a Ray cluster.

Both run the same command: this Python with the words given, output in a log file.
"""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import Any, Protocol

import lpgftw_ros
from lpgftw_ros.errors import LpgftwError

GRACE_SECONDS = 10.0
"""Time between asking a process to end and ending it."""


class Backend(Protocol):
    """Runs commands and says which have ended."""

    @property
    def capacity(self) -> int:
        """Commands that may run at once."""

    def start(self, key: str, words: Sequence[str], log: Path) -> None:
        """Start a command under a name of its own."""

    def poll(self) -> Mapping[str, int]:
        """Return exit codes of the commands that ended since the last call."""

    def stop(self) -> None:
        """End everything that still runs."""


def source_root() -> str:
    """Return the folder this package is imported from."""
    return str(Path(lpgftw_ros.__file__).resolve().parents[1])


def launch(words: Sequence[str], log: Path) -> 'subprocess.Popen[bytes]':
    """Start this Python with the given words in a session of its own."""
    paths = [source_root(), *filter(None, [os.environ.get('PYTHONPATH')])]
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(paths)}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open('ab') as output:
        return subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def end(processes: Sequence['subprocess.Popen[bytes]']) -> None:
    """Ask processes and their children to end, then make them."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: 'subprocess.Popen[bytes]', number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


class LocalProcesses:
    """Up to `jobs` processes on this machine."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def capacity(self) -> int:
        """Commands that may run at once."""
        return self._jobs

    def start(self, key: str, words: Sequence[str], log: Path) -> None:
        """Start a command under a name of its own."""
        self._running[key] = launch(words, log)

    def poll(self) -> Mapping[str, int]:
        """Return exit codes of the commands that ended since the last call."""
        codes = {key: process.poll() for key, process in self._running.items()}
        ended = {key: code for key, code in codes.items() if code is not None}
        for key in ended:
            del self._running[key]
        return ended

    def stop(self) -> None:
        """End everything that still runs."""
        end(list(self._running.values()))
        self._running.clear()


def run_to_end(words: Sequence[str], log: str) -> int:
    """Run a command and return its exit code; cancelling the call ends the command."""
    process = launch(words, Path(log))
    try:
        while (code := process.poll()) is None:
            time.sleep(0.1)  # an endless wait() would not notice that Ray cancels this call
        return code
    finally:
        if process.poll() is None:
            end([process])


class RayTasks:
    """Tasks of a Ray cluster that shares this machine's files; `local` starts one here."""

    def __init__(self, address: str, cpus_per_task: int, jobs: int | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise LpgftwError('--ray needs the package ray: pip install ray') from None
        self._ray: Any = ray
        environment = {'env_vars': {'PYTHONPATH': source_root()}}
        options: dict[str, Any] = {} if address == 'local' else {'address': address}
        if address == 'local':
            options = {'include_dashboard': False, 'num_cpus': (jobs or 1) * cpus_per_task}
        try:
            ray.init(runtime_env=environment, log_to_driver=False, logging_level=40, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise LpgftwError(f"no Ray cluster at '{address}': {error}") from error
        self._task = ray.remote(num_cpus=cpus_per_task, max_retries=0)(run_to_end)
        self._jobs = jobs or 10_000
        self._keys: dict[Any, str] = {}

    @property
    def capacity(self) -> int:
        """Commands that may be handed over at once; Ray queues what does not fit."""
        return self._jobs

    def start(self, key: str, words: Sequence[str], log: Path) -> None:
        """Hand a command to the cluster under a name of its own."""
        self._keys[self._task.remote(list(words), str(log.resolve()))] = key

    def poll(self) -> Mapping[str, int]:
        """Return exit codes of the commands that ended since the last call."""
        if not self._keys:
            return {}
        ready, _ = self._ray.wait(list(self._keys), num_returns=len(self._keys), timeout=0)
        return {self._keys.pop(reference): self._code(reference) for reference in ready}

    def _code(self, reference: Any) -> int:
        try:
            return int(self._ray.get(reference))
        except self._ray.exceptions.RayError:
            return -1  # the node or its worker is gone; the cell can be resumed

    def stop(self) -> None:
        """Cancel everything that still runs and leave the cluster."""
        for reference in self._keys:
            self._ray.cancel(reference)
        if self._keys:
            self._ray.wait(
                list(self._keys), num_returns=len(self._keys), timeout=2 * GRACE_SECONDS
            )
        self._keys.clear()
        self._ray.shutdown()
