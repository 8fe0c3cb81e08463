"""A command that needs an optional package says which extra brings it."""

from pathlib import Path
import re
import subprocess
import sys

import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.errors import EXTRAS

ROOT = Path(__file__).resolve().parents[3]
HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {hidden!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)

sys.meta_path.insert(0, Hidden())
from lpgftw_ros.cli import main
sys.exit(main({words!r}))
"""
COMMANDS = {
    'metaworld': ['train', '--suite', 'mt10', '--iterations', '1', '--out', '{out}'],
    'viser': ['watch', '{out}'],
    'onnx': ['export', '{out}/run', '--task', 'reach', '--out', '{out}/x.policy'],
}
SHORT = ['--tasks', 'reach', '--iterations', '1', '--trajectories', '1', '--workers', '1']


@pytest.mark.parametrize('module', COMMANDS)
def test_the_extra_is_named_in_one_line(module, tmp_path):
    words = [word.format(out=tmp_path) for word in COMMANDS[module]]
    if module == 'onnx':
        out = str(tmp_path / 'run')
        assert main(['train', '--suite', 'demo', *SHORT, '--out', out]) == 0
    code = HIDE.format(hidden=[module, 'trimesh' if module == 'viser' else module], words=words)
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert re.search(r"pip install 'lpgftw_ros\[\w+\]'", done.stderr)
    assert len(done.stderr.splitlines()) == 1


def test_every_extra_has_its_requirements_file():
    for extra in set(EXTRAS.values()):
        assert (ROOT / f'requirements-{extra}.txt').is_file()
