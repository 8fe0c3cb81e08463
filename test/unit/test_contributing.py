"""The worked examples of CONTRIBUTING.md, applied to a copy of the package and run."""

import json
from pathlib import Path
import re
import shutil
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r'^## Worked example: (.+?)\n(.*?)(?=^## |\Z)', re.M | re.S)
NAMES = (
    'a new method',
    'a new base learner',
    'a new domain',
    'a new measure',
    'a new run option',
    'a new evaluation',
    'a new message field',
)
SUITE = """
kind: spring
horizon: 10
tasks:
  - {name: soft, stiffness: 1.0}
  - {name: stiff, stiffness: 5.0}
sequence: [soft, stiff]
"""


def diffs():
    """Return the diff of each example, as {file: lines}."""
    found = {}
    for name, text in EXAMPLE.findall((ROOT / 'CONTRIBUTING.md').read_text()):
        block = re.search(r'```diff\n(.*?)```', text, re.S)[1]
        parts = re.split(r'^--- \S+\n\+\+\+ b/(\S+)\n', block, flags=re.M)[1:]
        files = zip(parts[::2], parts[1::2], strict=True)
        found[name] = {file: lines.splitlines() for file, lines in files}
    return found


def apply(path, changes):
    """Apply one file's part of a diff; `@@ text` goes on after the line that has this text."""
    lines = path.read_text().splitlines() if path.exists() else []
    imports = [i for i, line in enumerate(lines) if line.startswith(('import ', 'from '))]
    here = imports[-1] + 1 if imports else 0
    for change in changes:
        kind, text = change[:1], change[1:]
        if change.startswith('@@ '):
            here = next(i for i, line in enumerate(lines) if change[3:] in line) + 1
        elif kind == '+':
            lines.insert(here, text)
            here += 1
        elif text:
            first = max(here - 1, 0)
            assert text in lines[first:], f'{path.name} has no line {text!r}'
            here = lines.index(text, first)
            if kind == '-':
                del lines[here]
            else:
                here += 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(lines) + '\n')


@pytest.fixture(scope='module')
def changed(tmp_path_factory):
    """Return a copy of the package with every example applied."""
    folder = tmp_path_factory.mktemp('changed')
    for name in ('lpgftw_ros', 'lpgftw_interfaces', 'sim', 'config'):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns('__pycache__'))
    for files in diffs().values():
        for file, changes in files.items():
            apply(folder / file, changes)
    (folder / 'springs.yaml').write_text(SUITE)
    return folder


def train(folder, name, *options):
    """Train in the copy; return the rows and the summary."""
    command = ['-m', 'lpgftw_ros.cli', 'train', '--suite', 'springs.yaml', '--seed', '1']
    command += ['--iterations', '2', '--trajectories', '4', '--set', 'stochastic_episodes=1']
    environment = {'PYTHONPATH': str(folder), 'PATH': '/usr/bin:/bin'}
    done = subprocess.run(
        [sys.executable, *command, '--out', name, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / name / 'metrics.jsonl').open()]
    return rows, json.loads((folder / name / 'summary.json').read_text())


def test_every_example_is_there_and_touches_at_most_three_code_files():
    assert sorted(diffs()) == sorted(NAMES)
    for name, files in diffs().items():
        code = [file for file in files if file.endswith('.py') and 'spring/__init__' not in file]
        assert 1 <= len(code) <= 3, name


def test_the_new_method_learns_the_new_domain(changed):
    rows, summary = train(changed, 'finetune', '--learner', 'finetune')
    assert [row['task'] for row in rows if row['kind'] == 'iteration'] == ['soft'] * 2 + [
        'stiff'
    ] * 2
    assert summary['state'] == 'finished'


def test_base_learner_measure_option_and_evaluation_reach_a_run(changed):
    options = ['--set', 'step=normalised', '--evaluation-episodes', '1']
    rows, summary = train(changed, 'lpg-ftw', *options)
    steps = [row for row in rows if row['kind'] == 'iteration']
    assert [row['columns_in_use'] for row in steps] == [0, 0, 1, 1]
    rate = [row['step_length'] * row['gradient_norm'] for row in steps if not row['refused_steps']]
    assert rate
    assert rate == pytest.approx([0.01] * len(rate))
    assert all(task['update_stochastic']['return'] < 0.0 for task in summary['tasks'])
    config = (changed / 'lpg-ftw' / 'config.yaml').read_text()
    assert 'evaluation_episodes: 1' in config


def test_the_new_message_field_is_declared_and_filled(changed):
    assert re.search(
        r'^string suite .*#', (changed / 'lpgftw_interfaces/msg/ActiveTask.msg').read_text(), re.M
    )
    node = (changed / 'lpgftw_ros/nodes/learner.py').read_text()
    compile(node, 'learner.py', 'exec')
    assert node.index('message = ActiveTask(') < node.index('suite=self.session.config.suite')
