"""Real processes over real DDS, each test module in a ROS domain of its own."""

from collections.abc import Iterator
import fcntl
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

DOMAINS = range(10, 100)  # above 101 the discovery ports meet the ephemeral ones


@pytest.fixture(scope='module')
def ros_domain() -> Iterator[int]:
    """Hold a domain no other test run on this machine uses, visible on this machine only."""
    folder = Path(tempfile.gettempdir()) / 'lpgftw-test-domains'
    folder.mkdir(exist_ok=True)
    old = {k: os.environ.get(k) for k in ('ROS_DOMAIN_ID', 'ROS_AUTOMATIC_DISCOVERY_RANGE')}
    for domain in DOMAINS:
        lock = (folder / str(domain)).open('w')
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        os.environ['ROS_DOMAIN_ID'] = str(domain)
        os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
        yield domain
        lock.close()
        break
    for key, value in old.items():
        os.environ.pop(key, None) if value is None else os.environ.update({key: value})


class Up:
    """`lpgftw up` as a user runs it."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, '-m', 'lpgftw_ros.cli', 'up', *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def output(self) -> str:
        return '\n'.join(self.lines)

    def children(self) -> list[int]:
        """Process ids of all node processes, from the kernel."""
        path = Path(f'/proc/{self.process.pid}/task/{self.process.pid}/children')
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def stop(self, number: int = signal.SIGINT, timeout: float = 15.0) -> float:
        """Send a signal and return the seconds until the end."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(timeout)
        self._reader.join(2.0)
        return time.monotonic() - started


@pytest.fixture(scope='module')
def start(ros_domain: int) -> Iterator[type[Up]]:
    """Start `lpgftw up`; whatever still runs at the end is stopped."""
    started: list[Up] = []

    def make(*options: str) -> Up:
        started.append(Up(*options))
        return started[-1]

    yield make
    for up in started:
        if up.process.poll() is None:
            up.stop()


class NodeProcess:
    """One node in its own process, without a supervisor."""

    def __init__(self, executable: str, *ros_arguments: str) -> None:
        self._log = tempfile.TemporaryFile('w+')  # noqa: SIM115
        words = [sys.executable, '-m', f'lpgftw_ros.nodes.{executable}', '--ros-args']
        self.process = subprocess.Popen(
            [*words, *ros_arguments], stdout=self._log, stderr=subprocess.STDOUT
        )
        self._executable = executable

    @property
    def output(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def up(self, timeout: float = 30.0) -> bool:
        """Wait until it tells on /diagnostics that it is there."""
        from lpgftw_ros.nodes.steering import Probe

        probe = Probe()
        end = time.monotonic() + timeout
        try:
            while time.monotonic() < end and self.process.poll() is None:
                probe.look(0.1)
                report = probe.reports.get(f'/{self._executable}')
                if report is not None and report.values['pid'] == str(self.process.pid):
                    return True
            return False
        finally:
            probe.close()

    def stop(self, number: int) -> tuple[float, int]:
        """Send a signal; return the seconds until the end and the exit code."""
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(15.0)
        return time.monotonic() - started, code


@pytest.fixture
def node_process(ros_domain: int) -> Iterator[type[NodeProcess]]:
    """Start single nodes; whatever still runs at the end is killed."""
    started: list[NodeProcess] = []

    def make(*words: str) -> NodeProcess:
        started.append(NodeProcess(*words))
        return started[-1]

    yield make
    for node in started:
        if node.process.poll() is None:
            node.process.kill()
            node.process.wait()
