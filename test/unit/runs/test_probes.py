"""What a learner asks for beside its iterations: answered, counted, recorded, resumed."""

from collections.abc import Callable
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import Probe
from lpgftw_ros.runs.checkpoints import CheckpointStore, load_knowledge
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.lifelong import Lifelong
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.visits import Collect, Visit

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


def in_a_series(session: Session, purpose: str) -> bool:
    """Return whether a probe of this purpose was answered last, and more of its series follow."""
    row = session.last_row or {}
    return row.get('purpose') == purpose and session.learner.wants() is not None


@pytest.mark.parametrize('purpose', ['start', 'keep', 'reference', 'guard', 'inherit'])
@pytest.mark.parametrize('command', ['extend', 'recognise'])
def test_a_series_of_probes_is_not_saved_half_answered_whatever_is_asked_meanwhile(
    config: RunConfig,
    train: Callable[..., Path],
    sampler: Sampler,
    whole: Path,
    tmp_path: Path,
    purpose: str,
    command: str,
) -> None:
    def kill(session: Session) -> None:
        if in_a_series(session, purpose):
            if command == 'extend':
                session.lifelong.extend([])
            else:
                session.lifelong.recognise('g-10', lambda r: answered(session, sampler, r))
            session.save()
            raise Stopped

    out = tmp_path / 'broken'
    with pytest.raises(Stopped):
        train(config, out, on_step=kill)
    train(config, out, resume=True)
    assert_same_run(out, whole)


def assert_same_run(out: Path, whole: Path) -> None:
    assert metrics(out) == metrics(whole)
    steps = [json.loads((d / 'summary.json').read_text())['steps'] for d in (out, whole)]
    assert steps[0] == steps[1]
    states = [CheckpointStore(d / 'checkpoints').newest().state for d in (out, whole)]
    assert states[0].keys() == states[1].keys()
    for name, array in states[1].items():
        np.testing.assert_array_equal(states[0][name], array, err_msg=name)


def answered(session: Session, sampler: Sampler, request: Collect) -> Batch:
    policy = session.policy(request)
    return sampler.collect(request.task, policy, request.n_trajectories, request.seed, False)


@pytest.mark.parametrize('purpose', ['start', 'keep', 'reference', 'guard', 'inherit'])
def test_a_hold_ends_a_series_and_is_saved_with_what_it_took(
    config: RunConfig, train: Callable[..., Path], tmp_path: Path, purpose: str
) -> None:
    held: list[bool] = []

    def hold(session: Session) -> None:
        if in_a_series(session, purpose) and len(held) < 2:
            session.lifelong.hold()
            session.save()
            held.append(True)
            if len(held) == 2:
                raise Stopped
            session.lifelong.release()
            held.append(False)

    whole = train(config, tmp_path / 'whole', on_step=hold)
    held[:] = [True]
    with pytest.raises(Stopped):
        train(config, tmp_path / 'broken', on_step=hold)
    train(config, tmp_path / 'broken', resume=True)
    assert_same_run(tmp_path / 'broken', whole)


def test_knowledge_that_ends_a_series_is_saved_at_once(
    config: RunConfig, train: Callable[..., Path], whole: Path, tmp_path: Path
) -> None:
    def replace(session: Session) -> None:
        if in_a_series(session, 'reference'):
            session.import_knowledge(whole)
            raise Stopped

    with pytest.raises(Stopped):
        train(config, tmp_path / 'run', on_step=replace)
    assert list(load_knowledge(tmp_path / 'run').tasks) == TASKS.split(',')


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
