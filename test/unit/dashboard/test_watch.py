"""A run folder in the browser: what is read from it, and who may connect."""

from dataclasses import replace
import json
import math
from pathlib import Path
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from lpgftw_ros.dashboard import Answer, ArmView, Snapshot
from lpgftw_ros.dashboard.folder import FolderSource, progress
from lpgftw_ros.dashboard.page import arm, knowledge, learning, Page, tasks
from lpgftw_ros.deploy.safety.limits import Nearness
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.driver import drive, policy_spec
from lpgftw_ros.runs.session import Session

ROOT = Path(__file__).parents[3]
ARCHIVED = ROOT / 'results' / 'laptop' / 'mt10' / 'lpg-ftw' / 'seed-50'
SUITE = """
kind: body
horizon: 20
defaults: {body: halfcheetah}
tasks: [{name: g-08, gravity: 0.8}, {name: g-12, gravity: 1.2}]
sequence: [g-08, g-12]
"""
SMALL = {'seed': 7, 'iterations': 3, 'trajectories': 4, 'update_trajectories': 3, 'max_columns': 2}


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """Learn two short tasks."""
    folder = tmp_path_factory.mktemp('run')
    (folder / 'tiny.yaml').write_text(SUITE)
    config = resolve(str(folder / 'tiny.yaml'), 'lpg-ftw', overrides=SMALL)
    with Sampler(config.suite, 1) as sampler:
        spec = policy_spec(config, sampler)
        with Session(config, folder / 'out', spec=spec) as session:
            drive(session, sampler, lambda session: None)
    return folder / 'out'


@pytest.fixture
def source(run):
    made = FolderSource(run)
    yield made
    made.close()


def test_a_run_whose_tasks_end_early_is_told_by_its_iterations_not_by_its_probes():
    folder = ROOT / 'results' / 'laptop' / 'halfcheetah-gravity' / 'lpg-ftw-adaptive' / 'seed-60'
    last = json.loads((folder / 'summary.json').read_text())['tasks'][-1]
    assert last['iterations'] < 50  # of those requested
    source = FolderSource(folder)
    try:
        found = source.snapshot().progress
    finally:
        source.close()
    wanted = (last['task'], last['iterations'], last['iterations'])
    assert (found.task, found.iteration, found.iterations) == wanted


def test_the_time_left_is_that_of_later_tasks():
    config = resolve('halfcheetah-gravity', 'lpg-ftw-adaptive')
    took = {'gravity-06': 400, 'gravity-15': 10, 'gravity-10': 14, 'gravity-03': 5}
    tasks = [{'task': task, 'iterations': n} for task, n in took.items()]
    tasks[-1]['state'] = 'running'
    rows = [
        {'kind': kind, 'visit': 3, 'task': task, 'iteration': i, 'timing': {'wall': 2.0 * i}}
        for i, (kind, task) in enumerate([('iteration', 'gravity-03')] * 5 + [('probe', 'x')])
    ]
    summary = {'state': 'running', 'tasks': tasks}
    found = progress(config, summary, rows, alive=True)
    assert found.task == 'gravity-03'
    assert found.task_seconds_left == pytest.approx(2.0 * (12 - 5))
    waiting = len(config.tasks) - 4
    assert found.run_seconds_left == pytest.approx(2.0 * (12 - 5 + 12 * waiting))
    tasks[-1]['iterations'] = 13
    assert math.isnan(progress(config, summary, rows, alive=True).task_seconds_left)


class Broken:
    """A source in which everything fails."""

    actions = ('pause',)
    replays = False

    def snapshot(self):
        raise RuntimeError('no snapshot')

    frame = picture = snapshot

    def watch_scene(self, watched):
        pass

    def replay(self, task, speed):
        pass

    def act(self, action, task):
        return Answer(False, 'no')

    def close(self):
        pass


def test_a_finished_run_fills_learning_tasks_and_knowledge(source):
    found = source.snapshot()
    assert found.progress.state == 'finished'
    assert [curve.task for curve in found.curves] == ['g-08', 'g-12']
    assert all(len(curve.returns) == 3 for curve in found.curves)
    summary = json.loads((source.run / 'summary.json').read_text())
    for line, entry in zip(found.tasks, summary['tasks'], strict=True):
        assert line.state == 'finished'
        assert line.return_now == entry['final']['return']
        assert line.return_tuned == entry['tune']['return']
        assert math.isnan(line.success_now), 'a body knows no success'
    assert found.knowledge.coefficients.shape == (2, 2)
    np.testing.assert_allclose(np.diag(found.knowledge.similarity), 1.0)
    assert found.knowledge.growth == (('g-08', 1), ('g-12', 2))
    text = learning(found) + tasks(found.tasks, 'g-08') + knowledge(found.knowledge)
    assert 'g-12' in text
    assert 'nan' not in text.replace('nanmax', '')


def test_a_committed_run_is_shown_beside_learning_alone():
    source = FolderSource(ARCHIVED)
    try:
        found = source.snapshot()
        assert found.progress.state == 'finished'
        assert len(found.curves) == len(found.tasks) == 10
        assert {c.task for c in found.alone} == {c.task for c in found.curves}
        assert found.knowledge.coefficients.shape == (10, 3)
        assert 'learned alone' in learning(found)
        source.watch_scene(True)
        deadline = time.monotonic() + 20
        while not source.snapshot().still and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 'no checkpoints' in source.snapshot().still
        assert source.snapshot().problems == ()
    finally:
        source.close()


def test_a_growing_run_is_read_on_and_a_resumed_one_again(run, tmp_path):
    copy = tmp_path / 'live'
    copy.mkdir()
    lines = (run / 'metrics.jsonl').read_text().splitlines(keepends=True)
    for name in ('config.yaml', 'summary.json'):
        (copy / name).write_text((run / name).read_text())
    metrics = copy / 'metrics.jsonl'
    metrics.write_text(lines[0] + lines[1][:20])  # in the middle of a line
    source = FolderSource(copy)
    try:
        assert [len(c.returns) for c in source.snapshot().curves] == [1]
        metrics.write_text(''.join(lines))
        assert [len(c.returns) for c in source.snapshot().curves] == [3, 3]
        metrics.write_text(''.join(lines[:2]))
        assert [len(c.returns) for c in source.snapshot().curves] == [2]
        metrics.unlink()
        (copy / 'summary.json').write_text('{')
        assert any('summary.json' in problem for problem in source.snapshot().problems)
    finally:
        source.close()


def test_the_scene_replays_the_policy_of_the_chosen_task(source):
    source.watch_scene(True)
    source.replay('g-08', 0.0)
    deadline, frames = time.monotonic() + 30, set()
    while len(frames) < 3 and time.monotonic() < deadline:
        if (frame := source.frame()) is not None:
            assert frame.task == 'g-08'
            assert frame.state.positions.shape == (9,)
            frames.add(frame.state.time)
        time.sleep(0.002)
    assert len(frames) >= 3


def test_the_page_listens_on_this_machine_only_and_refuses_other_sites(source):
    page = Page(source, port=0)
    try:
        assert page.url.startswith('http://127.0.0.1:')
        port = int(page.url.rsplit(':', 1)[1])
        with urlopen(page.url) as answer:
            assert answer.status == 200
        address = page.url.replace('http', 'ws')
        with pytest.raises(InvalidStatus):
            connect(address, origin='http://evil.example', subprotocols=['viser-v1.1.1'])
        for origin in (f'http://localhost:{port}', 'http://127.0.0.1:9999', None):
            connect(address, origin=origin, subprotocols=['viser-v1.1.1']).close()
        own = socket.gethostbyname(socket.gethostname())
        if not own.startswith('127.'):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((own, port), timeout=1)
    finally:
        page.close()


def test_no_client_can_make_the_server_open_a_tunnel(source):
    page = Page(source, port=0)
    try:
        assert page._server.request_share_url() is None
        assert page._server._share_tunnel is None
    finally:
        page.close()


def test_a_taken_port_is_said(source, run):
    page = Page(source, port=0)
    other = FolderSource(run)
    try:
        with pytest.raises(LpgftwError, match='choose another port'):
            Page(other, port=int(page.url.rsplit(':', 1)[1]))
    finally:
        page.close()
        other.close()


def test_a_source_that_fails_does_not_end_the_page():
    page = Page(Broken(), port=0)
    try:
        time.sleep(1.5)
        assert all(thread.is_alive() for thread in page._threads)
        assert 'no snapshot' in page._problem
        page._source.snapshot = lambda: Snapshot(title='back again')
        deadline = time.monotonic() + 10
        while 'back again' not in page._shown.get('banner', '') and time.monotonic() < deadline:
            time.sleep(0.1)
        assert 'back again' in page._shown['banner']
    finally:
        page.close()


def test_watch_says_where_the_page_is_and_ends_on_a_signal(run):
    words = [sys.executable, '-m', 'lpgftw_ros.cli', 'watch', str(run), '--port', '0']
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith('dashboard: http://127.0.0.1:')
    finally:
        process.terminate()
    assert process.wait(20) == 0


def test_what_is_no_run_folder_is_one_line(tmp_path, capsys):
    from lpgftw_ros.cli import main

    assert main(['watch', str(tmp_path)]) == 2
    assert 'is not a run folder' in capsys.readouterr().err


def test_the_arm_tab_says_how_near_the_limits_are_and_survives_what_is_missing():
    limits = (
        Nearness('max_speed', 'hand speed', 0.09, -0.1, 0.1, 'm/s'),
        Nearness('box', 'hand z', 0.05, 0.045, 0.505, 'm'),
        Nearness('max_tilt', 'tool tilt', math.nan, -0.35, 0.35, 'rad'),
    )
    view = ArmView('latched', 'emergency_stop', '<b>pressed</b>', math.nan, 3, limits=limits)
    text = arm(view)
    assert 'LATCHED (emergency_stop)' in text
    assert '0.09 of 0.1 m/s' in text
    assert '0.05 in 0.045 to 0.505 m' in text
    assert 'width:97.8%' in text, 'the hand is 5 mm above the floor of its box'
    assert '<b>pressed' not in text
    assert 'no arm' in arm(None)
    assert 'no file' in arm(replace(view, limits=(), problem='no file'))
    assert 'nothing is measured yet' in arm(replace(view, limits=()))
