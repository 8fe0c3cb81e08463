from dataclasses import fields
import os
from pathlib import Path
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import yaml

import lpgftw_ros
from lpgftw_ros.cli import COMMANDS
from lpgftw_ros.nodes.parameters import NODES

ROOT = Path(__file__).resolve().parents[2]
INTERFACES = sorted((ROOT / 'lpgftw_interfaces').glob('*/*.*'))
TEXTS = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'docs').rglob('*.md'))]
SOURCES = sorted((ROOT / 'lpgftw_ros').rglob('*.py'))


def version_in(path):
    return ElementTree.parse(path).getroot().findtext('version')


def test_the_version_is_the_same_everywhere():
    versions = {version_in(ROOT / 'package.xml'), lpgftw_ros.__version__}
    versions.add(version_in(ROOT / 'lpgftw_interfaces' / 'package.xml'))
    versions.add(re.search(r'^(\d+\.\d+\.\d+)', (ROOT / 'CHANGELOG.rst').read_text(), re.M)[1])
    assert len(versions) == 1


def test_colcon_finds_both_packages_with_the_documented_base_paths():
    environment = {**os.environ, 'COLCON_DEFAULTS_FILE': str(ROOT / 'colcon_defaults.yaml')}
    colcon = Path(sys.executable).parent / 'colcon'
    done = subprocess.run(
        [
            colcon if colcon.exists() else 'colcon',
            '--log-base',
            os.devnull,
            'list',
            '--names-only',
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.split()) == ['lpgftw_interfaces', 'lpgftw_ros']


@pytest.mark.parametrize('path', INTERFACES, ids=lambda path: path.stem)
def test_every_interface_field_is_explained(path):
    for line in path.read_text().splitlines():
        if line and not line.startswith(('#', '---', ' ')):
            assert re.search(r'#\s*\S', line), f'{path.name}: {line}'


def test_the_parameter_file_shows_every_parameter_with_its_default():
    content = yaml.safe_load((ROOT / 'config' / 'lifelong.yaml').read_text())
    shown = {key.removeprefix('/**/'): value['ros__parameters'] for key, value in content.items()}
    declared = {name: {f.name: f.default for f in fields(kind)} for name, kind in NODES.items()}
    assert shown == {name: declared[name] for name in shown}


def test_every_requirement_is_pinned_exactly():
    for path in sorted(ROOT.glob('requirements*.txt')):
        for line in path.read_text().splitlines():
            if line and not line.startswith('#'):
                assert re.fullmatch(r'[\w.-]+(\[\w+\])?==[\w.]+', line), f'{path.name}: {line}'


def test_every_requirement_has_its_reason_in_the_documentation():
    text = (ROOT / 'docs' / 'install.md').read_text()
    for path in sorted(ROOT.glob('requirements*.txt')):
        for name in re.findall(r'^([\w.-]+)', path.read_text(), re.M):
            assert f'`{name}`' in text, f'{name} of {path.name}'


def test_the_learning_library_loads_without_ros():
    code = 'import lpgftw_ros.learning, sys; sys.exit("rclpy" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0


@pytest.mark.parametrize('name', COMMANDS)
def test_every_command_has_its_module(name):
    assert (ROOT / 'lpgftw_ros' / 'commands' / f'{name}.py').is_file()


@pytest.mark.parametrize('path', SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled(path):
    assert not re.search(r'\b(import pickle|torch\.load|allow_pickle=True)', path.read_text())


@pytest.mark.parametrize('path', TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs_links_lead_somewhere(path):
    for link in re.findall(r'\]\(([^)#\s]+)', path.read_text()):
        if '://' not in link:
            assert (path.parent / link).exists(), f'{path.name}: {link}'


@pytest.mark.parametrize('path', TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs_name_make_targets_that_exist(path):
    targets = set(re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M))
    named = set(re.findall(r'(?:`|^\s*\$? ?)make ([a-z-]+)', path.read_text(), re.M))
    assert named <= targets


@pytest.mark.parametrize('path', TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs_name_commands_that_exist(path):
    named = set(re.findall(r'(?:`|^\s*\$? ?)lpgftw ([a-z]+)', path.read_text(), re.M))
    assert named <= set(COMMANDS)
