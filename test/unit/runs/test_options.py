"""What may be said on the command line when a run is continued."""

import argparse
from pathlib import Path

import pytest

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.folder import RunFolder
from lpgftw_ros.runs.options import add_sampling_arguments, add_train_arguments, run_config

SETTINGS = {'seed': 60, 'iterations': 7, 'trajectories': 4, 'max_columns': 2}


@pytest.fixture
def saved(tmp_path: Path) -> RunConfig:
    config = resolve('hopper-gravity', 'lpg-ftw', overrides=SETTINGS, tasks='3')
    RunFolder(tmp_path / 'run', config, resume=False).close()
    return config


def parse(text: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_train_arguments(parser)
    return parser.parse_args(text.split())


@pytest.mark.parametrize(
    'said',
    [
        '',
        '--suite hopper-gravity',
        '--learner lpg-ftw --seed 60 --iterations 7 --trajectories 4',
        '--tasks 3',
        '--preset published',
        '--set max_columns=2 --set max_kl=5e-3',
        '--workers 2',
    ],
)
def test_what_is_as_it_was_may_be_said_again(tmp_path, saved, said):
    assert run_config(parse(f'--resume --out {tmp_path}/run {said}')) == saved


def test_tasks_may_be_said_by_their_names(tmp_path, saved):
    args = parse(f'--resume --out {tmp_path}/run --tasks {",".join(saved.tasks)}')
    assert run_config(args) == saved


@pytest.mark.parametrize(
    ('said', 'named'),
    [
        ('--suite demo', "suite is 'hopper-gravity', asked for 'demo'"),
        ('--suite demo --tasks reach', "suite is 'hopper-gravity', asked for 'demo'"),
        ('--learner stl', "learner is 'lpg-ftw', asked for 'stl'"),
        ('--seed 50', 'seed is 60, asked for 50'),
        ('--iterations 500', 'iterations is 7, asked for 500'),
        ('--trajectories 5', 'trajectories is 4, asked for 5'),
        ('--tasks 2', 'tasks is'),
        ('--preset paper', "update_from is 'second', asked for 'after_columns'"),
        ('--set max_kl=9', 'max_kl is 0.005, asked for 9.0'),
        ('--set hidden=8,8', r'hidden is \[\], asked for \[8, 8\]'),
    ],
)
def test_what_is_otherwise_is_refused(tmp_path, saved, said, named):
    with pytest.raises(InvalidConfig, match=named):
        run_config(parse(f'--resume --out {tmp_path}/run {said}'))


def test_all_differences_are_named_at_once(tmp_path, saved):
    words = f'--resume --out {tmp_path}/run --iterations 500 --set max_kl=9 --learner stl'
    with pytest.raises(InvalidConfig) as caught:
        run_config(parse(words))
    for name in ('iterations', 'max_kl', 'learner'):
        assert f'{name} is' in str(caught.value)


def test_a_run_killed_before_its_configuration_was_written_begins_anew(tmp_path):
    words = f'--resume --suite demo --seed 3 --out {tmp_path}/none'
    assert run_config(parse(words)).loop.seed == 3


def test_a_path_may_be_written_otherwise(tmp_path, monkeypatch):
    suite = tmp_path / 'own.yaml'
    suite.write_text('tasks: [{name: a, kind: body, body: hopper}]')
    RunFolder(tmp_path / 'run', resolve(str(suite), 'stl'), resume=False).close()
    monkeypatch.chdir(tmp_path)
    assert run_config(parse('--resume --out run --suite own.yaml')).suite == str(suite)


def test_a_cluster_may_be_named_without_an_address():
    assert parse('--ray').ray == 'local'
    assert parse('--ray head:6379').ray == 'head:6379'
    assert parse('').ray is None


def test_the_options_of_sampling_leave_out_the_suite():
    parser = argparse.ArgumentParser()
    add_sampling_arguments(parser)
    assert vars(parser.parse_args(['--workers', '3'])) == {'workers': 3, 'step_timeout': None}


def test_a_number_is_held_to_its_range_on_the_command_line(capsys):
    assert (parse('--seed 0').seed, parse('--step-timeout 0').step_timeout) == (0, 0.0)
    for said in ('--seed -1', '--workers 1025', '--trajectories 0', '--step-timeout 86401'):
        with pytest.raises(SystemExit):
            parse(said)
    capsys.readouterr()
