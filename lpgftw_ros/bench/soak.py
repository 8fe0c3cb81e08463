"""`lpgftw bench soak`: does a graph that runs for hours grow?

Starts a real `lpgftw up`, and every few seconds writes what each of its processes holds: memory,
file descriptors, threads. What is there at the end is compared with what was there when the
graph had settled.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
import json
import os
from pathlib import Path
import re
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.bench.ros import own_domain
from lpgftw_ros.errors import LpgftwError

MEASURES = {'pss': 'memory, MB (shared pages divided)', 'descriptors': '', 'threads': ''}
"""What is compared and drawn; `rss` is written beside them."""
MOST_GROWTH = 0.05
WINDOW = 600.0  # s at the end and after the settling that are compared, at most
END_TIME = 30.0  # s the graph may take to end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--out', type=arguments.new_folder, required=True, help='new folder')
    parser.add_argument('--minutes', type=arguments.positive, default=120.0, help='how long')
    parser.add_argument(
        '--settle', type=arguments.positive, default=30.0, help='minutes before growth counts'
    )
    parser.add_argument(
        '--every', type=arguments.positive, default=10.0, help='seconds between two samples'
    )
    parser.add_argument(
        'up', nargs='*', metavar='-- OPTION', help='options of lpgftw up (default: --suite mt10)'
    )


def run(args: argparse.Namespace) -> int:
    """Let a graph run, draw what it held, and say whether it grew."""
    args.out.mkdir(parents=True, exist_ok=True)
    samples = args.out / 'samples.jsonl'
    if samples.exists():
        raise LpgftwError(f'{samples} is there already; choose another --out')
    words = args.up or ['--suite', 'mt10']
    began = time.monotonic()
    with own_domain(), _graph(words, args.out) as graph, samples.open('w') as file:
        while graph.poll() is None and time.monotonic() - began < 60.0 * args.minutes:
            row = {'seconds': time.monotonic() - began, 'processes': look(graph.pid)}
            file.write(json.dumps(row) + '\n')
            file.flush()
            _wait(graph, args.every)
        ended = graph.poll()
    found = growth(read(samples), 60.0 * args.settle)
    draw(read(samples), args.out / 'soak.png')
    (args.out / 'soak.json').write_text(json.dumps(found, indent=2) + '\n')
    print(text(found))
    if ended is not None:
        minutes = (time.monotonic() - began) / 60.0
        print(f'the graph ended by itself after {minutes:.1f} minutes, exit code {ended}')
    grown = any(value > MOST_GROWTH for one in found.values() for value in one['growth'].values())
    return 1 if grown or ended is not None else 0


@contextmanager
def _graph(words: Sequence[str], folder: Path) -> Iterator['subprocess.Popen[bytes]']:
    """Run `lpgftw up` with its output in a file; end it kindly."""
    command = [sys.executable, '-m', 'lpgftw_ros.cli', 'up', '--out', str(folder / 'run'), *words]
    with (folder / 'up.log').open('w') as log:
        graph = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, process_group=0)
    try:
        yield graph
    finally:
        if graph.poll() is None:
            graph.send_signal(signal.SIGINT)
        graph.wait(END_TIME)


def _wait(graph: 'subprocess.Popen[bytes]', seconds: float) -> None:
    try:
        graph.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def look(parent: int) -> dict[str, dict[str, float]]:
    """Return what each process below a parent holds now; workers are summed up by their node."""
    found: dict[str, dict[str, float]] = {}
    for pid, name in _below(parent, 'up'):
        try:
            held = _held(pid)
        except (OSError, LookupError, ValueError):  # it has just ended
            continue
        one = found.setdefault(name, dict.fromkeys(held, 0.0))
        for key, value in held.items():
            one[key] += value
    return found


def _below(pid: int, name: str) -> Iterator[tuple[int, str]]:
    yield pid, name
    for child in _children(pid):
        node = re.search(r'lpgftw_ros\.nodes\.(\w+)', _command(child))
        yield from _below(child, node[1] if node else f'{name.removesuffix(" workers")} workers')


def _children(pid: int) -> list[int]:
    try:
        tasks = [int(name) for name in os.listdir(f'/proc/{pid}/task')]
        texts = [Path(f'/proc/{pid}/task/{task}/children').read_text() for task in tasks]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def _command(pid: int) -> str:
    try:
        return Path(f'/proc/{pid}/cmdline').read_text().replace('\0', ' ')
    except OSError:
        return ''


def _held(pid: int) -> dict[str, float]:
    """Return memory in MB, file descriptors and threads of one process."""
    memory = _numbers(Path(f'/proc/{pid}/smaps_rollup'))
    return {
        'pss': memory['Pss'] / 1024.0,
        'rss': memory['Rss'] / 1024.0,
        'descriptors': float(len(os.listdir(f'/proc/{pid}/fd'))),
        'threads': _numbers(Path(f'/proc/{pid}/status'))['Threads'],
    }


def _numbers(path: Path) -> dict[str, float]:
    pairs = re.findall(r'^(\w+):\s+(\d+)', path.read_text(), re.MULTILINE)
    return {key: float(value) for key, value in pairs}


def read(samples: Path) -> list[dict[str, Any]]:
    """Return all samples in their order."""
    return [json.loads(line) for line in samples.read_text().splitlines()]


def growth(samples: Sequence[Mapping[str, Any]], settle: float) -> dict[str, dict[str, Any]]:
    """Return by process and measure how much more there is at the end than after `settle` s.

    Medians of two windows are compared: ten minutes, or half of what is there.
    """
    later = [row for row in samples if row['seconds'] >= settle]
    if len(later) < 2:
        raise LpgftwError(f'too short: fewer than two samples after {settle:g} s')
    first, last = later[0]['seconds'], later[-1]['seconds']
    window = min(WINDOW, (last - first) / 2.0)
    early = [row['processes'] for row in later if row['seconds'] <= first + window]
    late = [row['processes'] for row in later if row['seconds'] >= last - window]
    found = {}
    for name in {name: 0 for row in later for name in row['processes']}:
        before, after = _medians(early, name), _medians(late, name)
        grown = {key: after[key] / before[key] - 1.0 for key in MEASURES if before.get(key)}
        found[name] = {'settled': before, 'end': after, 'growth': grown}
    return found


def _medians(rows: Iterable[Mapping[str, Any]], name: str) -> dict[str, float]:
    held = [row[name] for row in rows if name in row]
    return {key: statistics.median(one[key] for one in held) for key in held[0]} if held else {}


def text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one line per process: settled, at the end, growth."""
    lines = [f'{"process":<20}' + ''.join(f'{key:>32}' for key in MEASURES)]
    for name, one in found.items():
        cells = []
        for key in MEASURES:
            before, after = one['settled'].get(key, 0.0), one['end'].get(key, 0.0)
            share = one['growth'].get(key, 0.0)
            cells.append(f'{before:>10.1f} to {after:>8.1f} {share:>+7.1%}  ')
        lines.append(f'{name:<20}' + ''.join(f'{cell:>32}' for cell in cells))
    return '\n'.join(lines)


def draw(samples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw every measure over time, a line per process."""
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot as plt

    names = list({name: 0 for row in samples for name in row['processes']})
    figure, axes = plt.subplots(len(MEASURES), 1, figsize=(9, 9), sharex=True)
    for axis, (key, label) in zip(axes, MEASURES.items(), strict=True):
        for name in names:
            there = [row for row in samples if name in row['processes']]
            minutes = [row['seconds'] / 60.0 for row in there]
            axis.plot(minutes, [row['processes'][name][key] for row in there], label=name)
        axis.set_ylabel(label or key)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(loc='upper left', fontsize='small')
    axes[-1].set_xlabel('minutes')
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
