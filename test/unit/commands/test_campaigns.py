"""Runs broken on purpose, and committed results repeated."""

import gzip
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys

import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.commands.chaos import compare, SUITE
from lpgftw_ros.graph.admission import claim


@pytest.fixture(scope='module')
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run, finished."""
    folder = tmp_path_factory.mktemp('committed')
    suite = folder / 'chaos.yaml'
    suite.write_text(SUITE)
    out = folder / 'results' / 'chaos' / 'stl' / 'seed-7'
    words = ['train', '--suite', str(suite), '--learner', 'stl', '--seed', '7', '--tasks', '2']
    words += ['--iterations', '3', '--trajectories', '4', '--workers', '1', '--out', str(out)]
    assert main(words) == 0
    return out


@pytest.mark.parametrize('fault', ['kill', 'stop', 'disk'])
def test_a_small_campaign_ends_with_the_bytes_of_a_run_left_alone(
    fault: str, tmp_path: Path
) -> None:
    words = ['chaos', fault, '--count', '6', '--seed', '1', '--learners', 'lpg-ftw', '--json']
    command = [sys.executable, '-m', 'lpgftw_ros.cli', *words]
    alone = {**os.environ, 'TMPDIR': str(tmp_path)}  # arms of other tests do not matter
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    (campaign,) = report['campaigns']
    assert campaign['faults'] >= 6
    assert campaign['runs'] == campaign['equal'] >= 1
    if fault == 'disk':
        said = ('No space left on device', 'Read-only file system', 'Input/output error')
        assert all(message.endswith(said) for message in campaign['messages'])


def test_a_run_that_differs_is_found(finished: Path, tmp_path: Path) -> None:
    other = tmp_path / 'other'
    shutil.copytree(finished, other)
    assert compare(finished, other) == ''
    rows = (other / 'metrics.jsonl').read_text()
    changed = rows.replace('"refused_steps": 0', '"refused_steps": 1', 1)
    (other / 'metrics.jsonl').write_text(changed)
    assert compare(finished, other) == 'row 1 of metrics.jsonl differs'


def test_chaos_keeps_away_from_an_arm(capsys: pytest.CaptureFixture[str]) -> None:
    lock = claim('/chaos_test/safety_guard', 'an arm', 0)
    try:
        assert main(['chaos', 'kill', '--count', '1', '--learners', 'stl']) == 2
    finally:
        lock.close()
    assert "a graph around an arm is alive (run 'an arm'" in capsys.readouterr().err


def test_chaos_knows_no_method_that_needs_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['chaos', 'kill', '--learners', 'pg-ella']) == 2
    assert "no learner for chaos 'pg-ella'" in capsys.readouterr().err


def test_a_committed_run_repeats(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = finished.parents[2]
    words = ['verify-results', '--results', str(results), '--workers', '1']
    assert main([*words, '--iterations', '4']) == 0
    assert '4 iterations are equal, byte by byte' in capsys.readouterr().out
    assert main([*words, 'nothing']) == 2
    assert "no cell 'nothing'" in capsys.readouterr().err


def test_a_committed_number_that_does_not_repeat_is_shown(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = tmp_path / 'chaos' / 'stl' / 'seed-7'
    shutil.copytree(finished, cell)
    rows = [json.loads(line) for line in (cell / 'metrics.jsonl').read_text().splitlines()]
    rows[1]['return_mean'] += 1e-13
    text = ''.join(json.dumps(row) + '\n' for row in rows)
    (cell / 'metrics.jsonl').unlink()
    (cell / 'metrics.jsonl.gz').write_bytes(gzip.compress(text.encode()))
    words = ['verify-results', 'chaos/stl/seed-7', '--results', str(tmp_path), '--workers', '1']
    assert main(words) == 1
    output = capsys.readouterr().out
    assert 'iteration 2 differs' in output
    assert 'its arithmetic is not pinned' not in output
    (cell / 'fingerprint.json').unlink()
    assert main(words) == 1
    assert 'its arithmetic is not pinned' in capsys.readouterr().out
    assert main(['verify-results', '--results', str(tmp_path)]) == 2
    assert 'no run with the pinned arithmetic: name one' in capsys.readouterr().err
