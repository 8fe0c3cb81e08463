"""What a learner asks for beside its iterations: answered, counted, recorded, resumed."""

from collections.abc import Callable
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import Probe
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.lifelong import Lifelong
from lpgftw_ros.runs.visits import Visit

from .conftest import metrics

ADAPTIVE = {
    'max_columns': 2,
    'draws': 3,
    'draw_iterations': 2,
    'guard_tolerance': 0.01,
    'guard_share': 1.0,
    'inherit_margin': 0.01,
    'inherit_share': 1.0,
}
TASKS = 'g-08,g-12,g-06'


class Stopped(Exception):
    """The run is interrupted here."""


@pytest.fixture
def config(tiny_config: Callable[..., RunConfig]) -> RunConfig:
    return tiny_config('lpg-ftw-adaptive', TASKS, **ADAPTIVE)


@pytest.fixture
def whole(config: RunConfig, train: Callable[..., Path], tmp_path: Path) -> Path:
    return train(config, tmp_path / 'whole')


def stop_after(n: int) -> Callable[[Any], None]:
    count = iter(range(n))

    def on_step(session: Any) -> None:
        if next(count, None) is None:
            raise Stopped

    return on_step


def test_probes_are_recorded_and_counted_as_steps(whole: Path) -> None:
    rows = metrics(whole)
    purposes = {row['purpose'] for row in rows if row['kind'] == 'probe'}
    assert {'reference', 'guard', 'inherit'} <= purposes
    total = 0
    for row in rows:
        total += row['steps']
        assert row['total_steps'] == total
    summary = json.loads((whole / 'summary.json').read_text())
    assert summary['steps'] == total
    assert summary['state'] == 'finished'


def test_the_learner_plans_the_iterations_of_a_visit(whole: Path) -> None:
    summary = json.loads((whole / 'summary.json').read_text())
    # three draws of two iterations, two of one more; one is left and has the three asked for
    assert [task['iterations'] for task in summary['tasks']] == [8, 3, 3]


@pytest.mark.parametrize('steps', [2, 5, 9, 14, 18, 19, 20, 22, 27, 33, 35])
def test_a_run_with_probes_resumes_to_the_byte(
    config: RunConfig, train: Callable[..., Path], whole: Path, tmp_path: Path, steps: int
) -> None:
    out = tmp_path / 'broken'
    with pytest.raises(Stopped):
        train(config, out, on_step=stop_after(steps))
    train(config, out, resume=True)
    assert metrics(out) == metrics(whole)


@pytest.mark.parametrize('more', [False, True])
def test_probes_are_saved_when_the_last_of_a_series_is_answered(
    config: RunConfig, more: bool
) -> None:
    probe = Probe('g-08', None, 2, False, 'guard')
    wanted = iter([probe, probe if more else None])
    learner = SimpleNamespace(wants=lambda: next(wanted), probed=lambda batch: {'shortened': 0.5})
    loop = Lifelong(config, learner, {})
    visit = Visit(0, 'g-12', 3, 4, known=())
    no = np.zeros(2, dtype=bool)
    batch = Batch(
        *('g-08', np.zeros((4, 1)), np.zeros((4, 1)), np.arange(4.0)),
        *(np.array([2, 2]), no, ~no, no, no, np.zeros((2, 1))),
    )
    loop._learn_probe(visit, batch, 0.25)
    assert loop.changes == (not more, not more)
    (row,) = loop.take_rows()
    assert (row['kind'], row['task'], row['purpose']) == ('probe', 'g-08', 'guard')
    assert (row['return_mean'], row['shortened'], visit.probes) == (3.0, 0.5, 1)
    timing = {'sampling': 0.25, 'policy': 0.0, 'value': 0.0, 'knowledge': 0.0}
    assert row['timing'] == timing


def test_the_steps_that_recognise_a_task_count_and_are_to_be_saved(config: RunConfig) -> None:
    asked: list[Any] = []
    inquiry = SimpleNamespace(against='g-12', verdict='known')
    inquiry.probe = Probe('heavy', None, 1, False, 'recognise')

    def answer(batch: Any) -> None:
        inquiry.probe = None

    def collect(request: Any) -> Any:
        asked.append(request)
        return SimpleNamespace(n_steps=30)

    inquiry.answer = answer
    loop = Lifelong(config, SimpleNamespace(recognise=lambda task: inquiry), {})
    assert loop.changes == (False, False)
    assert loop.recognise('heavy', collect) == 'known'
    assert (loop.total_steps, loop.changes) == (30, (True, False))
    (request,) = asked
    same_numbers = loop.probe_request(Probe('g-12', None, 1, False, 'guard'), 0)
    assert (request.task, request.visit, request.seed) == ('heavy', -1, same_numbers.seed)
