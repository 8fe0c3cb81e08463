"""Photograph every tab of the page for the documentation: docs/images/dashboard-*.png.

Learns `demo` in a real graph and rehearses its first task on a simulated arm; takes minutes.
"""

import argparse
from pathlib import Path
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

from browser import Browser, installed

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'test' / 'ros'))
SIZES = {'': (1280, 800, False), 'phone-': (390, 844, True)}
LENGTH = ['--suite', 'demo', '--iterations', '20', '--trajectories', '20']
SHOWN = 'reach-right'  # the first task that only mixes columns
ADDRESS = re.compile(r'http://127\.0\.0\.1:\d+')


def main():
    """Photograph the graph, then the arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, default=ROOT / 'docs' / 'images')
    parser.add_argument('--runs', type=Path, help='where runs are made and found again')
    parser.add_argument('--only', choices=('graph', 'arm'))
    args = parser.parse_args()
    if installed() is None:
        print('no Chromium: apt-get install chromium')
        return 1
    with tempfile.TemporaryDirectory() as folder:
        runs = args.runs or Path(folder)
        if args.only != 'arm':
            of_a_graph(runs, args.out)
        if args.only != 'graph':
            of_an_arm(runs, args.out)
    return 0


def of_a_graph(runs, out):
    """Photograph a graph in the middle of its fourth task."""
    if not (runs / 'stl').exists():
        lpgftw('train', *LENGTH, '--learner', 'stl', '--tasks', SHOWN, '--out', runs / 'stl')
    words = [*LENGTH, '--out', runs / 'lpg-ftw', '--resume', '--no-exit-when-done']
    words += ['--dashboard', '--dashboard-port', '0']
    graph = subprocess.Popen(command('up', *words), stdout=subprocess.PIPE, text=True)
    try:
        url = next(found[0] for line in graph.stdout if (found := ADDRESS.search(line)))
        threading.Thread(
            target=graph.stdout.read, daemon=True
        ).start()  # a full pipe would stop it
        with Browser(url, *SIZES['']) as browser:
            browser.wait_for(SHOWN, 3600)
            browser.press('Learning', 'tab')
            browser.wait_for('12 of 20', 600)
            browser.press('Tasks', 'tab')
            browser.press('Evaluate')
            browser.wait_for('evaluate: done', 120)
        photograph(url, out, ('Scene', 'Learning', 'Tasks', 'Knowledge'))
    finally:
        graph.terminate()
        graph.communicate()


def of_an_arm(runs, out):
    """Photograph the rehearsal of the first task."""
    from arm_cell import ArmCell, PATIENT, write_limits

    policy = runs / 'reach.policy'
    lpgftw('export', runs / 'lpg-ftw', '--task', 'reach', '--out', policy)
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    limits = write_limits(runs, **PATIENT)  # drawing takes all of a machine without a GPU
    cell = ArmCell(
        policy_file=str(policy),
        suite='demo',
        limits_file=limits,
        dashboard=True,
        dashboard_port=port,
    )
    try:
        cell.ready()
        assert cell.trigger('arm_bridge/run').success
        photograph(f'http://127.0.0.1:{port}', out, ('Arm',))
    finally:
        cell.stop()


def photograph(url, out, tabs):
    """Open each tab at each size and write what is seen."""
    for prefix, size in SIZES.items():
        with Browser(url, *size) as browser:
            browser.wait_for('Learning', 90)
            time.sleep(6)  # until the scene is drawn
            for tab in tabs:
                browser.press(tab, 'tab')
                time.sleep(3)
                browser.run(  # a notice about the machine that takes the picture
                    "document.querySelectorAll('.mantine-Notifications-root')"
                    '.forEach(e => e.remove())'
                )
                path = out / f'dashboard-{prefix}{tab.lower()}.png'
                browser.picture(path)
                print(path)


def command(*words):
    """Return the command line of this package."""
    return [sys.executable, '-m', 'lpgftw_ros.cli', *map(str, words)]


def lpgftw(*words):
    """Run a command of this package to its end."""
    subprocess.run(command(*words), check=True)


if __name__ == '__main__':
    sys.exit(main())
