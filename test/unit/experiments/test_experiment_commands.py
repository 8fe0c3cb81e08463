"""The commands on runs that were really trained: three short tasks, two columns."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from lpgftw_ros.cli import main
from lpgftw_ros.commands.experiment import spec_names, spec_path
from lpgftw_ros.experiments import load_spec, PROFILES
from lpgftw_ros.experiments.report import rerun_command
from lpgftw_ros.experiments.run_data import (
    is_pinned,
    measure_cross_returns,
    read_coefficients,
    read_cross_returns,
    read_run,
)
from lpgftw_ros.experiments.sweep import cell_config

SUITE = {
    'kind': 'body',
    'horizon': 20,
    'defaults': {'body': 'halfcheetah'},
    'tasks': [{'name': f'g{i}', 'gravity': 0.8 + 0.2 * i} for i in range(3)],
    'sequence': ['g0', 'g1', 'g2'],
}


@pytest.fixture(scope='module')
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp('trained')
    (root / 'short.yaml').write_text(yaml.safe_dump(SUITE))
    common = ['--suite', str(root / 'short.yaml'), '--seed', '3', '--workers', '1']
    common += ['--iterations', '2', '--trajectories', '3']
    common += ['--set', 'evaluation_episodes=1', '--set', 'stochastic_episodes=0']
    for learner, own in (('lpg-ftw', ['--set', 'max_columns=2']), ('stl', [])):
        out = str(root / 'runs' / learner)
        assert main(['train', *common, '--learner', learner, *own, '--out', out]) == 0
    return root / 'runs'


def test_explain_names_columns_and_nearest_tasks(runs, capsys):
    assert main(['explain', str(runs / 'lpg-ftw'), '--task', 'g2']) == 0
    text = capsys.readouterr().out
    assert 'share of columns' in text
    assert 'nearest: ' in text


def test_explain_gives_json(runs, capsys):
    assert main(['explain', str(runs / 'lpg-ftw'), '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one['task'] for one in found] == ['g0', 'g1', 'g2']
    assert len(found[2]['coefficients']) == 2
    assert 0.0 <= found[2]['saturation']['outside_share'] <= 1.0


def test_explain_says_that_stl_shares_nothing(runs, capsys):
    assert main(['explain', str(runs / 'stl')]) == 0
    assert 'no shared basis' in capsys.readouterr().out


def test_explain_of_an_unknown_task_is_code_two(runs, capsys):
    assert main(['explain', str(runs / 'lpg-ftw'), '--task', 'g9']) == 2
    assert 'g0, g1, g2' in capsys.readouterr().err


def test_report_measures_diversity_draws_maps_and_archives(runs, tmp_path):
    words = ['report', str(runs), '--out', str(tmp_path / 'out'), '--diversity']
    assert main([*words, '--archive', str(tmp_path / 'kept')]) == 0
    names = {path.name for path in (tmp_path / 'out' / 'figures').iterdir()}
    assert any('coefficients' in name for name in names)
    assert any('diversity' in name for name in names)
    packed = next((tmp_path / 'kept').rglob('lpg-ftw/seed-3'))
    assert read_run(packed).iterations == read_run(runs / 'lpg-ftw').iterations
    assert read_coefficients(packed).values.shape == (3, 2)
    assert read_cross_returns(next((tmp_path / 'kept').rglob('stl/seed-3'))) is not None
    assert not list((tmp_path / 'kept').rglob('checkpoints'))
    assert is_pinned(packed)
    (packed / 'fingerprint.json').unlink()  # as runs were archived that nobody can repeat
    assert not is_pinned(packed)


def test_a_policy_does_on_its_own_task_what_it_did_at_the_end_of_its_run(runs):
    cross = measure_cross_returns(runs / 'stl', episodes=1, workers=1)
    final = [result.scores['final'].mean_return for result in read_run(runs / 'stl').tasks]
    assert np.diag(cross.returns).tolist() == final


def test_the_rerun_command_names_what_differs_from_the_presets(runs):
    command = rerun_command(read_run(runs / 'lpg-ftw'))
    for words in ('--seed 3', '--iterations 2', '--trajectories 3', '--set max_columns=2'):
        assert words in command
    assert 'gamma' not in command


@pytest.mark.parametrize('profile', PROFILES)
def test_every_shipped_cell_is_a_valid_run_and_shared_cells_are_the_same_run(profile):
    known = {}
    for name in spec_names():
        for cell in load_spec(spec_path(name), profile).cells:
            config = cell_config(cell)
            assert config.tasks
            assert known.setdefault(cell.name, config) == config, (name, cell.name)


def test_reproduce_lists_every_figure(capsys):
    assert main(['reproduce']) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(spec_names())


def test_reproduce_names_a_figure_that_is_close(capsys):
    assert main(['reproduce', 'mt11']) == 2
    assert "did you mean 'mt10'" in capsys.readouterr().err


def test_a_dry_run_prints_one_command_per_cell(capsys):
    assert main(['reproduce', 'mt10', '--profile', 'smoke', '--dry-run']) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_an_experiment_trains_its_cells(tmp_path, capsys):
    (tmp_path / 'short.yaml').write_text(yaml.safe_dump(SUITE))
    (tmp_path / 'spec.yaml').write_text(
        yaml.safe_dump(
            {
                'suites': [str(tmp_path / 'short.yaml')],
                'seeds': [3],
                'tasks': 2,
                'iterations': 1,
                'trajectories': 2,
                'set': {'evaluation_episodes': 1, 'stochastic_episodes': 0},
                'methods': ['stl', 'pg-ella'],
            }
        )
    )
    words = ['experiment', str(tmp_path / 'spec.yaml'), '--out', str(tmp_path / 'runs')]
    assert main([*words, '--workers', '1']) == 0
    assert '2 of 2 cells finished' in capsys.readouterr().out


def test_reproduce_reports_no_run_of_another_configuration(tmp_path, capsys):
    (cell,) = load_spec(spec_path('diversity'), 'smoke').cells
    folder = cell.folder(tmp_path / 'smoke')
    folder.mkdir(parents=True)
    content = {**cell_config(cell).to_dict(), 'tasks': ['gravity-00']}
    (folder / 'config.yaml').write_text(yaml.safe_dump(content))
    (folder / 'summary.json').write_text('{"format": 1, "state": "finished"}')
    assert main(['reproduce', 'diversity', '--profile', 'smoke', '--out', str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert 'another run is there: halfcheetah-gravity/stl/seed-50' in text
    assert "tasks is ['gravity-00'], asked for" in text
