"""An option stands in one place; everything else is made from it."""

import argparse
from dataclasses import fields
import importlib.util
from pathlib import Path
import re

import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.graph.bringup import GraphOptions
from lpgftw_ros.graph.deployment import DeployOptions
from lpgftw_ros.graph.parameters import BridgeParameters, LearnerParameters
from lpgftw_ros.learning.registry import LEARNERS
from lpgftw_ros.runs.config import learner_names
from lpgftw_ros.runs.options import add_options, given_options
from lpgftw_ros.runs.settings import described, help_text, LoopConfig, TrainOptions

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    'name', ['config/lifelong.yaml', 'docs/settings.md', 'docs/ros.md', 'README.md']
)
def test_the_files_made_from_the_declarations_are_up_to_date(name: str) -> None:
    path = ROOT / 'scripts' / 'settings_files.py'
    spec = importlib.util.spec_from_file_location('settings_files', path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / name).read_text() == script.FILES[name](), 'run make format'


@pytest.mark.parametrize(
    'kind', [GraphOptions, LearnerParameters, BridgeParameters, DeployOptions]
)
def test_an_option_of_a_run_is_the_same_wherever_it_appears(kind: type) -> None:
    declared = {item.name: item for item in fields(TrainOptions)}
    shared = [item for item in fields(kind) if item.name in declared]
    assert shared
    for item in shared:
        assert item.metadata == declared[item.name].metadata
        assert item.default == declared[item.name].default


def test_every_option_of_a_run_reaches_the_command_line_and_the_graph() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, TrainOptions)
    flags = {action.dest for action in parser._actions}
    names = {item.name for item in fields(TrainOptions)}
    assert names <= flags
    assert names <= {item.name for item in fields(GraphOptions)}
    assert names - {'workers', 'step_timeout'} <= {item.name for item in fields(LearnerParameters)}


def test_what_was_not_given_is_not_said() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, TrainOptions)
    assert given_options(parser.parse_args([])) == {}
    words = ['--no-resume', '--workers', '0', '--set', 'a=1', '--set', 'b=2']
    said = {'resume': False, 'workers': 0, 'settings': 'a=1;b=2'}
    assert given_options(parser.parse_args(words)) == said


def test_help_names_every_method_of_the_registry() -> None:
    item = next(item for item in fields(TrainOptions) if item.name == 'learner')
    assert re.findall(r'[\w-]+', help_text(item))[1:] == list(learner_names())


@pytest.mark.parametrize('kind', [LoopConfig, *(config for config, _ in LEARNERS.values())])
def test_every_setting_has_a_meaning(kind: type) -> None:
    assert all(len(meaning) > 8 for *_, meaning in described(kind))


def test_explain_shows_every_setting_of_a_method(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('COLUMNS', '200')
    assert main(['explain', '--settings', 'ewc-h']) == 0
    shown = capsys.readouterr().out
    for kind in (LoopConfig, LEARNERS['ewc'][0]):
        for name, *_, meaning in described(kind):
            assert name in shown
            assert meaning in shown
    assert main(['explain', '--settings', 'nothing']) == 2
    assert main(['explain']) == 2
