"""`lpgftw tasks` lists suites and tasks."""

import json

from lpgftw_ros.cli import main


def test_all_suites_as_json(capsys):
    assert main(['tasks', '--json']) == 0
    rows = {row['suite']: row for row in json.loads(capsys.readouterr().out)}
    counts = {name: rows[name]['tasks'] for name in ('hopper-gravity', 'walker2d-gravity', 'mt50')}
    assert counts == {'hopper-gravity': 20, 'walker2d-gravity': 50, 'mt50': 48}


def test_one_suite_as_json(capsys):
    assert main(['tasks', 'hopper-gravity', '--json']) == 0
    suite = json.loads(capsys.readouterr().out)
    assert suite['suite'] == 'hopper-gravity'
    settings = suite['tasks'][1]['settings']
    assert settings['body'] == 'hopper'
    assert round(settings['gravity'], 4) == 1.0424


def test_tasks_in_the_order_of_a_seed(capsys):
    assert main(['tasks', 'hopper-gravity', '--seed', '50']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith('gravity-15')


def test_an_unknown_suite_exits_2_with_one_line(capsys):
    assert main(['tasks', 'mt11']) == 2
    error = capsys.readouterr().err
    assert "did you mean 'mt10'" in error
    assert error.count('\n') == 1
