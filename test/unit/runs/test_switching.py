"""Parking, continuing and revisiting, as the loop offers them to whoever drives it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import LearnerMisuse
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import policy_spec
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.visits import Done, Idle

from .conftest import metrics

Make = Callable[..., RunConfig]


class Driver:
    """Answers a session's requests one at a time."""

    def __init__(self, config: RunConfig, out: Path, sampler: Sampler) -> None:
        self.session = Session(config, out, spec=policy_spec(config, sampler))
        self.sampler = sampler

    def step(self) -> bool:
        request = self.session.next_request()
        if isinstance(request, Done | Idle):
            return False
        self.session.background()
        policy = self.session.policy(request)
        n, seed = request.n_trajectories, request.seed
        batch = self.sampler.collect(request.task, policy, n, seed, request.explore)
        self.session.feed(batch, 0.0)
        return True

    def until(self, visit: int, iteration: int) -> None:
        """Go on until this visit has this many iterations behind it."""
        while True:
            visits = self.session.lifelong.visits
            if len(visits) > visit and visits[visit].finished_iterations >= iteration:
                return
            assert self.step()

    def until_folded(self, visit: int) -> None:
        """Go on until this visit's task is folded in and only measurements are left."""
        self.until(visit, self.session.config.loop.iterations)
        while self.session.learner.running is not None:
            assert self.step()
        assert self.session.lifelong.current is self.session.lifelong.visits[visit]

    def finish(self) -> list[dict]:
        while self.step():
            pass
        self.session.finish()
        return metrics(self.session.folder.path)

    def theta(self, task: str) -> np.ndarray:
        return self.session.learner.knowledge().policy(task).theta


@pytest.mark.parametrize('learner', ['lpg-ftw', 'stl', 'ewc', 'er'])
def test_a_parked_task_continues_as_if_never_parked(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, learner: str
) -> None:
    config = tiny_config(learner, tasks='3')
    whole = Driver(config, tmp_path / 'whole', sampler).finish()
    driver = Driver(config, tmp_path / 'parked', sampler)
    driver.until(visit=1, iteration=2)
    before = driver.theta('g-08')
    driver.session.lifelong.hold()
    driver.session.save()
    np.testing.assert_array_equal(driver.theta('g-08'), before)
    assert not driver.step()
    driver.session.lifelong.release()
    assert driver.finish() == whole


def test_learning_another_task_parks_the_running_one(
    tiny_config: Make, sampler: Sampler, tmp_path: Path
) -> None:
    driver = Driver(tiny_config(tasks='2'), tmp_path / 'run', sampler)
    driver.until(visit=0, iteration=1)
    driver.session.lifelong.learn('g-10')
    driver.session.save()
    rows = driver.finish()
    order = list(dict.fromkeys((row['visit'], row['task']) for row in rows))
    assert order == [(0, 'g-08'), (1, 'g-10'), (2, 'g-12')]
    assert {row['task'] for row in rows if row['kind'] == 'update'} == {'g-08', 'g-10', 'g-12'}


def test_a_cancelled_revisit_leaves_everything(
    tiny_config: Make, sampler: Sampler, tmp_path: Path
) -> None:
    driver = Driver(tiny_config(tasks='g-08,g-12,g-06,g-08'), tmp_path / 'run', sampler)
    driver.until(visit=2, iteration=3)
    while driver.session.lifelong.current is not None and len(driver.session.lifelong.visits) == 3:
        driver.step()
    before = {task: driver.theta(task) for task in ('g-08', 'g-12', 'g-06')}
    basis = driver.session.learner.knowledge().basis
    driver.until(visit=3, iteration=2)
    driver.session.lifelong.drop()
    driver.session.save()
    np.testing.assert_array_equal(driver.session.learner.knowledge().basis, basis)
    for task, theta in before.items():
        np.testing.assert_array_equal(driver.theta(task), theta)


def test_the_matrix_keeps_its_columns_when_tasks_are_parked_and_cancelled(
    tiny_config: Make, sampler: Sampler, tmp_path: Path
) -> None:
    driver = Driver(tiny_config('stl', tasks='1', matrix=True), tmp_path / 'run', sampler)
    lifelong = driver.session.lifelong
    driver.until(visit=0, iteration=1)
    lifelong.learn('g-10')
    driver.until(visit=1, iteration=1)
    lifelong.learn('g-06')
    driver.until(visit=2, iteration=1)
    lifelong.drop()
    driver.finish()
    summary = driver.session.folder.read_json('summary.json')
    assert [entry['task'] for entry in summary['tasks']] == ['g-08', 'g-10']
    order = [visit.known for visit in lifelong.visits if visit.state == 'finished']
    for row, known in zip(summary['matrix'], order, strict=True):
        columns = zip(['g-08', 'g-10'], row, strict=True)
        assert [task for task, value in columns if value is not None] == sorted(known)


def test_a_revisit_that_ends_replaces_the_old_policy(
    tiny_config: Make, sampler: Sampler, tmp_path: Path
) -> None:
    driver = Driver(tiny_config(tasks='g-08,g-12,g-06,g-08'), tmp_path / 'run', sampler)
    driver.until(visit=3, iteration=1)
    before = driver.theta('g-08')
    driver.finish()
    assert not np.array_equal(driver.theta('g-08'), before)
    assert list(driver.session.learner.knowledge().tasks) == ['g-08', 'g-12', 'g-06']


COMMANDS = {
    'learn': lambda lifelong: lifelong.learn('g-10'),
    'hold': lambda lifelong: lifelong.hold(),
    'set_aside': lambda lifelong: lifelong.set_aside(),
    'drop': lambda lifelong: lifelong.drop(),
}


@pytest.mark.parametrize('command', COMMANDS)
def test_a_task_that_is_folded_in_stays_so_whatever_is_asked(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, command: str
) -> None:
    driver = Driver(tiny_config(tasks='2', matrix=True), tmp_path / 'run', sampler)
    driver.until_folded(visit=0)
    lifelong, before = driver.session.lifelong, driver.theta('g-08')
    COMMANDS[command](lifelong)
    driver.session.save()
    assert lifelong.visits[0].state == 'finished'
    assert 'g-08' not in lifelong.queue
    np.testing.assert_array_equal(driver.theta('g-08'), before)
    lifelong.release()
    learned = [row['task'] for row in driver.finish() if row['kind'] == 'update']
    assert learned == ['g-08', *(['g-10'] if command == 'learn' else []), 'g-12']


@pytest.mark.parametrize('parked', [False, True])
def test_a_task_under_way_takes_another_goal(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, parked: bool
) -> None:
    driver = Driver(tiny_config(tasks='1'), tmp_path / 'run', sampler)
    driver.until(visit=0, iteration=2)
    lifelong = driver.session.lifelong
    if parked:
        lifelong.hold()
    with pytest.raises(LearnerMisuse, match='2 finished iterations'):
        lifelong.learn('g-08', iterations=1)
    lifelong.learn('g-08', iterations=6)
    rows = [row for row in driver.finish() if row['kind'] == 'iteration']
    assert [row['iteration'] for row in rows] == list(range(6))
    assert [visit.task for visit in lifelong.visits] == ['g-08']


@pytest.mark.parametrize('parked', [False, True])
@pytest.mark.parametrize('asked', [2, 3])
def test_what_a_task_owes_follows_the_last_request(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, parked: bool, asked: int
) -> None:
    """Asked for twenty, then for as many as are done, or one more: nothing is saved by that."""
    config = tiny_config('lpg-ftw-adaptive', tasks='1', iterations=20, payback=0.5)
    driver = Driver(config, tmp_path / 'run', sampler)
    driver.until(visit=0, iteration=2)
    lifelong, learner = driver.session.lifelong, driver.session.learner
    if parked:
        lifelong.hold()
    lifelong.learn('g-08', iterations=asked)
    while learner.running is not None:
        assert driver.step()
    assert lifelong.visits[0].finished_iterations == asked
    assert learner._account.debt == 0


@pytest.mark.parametrize('parked', [False, True])
def test_a_request_between_what_is_done_and_what_the_draws_take_is_no_refusal(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, parked: bool
) -> None:
    config = tiny_config('lpg-ftw-adaptive', tasks='1', iterations=4, draws=3, draw_iterations=2)
    driver = Driver(config, tmp_path / 'run', sampler)
    driver.until(visit=0, iteration=5)
    lifelong = driver.session.lifelong
    planned = lifelong.visits[0].iterations
    if parked:
        lifelong.hold()
    lifelong.learn('g-08', iterations=4)
    assert lifelong.visits[0].iterations == planned > 5
    rows = [row for row in driver.finish() if row['kind'] == 'iteration']
    assert len(rows) == planned


@pytest.mark.parametrize('learner', ['lpg-ftw', 'stl', 'ewc', 'er'])
@pytest.mark.parametrize('source', ['file', 'folder'])
def test_knowledge_of_another_run_replaces_all_that_was_learned(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, learner: str, source: str
) -> None:
    other = Driver(tiny_config(learner, tasks='g-06', seed=3), tmp_path / 'other', sampler)
    other.finish()
    path = tmp_path / ('other' if source == 'folder' else 'knowledge.safetensors')
    if source == 'file':
        other.session.export_knowledge(path)
    driver = Driver(tiny_config(learner, tasks='2'), tmp_path / 'run', sampler)
    driver.until(visit=1, iteration=2)
    lifelong, version = driver.session.lifelong, driver.session.learner.knowledge().version
    lifelong.hold()
    driver.session.import_knowledge(path)
    knowledge = driver.session.learner.knowledge()
    assert list(knowledge.tasks) == ['g-06']
    assert knowledge.version > version
    np.testing.assert_array_equal(driver.theta('g-06'), other.theta('g-06'))
    assert [visit.state for visit in lifelong.visits] == ['finished', 'cancelled']
    lifelong.release()
    driver.finish()  # g-12 from its beginning; g-08 is not there to be measured
    assert lifelong.visits[2].finished_iterations == driver.session.config.loop.iterations
    assert 'final' not in lifelong.visits[0].scores
    assert 'final' in lifelong.visits[2].scores


def test_a_run_is_finished_only_with_all_its_tasks(
    tiny_config: Make, sampler: Sampler, tmp_path: Path
) -> None:
    driver = Driver(tiny_config(tasks='2'), tmp_path / 'run', sampler)
    lifelong, folder = driver.session.lifelong, driver.session.folder
    driver.until(visit=1, iteration=1)
    lifelong.hold()
    lifelong.queue.clear()
    driver.session.save()
    lifelong.release()
    while driver.step():
        pass
    assert lifelong.done
    driver.session.write_summary()
    assert folder.read_json('summary.json')['state'] == 'running'
    lifelong.learn('g-12')
    driver.finish()
    assert folder.read_json('summary.json')['state'] == 'finished'


def test_a_hold_is_remembered(tiny_config: Make, sampler: Sampler, tmp_path: Path) -> None:
    config = tiny_config(tasks='1')
    driver = Driver(config, tmp_path / 'run', sampler)
    driver.session.lifelong.hold()
    driver.session.save()
    driver.session.folder.close()
    spec = policy_spec(config, sampler)
    with Session(config, tmp_path / 'run', spec=spec, resume=True) as session:
        assert session.next_request() == Idle(held=True)
