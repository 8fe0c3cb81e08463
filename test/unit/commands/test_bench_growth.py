"""`lpgftw bench growth` prints the ratio and the times behind it."""

import json

import numpy as np
import pytest

from lpgftw_ros.bench import update as bench_update
from lpgftw_ros.cli import main
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import PolicySpec


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bench_update, 'SPEC', PolicySpec(obs_dim=3, act_dim=2))


def test_json_is_one_object_with_the_ratio(capsys):
    assert main(['bench', 'growth', '--json', '--rounds', '2']) == 0
    results = json.loads(capsys.readouterr().out)
    times = results['seconds_task_50'] / results['seconds_task_5']
    assert results['ratio'] == pytest.approx(times)


def test_without_json_it_is_a_table(capsys):
    assert main(['bench', 'growth', '--rounds', '1']) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith('ratio')


def test_every_turn_starts_from_the_same_place():
    update = bench_update._Update(5, _model())
    update.seconds()
    first = update._knowledge.basis.copy()
    update.seconds()
    assert (update._knowledge.basis == first).all()


def _model():
    return LocalModel(np.ones(8), np.ones(8), -np.eye(8))
