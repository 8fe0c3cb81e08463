"""`lpgftw chaos`: break runs on purpose, resume them, and compare with an undisturbed one.

`kill`, `stop` and `disk` strike a run in a forked process, just before its n-th change of a file
in the run folder. `graph` strikes the nodes of a graph of its own by signals and cuts their
network, where the machine lets it have one. Only processes this command has started are touched.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
import errno
from functools import partial
import json
import os
from pathlib import Path
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lpgftw_ros import arguments
from lpgftw_ros.commands import train
from lpgftw_ros.errors import LpgftwError, UnknownName
from lpgftw_ros.graph.admission import require_no_arm
from lpgftw_ros.graph.supervisor import UDP_ONLY_VARIABLE
from lpgftw_ros.learning.registry import LEARNERS
from lpgftw_ros.runs.checkpoints import CheckpointStore
from lpgftw_ros.runs.folder import read_rows, read_summary

FAULTS = {
    'kill': 'kill the process',
    'stop': 'stop it, then let it go on or interrupt it',
    'disk': 'let the disk be full, read-only or broken',
    'graph': 'signals to the nodes of a graph, and splits of its network',
}
SUITE = """\
description: three short HalfCheetah tasks
kind: body
horizon: 20
defaults: {body: halfcheetah}
tasks:
  - {name: light, gravity: 0.7}
  - {name: heavy, gravity: 1.3}
  - {name: earth, gravity: 1.0}
sequence: [light, heavy, earth]
"""
SETTINGS = ('update_trajectories=3', 'evaluation_episodes=2', 'stochastic_episodes=2')
CHANGES = ('os.rename', 'os.remove', 'os.mkdir', 'os.truncate')
MOST_OPERATIONS = 40
"""Most file changes of a process before its fault strikes."""
REFUSALS = (errno.ENOSPC, errno.EROFS, errno.EIO)
"""A full disk, one that has become read-only, one that is broken."""
DONE, FAILED, INTERRUPTED = 0, 2, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = '; '.join(f'{name}: {text}' for name, text in FAULTS.items())
    parser.add_argument('fault', choices=FAULTS, metavar='FAULT', help=what)
    parser.add_argument('--count', type=arguments.count, default=30, help='faults per method')
    parser.add_argument('--seed', type=arguments.seed, default=0, help='seed of the faults')
    parser.add_argument(
        '--learners',
        type=arguments.names,
        default=tuple(name for name in LEARNERS if name != 'pg-ella'),
        help='methods, separated by commas (default: all but pg-ella)',
    )
    parser.add_argument('--json', action='store_true', help='print one JSON object')


@dataclass(slots=True)
class Campaign:
    """What happened to the runs of one method."""

    learner: str
    faults: int = 0
    runs: int = 0
    equal: int = 0
    seconds: float = 0.0
    messages: dict[str, int] = field(default_factory=dict)
    """What happened, and how often: errors about the full disk, signals and their nodes."""
    differences: list[str] = field(default_factory=list)


def run(args: argparse.Namespace) -> int:
    """Run the campaigns and print the outcome."""
    for learner in args.learners:
        if learner not in LEARNERS or learner == 'pg-ella':
            known = [name for name in LEARNERS if name != 'pg-ella']
            raise UnknownName('learner for chaos', learner, known)
    require_no_arm()
    with tempfile.TemporaryDirectory(prefix='lpgftw-chaos-') as folder:
        found = [
            campaign(learner, args.fault, args.count, args.seed, Path(folder))
            for learner in args.learners
        ]
    equal = all(one.runs and one.equal == one.runs for one in found)
    if args.json:
        print(json.dumps({'fault': args.fault, 'seed': args.seed, **_report(found, equal)}))
    else:
        _print(args.fault, found)
    return 0 if equal else 1


def campaign(learner: str, fault: str, count: int, seed: int, folder: Path) -> Campaign:
    """Break runs of one method until `count` faults have struck."""
    rng = random.Random(f'{learner} {fault} {seed}')
    suite = folder / 'chaos.yaml'
    suite.write_text(SUITE)
    whole = folder / f'{learner}-whole'
    began = time.monotonic()
    if _Child(_words(suite, learner, whole), whole, None).wait(rng)[0] != DONE:
        raise LpgftwError(f'the undisturbed run of {learner} failed')
    found = Campaign(learner)
    while found.faults < count:
        broken = folder / f'{learner}-broken'
        words = _words(suite, learner, broken)
        if fault == 'graph':
            break_graph(found, words, broken, count, rng)
        else:
            _break(found, words, broken, fault, count, rng)
        found.runs += 1
        difference = compare(whole, broken)
        found.equal += not difference
        if difference:
            found.differences.append(difference)
        shutil.rmtree(broken)
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _break(
    found: Campaign,
    words: Sequence[str],
    folder: Path,
    fault: str,
    count: int,
    rng: random.Random,
) -> None:
    """Restart a run, each time with a fault ahead, until it ends."""
    expected = {'kill': (-signal.SIGKILL,), 'stop': (INTERRUPTED,), 'disk': (FAILED,)}
    while True:
        after, refuse = rng.randint(1, MOST_OPERATIONS), partial(_refuse, rng.choice(REFUSALS))
        strikes: dict[str, Callable[[], None]] = {'kill': _kill, 'stop': _stop, 'disk': refuse}
        trap = _trap(folder, after, strikes[fault]) if found.faults < count else None
        child = _Child(words, folder, trap)
        code, said = child.wait(rng)
        found.faults += child.stops
        if code == DONE:
            return
        if trap is None or code not in expected[fault]:
            raise LpgftwError(f'{" ".join(words)} ended with {code}: {said}')
        found.faults += fault != 'stop'
        if fault == 'disk':
            _count(found.messages, re.sub(r'/\S+/', '', said))


def _count(tally: dict[str, int], what: str) -> None:
    tally[what] = tally.get(what, 0) + 1


def _words(suite: Path, learner: str, out: Path) -> list[str]:
    words = ['--suite', str(suite), '--learner', learner, '--seed', '7', '--resume']
    words += ['--iterations', '3', '--trajectories', '4', '--workers', '1', '--out', str(out)]
    names = [item.name for item in fields(LEARNERS[learner][0])]
    extra = ('max_columns=2',) if 'max_columns' in names else ()
    for setting in (*SETTINGS, *extra):
        words += ['--set', setting]
    return words


class _Child:
    """`lpgftw train` in a forked process, with a trap for it to run into."""

    def __init__(
        self, words: Sequence[str], folder: Path, trap: Callable[[str, Any], None] | None
    ) -> None:
        self._log = folder.with_suffix('.log')
        self.stops = 0
        """How often it was found stopped."""
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._live(words, trap)

    def _live(self, words: Sequence[str], trap: Callable[[str, Any], None] | None) -> None:
        code = 70
        try:
            with self._log.open('w') as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            if trap is not None:
                sys.addaudithook(trap)
            code = _train(words)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BaseException:
            traceback.print_exc()  # the parent shows its last line
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self, rng: random.Random) -> tuple[int, str]:
        """Return the exit code and the last line; what stops is continued or interrupted."""
        _, status = os.waitpid(self._pid, os.WUNTRACED)
        while os.WIFSTOPPED(status):
            self.stops += 1
            time.sleep(rng.uniform(0.0, 0.3))
            if rng.random() < 0.5:
                os.kill(self._pid, signal.SIGINT)
            os.kill(self._pid, signal.SIGCONT)
            _, status = os.waitpid(self._pid, os.WUNTRACED)
        lines = [line for line in self._log.read_text(errors='replace').splitlines() if line]
        return os.waitstatus_to_exitcode(status), lines[-1] if lines else ''


def _train(words: Sequence[str]) -> int:
    """Do what `lpgftw train` does; return its exit code."""
    parser = argparse.ArgumentParser(prog='lpgftw train')
    train.add_arguments(parser)
    try:
        return train.run(parser.parse_args(list(words)))
    except LpgftwError as error:
        print(f'lpgftw train: {error}', file=sys.stderr)
        return FAILED


def _trap(folder: Path, strike: int, fault: Callable[[], None]) -> Callable[[str, Any], None]:
    """Return an audit hook that strikes at the n-th change of a file."""
    left, inside = [strike], str(folder)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == 'open':
            changes = bool(args[2] and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        else:
            changes = event in CHANGES
        if not changes or not str(args[0]).startswith(inside):
            return
        left[0] -= 1
        if left[0] == 0:
            fault()

    return hook


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


# -- a graph and its network ------------------------------------------------------------------


SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT)
MOST_PER_START = 8
"""Faults a graph meets before it may end in peace."""
MOST_STARTS = 20
LONGEST = 900.0  # s a graph may run on after its last fault
_CONFINED = ('unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh')


def break_graph(
    found: Campaign, words: Sequence[str], folder: Path, count: int, rng: random.Random
) -> None:
    """Start a graph, again if it ended badly, and strike it until its run is complete."""
    for _ in range(MOST_STARTS):
        before = found.faults
        with _graph(words, folder, composed=rng.random() < 0.25) as graph:
            while graph.wait(rng.uniform(0.2, 4.0)) is None:
                if found.faults < min(count, before + MOST_PER_START):
                    found.faults += graph.strike(rng, found.messages)
        if graph.code == DONE:
            return
        if found.faults == before:
            raise LpgftwError(f'lpgftw up {" ".join(words)} ended with {graph.code}: {graph.said}')
    raise LpgftwError(f'lpgftw up {" ".join(words)} did not end in {MOST_STARTS} starts')


@contextmanager
def _graph(words: Sequence[str], folder: Path, composed: bool) -> Iterator['_Graph']:
    log = folder.with_suffix('.log')
    options = ['--namespace', f'/chaos_{os.getpid()}', '--scene']
    graph = _Graph([*words, *options, *(['--composed'] if composed else [])], log)
    try:
        yield graph
    finally:
        graph.close()


class _Graph:
    """`lpgftw up`, in a network of its own if the machine gives one."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._log, self._stopped = log, dict[int, float]()
        self.confined = _can_confine()
        command = [sys.executable, '-m', 'lpgftw_ros.cli', 'up', *words]
        with log.open('w') as output:
            self._up = subprocess.Popen(
                [*_CONFINED, *command] if self.confined else command,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, UDP_ONLY_VARIABLE: '1' if self.confined else ''},
            )
        self._deadline = time.monotonic() + LONGEST

    @property
    def code(self) -> int | None:
        """Exit code; None as long as it runs."""
        return self._up.poll()

    @property
    def said(self) -> str:
        """The last line it wrote."""
        lines = self._log.read_text(errors='replace').splitlines()
        return lines[-1] if lines else ''

    def wait(self, seconds: float) -> int | None:
        """Wait so long, or until the end; return the exit code. What was stopped goes on."""
        end = time.monotonic() + seconds
        while self.code is None and time.monotonic() < end:
            time.sleep(0.02)
            for pid, until in list(self._stopped.items()):
                if time.monotonic() > until:
                    del self._stopped[pid]
                    _signal(pid, signal.SIGCONT)
        if time.monotonic() > self._deadline:
            raise LpgftwError(f'a graph hangs; it said last: {self.said}')
        return self.code

    def strike(self, rng: random.Random, tally: dict[str, int]) -> bool:
        """Send a random signal to a random node, or cut the network for a moment."""
        self._deadline = time.monotonic() + LONGEST
        if self.confined and rng.random() < 0.15:
            _count(tally, 'network split')
            self._split(rng.uniform(0.2, 3.0))
            return True
        nodes = sorted((name, pid) for pid, name in _nodes(self._up.pid).items())
        if not nodes:
            return False
        (name, pid), number = rng.choice(nodes), rng.choice(SIGNALS)
        if not _signal(pid, number):
            return False
        if number == signal.SIGSTOP:
            self._stopped[pid] = time.monotonic() + rng.uniform(0.2, 3.0)
        _count(tally, f'{number.name} {name}')
        return True

    def _split(self, seconds: float) -> None:
        for state in ('down', 'up'):
            inside = ['nsenter', '--target', str(self._up.pid), '--net']
            link = ['ip', 'link', 'set', 'lo', state]
            subprocess.run([*inside, *link], capture_output=True, check=False)
            if state == 'down':
                self.wait(seconds)

    def close(self) -> None:
        """End the graph and everything in it."""
        for pid in self._stopped:
            _signal(pid, signal.SIGCONT)
        if self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)
            try:
                self._up.wait(15.0)
            except subprocess.TimeoutExpired:
                self._up.kill()
                self._up.wait()


def _can_confine() -> bool:
    """Return whether this machine lets us have a network of our own."""
    try:
        return (
            subprocess.run([*_CONFINED, 'true'], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


def _nodes(up: int) -> dict[int, str]:
    """Return the node processes of a graph by their process ids."""
    found = {}
    try:
        children = Path(f'/proc/{up}/task/{up}/children').read_text().split()
        for pid in children:
            words = Path(f'/proc/{pid}/cmdline').read_text()
            if node := re.search(r'lpgftw_ros\.nodes\.(\w+)', words):
                found[int(pid)] = node[1]
    except OSError:  # it has just ended
        pass
    return found


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def compare(whole: Path, other: Path) -> str:
    """Return how a run differs from another; empty if only in time."""
    rows = [
        [{k: v for k, v in row.items() if k != 'timing'} for row in read_rows(run)]
        for run in (whole, other)
    ]
    if rows[0] != rows[1]:
        first = next(
            (i for i, (a, b) in enumerate(zip(*rows, strict=False)) if a != b), len(rows[1])
        )
        return f'row {first + 1} of metrics.jsonl differs'
    states = [CheckpointStore(run / 'checkpoints').newest().state for run in (whole, other)]
    for name in sorted(states[0].keys() | states[1].keys()):
        arrays = [state.get(name) for state in states]
        if any(array is None for array in arrays) or not np.array_equal(*arrays):  # type: ignore[arg-type]
            return f'{name} of the checkpoint differs'
    if read_summary(whole)['tasks'] != read_summary(other)['tasks']:
        return 'summary.json differs'
    return ''


def _report(found: Sequence[Campaign], equal: bool) -> dict[str, Any]:
    # Not by `asdict`, which would count the items of the Counter anew.
    campaigns = [{one.name: getattr(c, one.name) for one in fields(c)} for c in found]
    return {'equal': equal, 'campaigns': campaigns}


def _print(fault: str, found: Sequence[Campaign]) -> None:
    table = Table(title=f'chaos {fault}', title_justify='left')
    for column in ('method', 'faults', 'runs', 'equal', 'seconds', 'differences'):
        left = column in ('method', 'differences')
        table.add_column(column, justify='left' if left else 'right')
    for one in found:
        shown = '; '.join(one.differences) or 'none'
        numbers = (str(n) for n in (one.faults, one.runs, one.equal, round(one.seconds)))
        table.add_row(one.learner, *numbers, shown)
    Console().print(table)
    for one in found:
        for message, times in sorted(one.messages.items()):
            print(f'{one.learner}: {times} x {message}')
