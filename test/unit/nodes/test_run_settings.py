"""What may be said in the graph when a run is continued."""

from pathlib import Path

import pytest

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.graph.bringup import options_from, require_run
from lpgftw_ros.graph.parameters import LearnerParameters, run_settings
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.folder import RunFolder


@pytest.fixture
def saved(tmp_path: Path) -> RunConfig:
    settings = {'seed': 60, 'iterations': 7, 'max_columns': 2}
    config = resolve('hopper-gravity', 'lpg-ftw', overrides=settings, tasks='3')
    RunFolder(tmp_path / 'run', config, resume=False).close()
    return config


def parameters(tmp_path: Path, **said) -> LearnerParameters:
    return LearnerParameters(out=str(tmp_path / 'run'), resume=True, **said)


@pytest.mark.parametrize('said', [{}, {'seed': 60}, {'suite': 'hopper-gravity', 'tasks': '3'}])
def test_the_node_continues_its_run(tmp_path, saved, said):
    assert run_settings(parameters(tmp_path, **said)) == (saved, tmp_path / 'run')


@pytest.mark.parametrize(
    'said', [{'suite': 'mt10'}, {'iterations': 500}, {'settings': 'max_kl=9'}, {'learner': 'stl'}]
)
def test_the_node_refuses_other_parameters(tmp_path, saved, said):
    with pytest.raises(InvalidConfig, match='asked for'):
        run_settings(parameters(tmp_path, **said))


def test_the_graph_takes_the_suite_of_the_run_it_continues(tmp_path, saved):
    options = options_from({'out': str(tmp_path / 'run'), 'resume': 'true'})
    suite = require_run(options, {'out', 'resume'}).suite
    assert suite == str(tmp_path / 'run' / 'suite' / 'hopper-gravity.yaml')


def test_the_graph_refuses_a_default_that_was_said(tmp_path, saved):
    options = options_from({'out': str(tmp_path / 'run'), 'resume': 'true', 'suite': 'demo'})
    with pytest.raises(InvalidConfig, match="asked for 'demo'"):
        require_run(options, {'out', 'resume', 'suite'})
