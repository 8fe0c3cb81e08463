"""A shell with the real `ros2` in it: commands as a user types them, and their transcript."""

import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import time

import pytest

PATIENCE = float(os.environ.get('LPGFTW_PATIENCE', '120'))
needs_ros2 = pytest.mark.skipif(
    shutil.which('ros2') is None, reason='no ros2 command: source a ROS 2 installation first'
)


def record(text):
    """Append to the transcript, if one is asked for."""
    if path := os.environ.get('LPGFTW_TRANSCRIPT'):
        with open(path, 'a') as file:
            file.write(text + '\n')


class Started:
    """A command in a session of its own and what it says."""

    def __init__(self, command, folder):
        self.command = command
        self._path = Path(folder) / f'{time.monotonic_ns()}.log'
        with self._path.open('w') as log:
            self.process = subprocess.Popen(
                ['bash', '-c', f'exec {command}'],
                cwd=folder,
                env={**os.environ, 'PYTHONUNBUFFERED': '1'},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # a shell in the background ignores Ctrl-C and passes that on
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def output(self):
        return self._path.read_text(errors='replace')

    def until(self, condition, seconds=PATIENCE):
        """Wait for a condition, or for a pattern in what the command says."""
        holds = (lambda: re.search(condition, self.output)) if condition else lambda: False
        holds = condition if callable(condition) else holds
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if holds():
                return True
            if self.process.poll() is not None and not callable(condition):
                return bool(holds())
            time.sleep(0.2)
        return False

    def interrupt(self):
        """Press Ctrl-C; after a long while, kill."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def descendants(self):
        """Return the process ids below this command."""
        found, parents = [], {self.process.pid}
        table = {}
        for stat in Path('/proc').glob('[0-9]*/stat'):
            try:
                table[int(stat.parent.name)] = int(stat.read_text().rpartition(')')[2].split()[1])
            except OSError:  # it has ended
                continue
        while parents:
            parents = {pid for pid, parent in table.items() if parent in parents}
            found += parents
        return found


class Shell:
    """Runs commands in one folder, as a user types them."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, command):
        return Started(command, self.folder)

    def run(self, command, seconds=PATIENCE, until=''):
        """Run a command; after the time, or when it has said `until`, press Ctrl-C."""
        started = self.start(command)
        started.until(until, seconds)
        interrupted = started.process.poll() is None
        code, output = started.interrupt(), started.output
        shown = output if len(output) < 2000 else output[:1500] + '\n...\n' + output[-400:]
        record(f'$ {command}\n{shown.rstrip()}\n[rc {code}]\n')
        return code, output, interrupted
