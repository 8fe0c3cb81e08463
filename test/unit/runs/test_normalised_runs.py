"""A run with normalised observations: its look around, resumed, continued, read again."""

from collections.abc import Callable
import json
from pathlib import Path

import numpy as np
import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.learning.moments import FIRST_LOOK
from lpgftw_ros.runs.checkpoints import CheckpointStore, load_knowledge
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.driver import drive, evaluate_run, policies_over_time, policy_spec
from lpgftw_ros.runs.session import Session

from .conftest import metrics, SMALL, SUITE

Make, Train = Callable[..., RunConfig], Callable[..., Path]
TASKS = 'g-08,g-12,g-06,g-08'


class Stopped(Exception):
    """The run is interrupted here."""


@pytest.fixture
def config(tiny_config: Make) -> RunConfig:
    return tiny_config(tasks=TASKS, normalise=True)


@pytest.fixture
def whole(config: RunConfig, train: Train, tmp_path: Path) -> Path:
    return train(config, tmp_path / 'whole')


def test_the_look_around_is_recorded_once_and_counted(whole: Path) -> None:
    rows = metrics(whole)
    looks = [row for row in rows if row['kind'] == 'probe']
    assert [(row['purpose'], row['visit'], row['steps']) for row in looks] == [
        ('observations', 0, FIRST_LOOK * 20)
    ]
    assert rows[-1]['total_steps'] == sum(row['steps'] for row in rows)


@pytest.mark.parametrize('steps', [1, 2, 4, 7, 9, 13, 20, 27])
def test_it_resumes_to_the_byte(
    config: RunConfig, train: Train, whole: Path, tmp_path: Path, steps: int
) -> None:
    out, count = tmp_path / 'broken', iter(range(steps))

    def stop(session: Session) -> None:
        if next(count, None) is None:
            raise Stopped

    with pytest.raises(Stopped):
        train(config, out, on_step=stop)
    train(config, out, resume=True)
    assert metrics(out) == metrics(whole)


def test_workers_do_not_change_it(config: RunConfig, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / 'two'
    with (
        Sampler(config.suite_source, 2) as sampler,
        Session(config, out, spec=policy_spec(config, sampler)) as session,
    ):
        drive(session, sampler, lambda session: None)
    assert metrics(out) == metrics(whole)


def test_added_tasks_and_a_revisit_give_the_same_bytes(
    tiny_config: Make, train: Train, whole: Path, tmp_path: Path
) -> None:
    grown = train(tiny_config(tasks='g-08,g-12', normalise=True), tmp_path / 'grown')
    assert main(['learn', str(grown), 'g-06', 'g-08', '--workers', '1']) == 0
    assert metrics(grown) == metrics(whole)
    states = [CheckpointStore(out / 'checkpoints').newest().state for out in (whole, grown)]
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array, err_msg=name)


def test_policies_of_the_folder_are_those_of_the_run(whole: Path) -> None:
    tasks = json.loads((whole / 'summary.json').read_text())['tasks']
    final = {entry['task']: entry['final']['return'] for entry in tasks}
    for result in evaluate_run(whole, workers=1):
        assert result.return_mean == final[result.task]


def test_the_tuned_policy_of_a_task_is_read_back(
    tiny_config: Make, train: Train, tmp_path: Path, sampler: Sampler
) -> None:
    out = train(tiny_config('stl', tasks='g-08', normalise=True), tmp_path / 'run')
    start, _, final = policies_over_time(out, 'g-08')
    assert start is not None
    assert not np.array_equal(start.theta, final.theta)
    np.testing.assert_array_equal(final.theta, load_knowledge(out).policy('g-08').theta)


def test_a_suite_may_ask_for_it_and_a_run_decline(tmp_path: Path) -> None:
    path = tmp_path / 'own.yaml'
    path.write_text(f'{SUITE}settings: {{normalise: true, max_kl: 0.25, iterations: 9}}\n')
    asked = resolve(str(path), 'lpg-ftw')
    assert (asked.method['normalise'], asked.method['max_kl']) == (True, 0.25)
    assert asked.loop.iterations == 9
    declined = resolve(str(path), 'lpg-ftw', overrides={'normalise': 'false', **SMALL})
    assert (declined.method['normalise'], declined.loop.iterations) == (False, SMALL['iterations'])
