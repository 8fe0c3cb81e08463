import importlib
from pathlib import Path
import sys

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / 'scripts'


@pytest.fixture(scope='module')
def scripts():
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module
    sys.path.remove(str(SCRIPTS))


@pytest.fixture
def make_step(scripts, tmp_path):
    return lambda *inputs: scripts('steps').Step(tmp_path, 'demo', list(inputs))


def test_a_step_that_ran_is_done(make_step):
    make_step('a').run('doing', lambda interrupted: None)
    assert make_step('a').done


def test_a_done_step_does_not_run_again(make_step):
    make_step('a').run('doing', lambda interrupted: None)
    ran = []
    make_step('a').run('doing', ran.append)
    assert ran == []


def test_other_inputs_make_it_run_again(make_step):
    make_step('a').run('doing', lambda interrupted: None)
    ran = []
    make_step('b').run('doing', ran.append)
    assert ran == [False]


def test_an_interrupted_step_runs_again_and_knows_it(make_step):
    def stop(interrupted):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_step('a').run('doing', stop)
    assert not make_step('a').done
    ran = []
    make_step('a').run('doing', ran.append)
    assert ran == [True]


def test_a_step_interrupted_in_an_update_is_not_taken_for_the_old_one(make_step):
    make_step('a').run('doing', lambda interrupted: None)
    with pytest.raises(ZeroDivisionError):
        make_step('b').run('doing', lambda interrupted: 1 / 0)
    assert not make_step('a').done


def test_half_installed_packages_are_forgotten(scripts, tmp_path):
    packages = tmp_path / 'lib' / 'python3.11' / 'site-packages'
    for name, whole in (('whole', True), ('half', False)):
        info = packages / f'{name}-1.0.dist-info'
        info.mkdir(parents=True)
        (info / 'METADATA').touch()
        if whole:
            (info / 'RECORD').touch()
    scripts('setup_env').Setup(tmp_path)._drop_half_installed()
    assert [path.name for path in packages.iterdir()] == ['whole-1.0.dist-info']


def test_a_missing_prerequisite_is_one_command_and_nothing_is_done(scripts, monkeypatch):
    module = scripts('prerequisites')
    monkeypatch.setattr(module, 'missing_packages', lambda: ['g++', 'python3-venv'])
    monkeypatch.setattr(module, '_apt_install', lambda *words: pytest.fail('installed'))
    with pytest.raises(module.MissingPrerequisite, match=r'sudo apt-get install -y g\+\+ python3'):
        module.provide(lambda text: None, may_install=False)


def test_what_may_be_installed_is_installed_and_said(scripts, monkeypatch):
    module = scripts('prerequisites')
    missing, said, installed = ['g++'], [], []
    monkeypatch.setattr(module, 'missing_packages', lambda: list(missing))
    monkeypatch.setattr(module, 'missing_optional_packages', list)
    monkeypatch.setattr(module, 'apt_command', lambda: ['apt-get'])

    def install(apt, packages):
        installed.extend(packages)
        missing.clear()

    monkeypatch.setattr(module, '_apt_install', install)
    module.provide(said.append)
    assert installed == ['g++']
    assert said == ['installing g++ with apt-get']


def test_another_python_is_refused_with_what_is_needed(scripts, monkeypatch):
    module = scripts('prerequisites')
    monkeypatch.setattr(module.sys, 'version_info', (3, 10, 4))
    with pytest.raises(module.MissingPrerequisite, match=r'3\.11 to 3\.13 .* 3\.10\.4'):
        module.check_python()


def test_an_older_ros_is_not_used(scripts, monkeypatch):
    monkeypatch.setenv('ROS_DISTRO', 'humble')
    assert scripts('setup_env').sourced_ros() == ''
