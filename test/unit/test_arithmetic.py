"""The same bytes on every x86-64 processor with AVX2."""

import json
import os
import subprocess
import sys

import pytest

import lpgftw_ros
from lpgftw_ros.arithmetic import CHOICE, NEEDED, obstacle, pin, PINS, processor_flags

RETURNS = (-639.073789439578, -577.1908863079891)
"""First two iterations of HalfCheetah gravity, seed 50, on a processor without AVX-512."""
FAST = {'OPENBLAS_CORETYPE': 'SkylakeX', 'NPY_DISABLE_CPU_FEATURES': 'AVX512_SPR'}


def python(code, **environment):
    inherited = {k: v for k, v in os.environ.items() if k not in (*PINS, CHOICE)}
    return subprocess.run(
        [sys.executable, '-W', 'always', '-c', code],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture
def capable(monkeypatch):
    monkeypatch.setattr('lpgftw_ros.arithmetic.processor_flags', lambda: NEEDED)
    monkeypatch.setattr('platform.machine', lambda: 'x86_64')


def test_tests_run_under_the_arithmetic_of_runs():
    if lpgftw_ros.ARITHMETIC != 'pinned':
        pytest.skip(f'this computer cannot be pinned: {lpgftw_ros.ARITHMETIC}')
    assert PINS.items() <= os.environ.items()


def test_the_published_run_repeats_to_the_last_digit(tmp_path):
    if lpgftw_ros.ARITHMETIC != 'pinned':
        pytest.skip(f'this computer cannot be pinned: {lpgftw_ros.ARITHMETIC}')
    command = [
        'train',
        '--suite',
        'halfcheetah-gravity',
        '--learner',
        'lpg-ftw',
        '--seed',
        '50',
        '--tasks',
        '1',
    ]
    command += ['--iterations', '2', '--trajectories', '10', '--out', str(tmp_path / 'run')]
    python(f'from lpgftw_ros.cli import main; raise SystemExit(main({command!r}))', **FAST)
    rows = [json.loads(line) for line in (tmp_path / 'run' / 'metrics.jsonl').open()]
    assert tuple(row['return_mean'] for row in rows[:2]) == RETURNS
    fingerprint = json.loads((tmp_path / 'run' / 'fingerprint.json').read_text())
    assert fingerprint['arithmetic'] == 'pinned'
    assert all(library.endswith('Haswell') for library in fingerprint['blas'])
    assert fingerprint['cpu_features'] == ['X86_V3']


def test_pins_replace_what_the_shell_had_and_keep_its_threads(capable, monkeypatch):
    monkeypatch.delitem(sys.modules, 'numpy', raising=False)
    environment = {**FAST, 'OMP_NUM_THREADS': '4'}
    assert pin(environment) == 'pinned'
    assert PINS.items() <= environment.items()
    assert environment['OMP_NUM_THREADS'] == '4'
    assert environment['OPENBLAS_NUM_THREADS'] == '1'


def test_native_by_choice_changes_nothing(capable):
    environment = {CHOICE: 'native', **FAST}
    before = dict(environment)
    assert pin(environment) == 'native'
    assert environment == before


@pytest.mark.parametrize(
    ('machine', 'flags', 'reason'),
    [
        ('aarch64', NEEDED, 'not x86-64'),
        ('x86_64', NEEDED - {'avx2'}, 'lacks avx2'),
        ('x86_64', NEEDED | {'avx512f'}, ''),
    ],
)
def test_processors_that_cannot_be_pinned_are_named(machine, flags, reason):
    why = obstacle(PINS, flags, machine)
    assert reason in why
    assert bool(why) == bool(reason)


def test_an_incapable_processor_warns_once_and_leaves_its_children_native(capable, monkeypatch):
    monkeypatch.setattr('lpgftw_ros.arithmetic.processor_flags', lambda: frozenset(['sse2']))
    environment = dict(FAST)
    with pytest.warns(UserWarning, match='lacks avx2') as caught:
        assert pin(environment).startswith('native: the processor lacks')
    assert len(caught) == 1
    assert environment == {**FAST, CHOICE: 'native'}
    assert pin(environment) == 'native'


def test_numpy_loaded_before_the_package_is_left_alone_with_a_warning():
    code = (
        'import numpy, os, lpgftw_ros; '
        'print(lpgftw_ros.ARITHMETIC, "OPENBLAS_CORETYPE" in os.environ)'
    )
    done = python(code)
    assert done.stdout.split(':')[0] == 'native'
    assert done.stdout.split()[-1] == 'False'
    assert done.stderr.count('numpy was loaded before lpgftw_ros') == 1


def test_an_unknown_choice_is_named(capable):
    with pytest.warns(UserWarning, match="'fast'; it may be pinned or native"):
        pin({CHOICE: 'fast', **PINS})


def test_unreadable_processor_flags_are_none(tmp_path):
    assert processor_flags(tmp_path / 'missing') == frozenset()
    (tmp_path / 'cpuinfo').write_text('processor: 0\nflags\t\t: fpu avx2\n\nflags: other\n')
    assert processor_flags(tmp_path / 'cpuinfo') == {'fpu', 'avx2'}


def test_a_native_run_below_every_dispatch_level_still_has_a_fingerprint():
    code = 'from lpgftw_ros.runs.environment import library_fingerprint as f; print(f())'
    lowest = {'NPY_DISABLE_CPU_FEATURES': 'X86_V3 ' + PINS['NPY_DISABLE_CPU_FEATURES']}
    done = python(code, **lowest, **{CHOICE: 'native'})
    assert "'cpu_features': []" in done.stdout
