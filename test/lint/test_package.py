from dataclasses import fields
import importlib
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
from lpgftw_ros.graph.parameters import NODES

ROOT = Path(__file__).resolve().parents[2]
INTERFACES = sorted((ROOT / 'lpgftw_interfaces').glob('*/*.*'))
TEXTS = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'docs').rglob('*.md'))]
SOURCES = sorted((ROOT / 'lpgftw_ros').rglob('*.py'))


def test_the_house_has_few_modules_and_each_holds_an_idea(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / 'test'))
    house = importlib.import_module('importers')
    assert len(house.modules()) <= house.MOST
    assert house.lonely().keys() <= house.REASONS.keys()


def version_in(path):
    return ElementTree.parse(path).getroot().findtext('version')


def test_the_version_is_the_same_everywhere():
    versions = {version_in(ROOT / 'package.xml'), lpgftw_ros.__version__}
    versions.add(version_in(ROOT / 'lpgftw_interfaces' / 'package.xml'))
    versions.add(re.search(r'^(\d+\.\d+\.\d+)', (ROOT / 'CHANGELOG.rst').read_text(), re.M)[1])
    assert len(versions) == 1


@pytest.fixture
def workspace(tmp_path):
    """Return a workspace with this package in it, as a user clones it."""
    source = tmp_path / 'src' / 'lpgftw_ros'
    source.mkdir(parents=True)
    for name in ('package.xml', 'setup.py', 'setup.cfg', 'lpgftw_interfaces', 'lpgftw_ros'):
        (source / name).symlink_to(ROOT / name)
    return tmp_path


def packages_in(workspace):
    colcon = Path(sys.executable).parent / 'colcon'
    done = subprocess.run(
        [colcon if colcon.exists() else 'colcon', '--log-base', os.devnull, 'list', '-n'],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(done.stdout.split())


def test_colcon_finds_both_packages_after_the_documented_step(workspace, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / 'scripts'))
    assert packages_in(workspace) == ['lpgftw_ros']
    importlib.import_module('setup_env').link_interfaces(workspace / 'src' / 'lpgftw_ros')
    assert packages_in(workspace) == ['lpgftw_interfaces', 'lpgftw_ros']


def test_the_step_leaves_a_foreign_folder_alone(workspace, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / 'scripts'))
    setup_env = importlib.import_module('setup_env')
    (workspace / 'src' / 'lpgftw_interfaces').mkdir()
    with pytest.raises(setup_env.SetupFailed, match='is there already'):
        setup_env.link_interfaces(workspace / 'src' / 'lpgftw_ros')


def test_a_colcon_build_without_the_step_says_so_in_one_line(tmp_path):
    environment = {**os.environ, 'COLCON': '1', 'AMENT_PREFIX_PATH': str(tmp_path)}
    done = subprocess.run(
        [sys.executable, 'setup.py', 'install', '--prefix', str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert 'run make workspace' in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize('name', ['README.md', 'docs/install.md', 'Dockerfile.ros'])
def test_the_step_before_colcon_build_is_the_same_everywhere(name):
    text = (ROOT / name).read_text()
    assert text.index('make -C src/lpgftw_ros workspace') < text.index('colcon build\n')


@pytest.mark.parametrize('path', INTERFACES, ids=lambda path: path.stem)
def test_every_interface_field_is_explained(path):
    for line in path.read_text().splitlines():
        if line and not line.startswith(('#', '---', ' ')):
            assert re.search(r'#\s*\S', line), f'{path.name}: {line}'


def test_the_parameter_file_shows_every_parameter_with_its_default():
    content = yaml.safe_load((ROOT / 'config' / 'lifelong.yaml').read_text())
    shown = {key.removeprefix('/**/'): value['ros__parameters'] for key, value in content.items()}

    def value(item):
        items = item.metadata.get('items')
        return items.read(item.default) if items else item.default

    declared = {
        name: {f.name: value(f) for f in fields(kind) if f.name != 'settings'}
        for name, kind in NODES.items()
    }
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


@pytest.mark.parametrize('module', ['commands.up', 'graph.training', 'runs.driver'])
def test_what_starts_often_loads_nothing_slow(module):
    """Each of these takes about as long to import as all the rest together."""
    slow = ('scipy.signal', 'scipy.stats', 'mink', 'torch', 'matplotlib')
    code = f'import lpgftw_ros.{module}, sys; print(*(set({slow}) & set(sys.modules)))'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ''


@pytest.mark.parametrize('name', COMMANDS)
def test_every_command_has_its_module(name):
    assert (ROOT / 'lpgftw_ros' / 'commands' / f'{name.replace("-", "_")}.py').is_file()


@pytest.mark.parametrize('path', SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled(path):
    assert not re.search(r'\b(import pickle|torch\.load|allow_pickle=True)', path.read_text())


def found_in_texts(pattern):
    """Return (document, match) of a pattern in all documents; the pattern must match often."""
    found = [(path, hit) for path in TEXTS for hit in re.findall(pattern, path.read_text(), re.M)]
    assert len(found) > 10
    return found


def test_docs_links_lead_somewhere():
    links = [(path, link) for path, link in found_in_texts(r'\]\(([^)#\s]+)') if '://' not in link]
    assert [
        f'{path.name}: {link}' for path, link in links if not (path.parent / link).exists()
    ] == []


def test_docs_name_make_targets_that_exist():
    targets = set(re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M))
    named = found_in_texts(r'(?:`|^\s*\$? ?)make (?:-C \S+ )?([a-z-]+)')
    assert [f'{path.name}: {name}' for path, name in named if name not in targets] == []


def test_docs_name_commands_that_exist():
    named = found_in_texts(r'(?:`|^\s*\$? ?)lpgftw ([a-z-]+)')
    assert [f'{path.name}: {name}' for path, name in named if name not in COMMANDS] == []
