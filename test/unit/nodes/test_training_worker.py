"""The learner node's worker, driven by a real sampler instead of a bridge."""

import json
from pathlib import Path
import threading
import time

import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import LpgftwError, UnknownName
from lpgftw_ros.graph.admission import TaskPolicy
from lpgftw_ros.graph.policy_server import PolicyServer
from lpgftw_ros.graph.training import Interrupted, TrainingWorker
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.driver import drive, open_session, policy_spec
from lpgftw_ros.runs.session import Session

SUITE = """
description: short HalfCheetah tasks
kind: body
horizon: 12
hidden: []
defaults: {body: halfcheetah}
tasks:
  - {name: light, gravity: 0.8}
  - {name: heavy, gravity: 1.2}
"""
OVERRIDES = {'iterations': 2, 'trajectories': 3, 'max_columns': 2, 'evaluation_episodes': 1}


class InProcess:
    """The graph around a worker, without the graph: goals are answered by what was announced."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.modes, self.closing = sampler, [], threading.Event()
        self.goals, self.server = [], PolicyServer()
        self.after = lambda goal: None
        """Called when a rollout is over; what it queues comes before the next one."""

    def announce(self, worker: TrainingWorker) -> None:
        learner = worker.session.learner
        worker.knowledge = learner.knowledge()
        self.server.set_knowledge(worker.knowledge)
        if (trial := worker.trial) is not None:
            versions = (worker.policy_version, worker.knowledge.version)
            task, factors = trial
            spec = worker.session.spec
            self.server.set_training(TaskPolicy(task, *versions, spec, factors))
        self.modes.append((worker.active, worker.mode))

    def collect(self, goal, in_background, given_up=lambda: False):
        if self.closing.is_set():
            raise Interrupted
        self.goals.append(goal)
        key, policy = goal.key, self.server.policy(goal.key)
        batch = self.sampler.collect(key.task, policy, goal.n_trajectories, key.seed, key.explore)
        in_background()
        self.after(goal)
        return batch


@pytest.fixture
def config(tmp_path: Path):
    path = tmp_path / 'short.yaml'
    path.write_text(SUITE)
    settings = {'update_trajectories': 2, 'stochastic_episodes': 1, 'max_kl': 0.1}
    return resolve(str(path), 'lpg-ftw', overrides=OVERRIDES | settings, tasks='light,heavy')


def open_worker(config, out: Path, sampler: Sampler, *, empty: bool):
    session = Session(config, out, spec=policy_spec(config, sampler))
    if empty:
        session.lifelong.queue.clear()
    outside = InProcess(sampler)
    return TrainingWorker(session, outside), outside


def rows(out: Path) -> list[dict]:
    lines = (out / 'metrics.jsonl').read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != 'timing'} for line in lines]


ADAPTIVE = {
    'draws': 2,
    'draw_iterations': 1,
    'guard_tolerance': 0.01,
    'guard_share': 1.0,
    'inherit_margin': 0.01,
    'inherit_share': 1.0,
}


@pytest.mark.parametrize('learner', ['lpg-ftw', 'lpg-ftw-adaptive'])
def test_the_worker_writes_what_the_in_process_driver_writes(
    config, learner, tmp_path: Path
) -> None:
    if learner != 'lpg-ftw':
        settings = config.settings() | ADAPTIVE
        config = resolve(config.suite, learner, overrides=settings, tasks='light,heavy')
    with open_session(config, tmp_path / 'train', workers=1) as (session, sampler):
        drive(session, sampler, lambda session: None)
    with Sampler(config.suite, 1) as sampler:
        worker, _ = open_worker(config, tmp_path / 'worker', sampler, empty=False)
        worker.start()
        assert worker.finished.wait(60.0)
        assert worker.failed is None
        worker.close()
        worker.session.folder.close()
    assert rows(tmp_path / 'worker') == rows(tmp_path / 'train')


def test_a_task_without_a_name_is_recognised(config, tmp_path: Path) -> None:
    settings = config.settings() | ADAPTIVE
    config = resolve(config.suite, 'lpg-ftw-adaptive', overrides=settings, tasks='light,heavy')
    with Sampler(config.suite, 1) as sampler:
        worker, outside = open_worker(config, tmp_path / 'worker', sampler, empty=False)
        worker.start()
        assert worker.finished.wait(60.0)
        steps = worker.session.lifelong.total_steps
        found = worker.do(lambda: worker.recognise('heavy')).result(20.0)
        assert (found.kind, found.task) == ('known', 'heavy')
        assert found.distances['heavy'] == 0.0
        assert worker.session.lifelong.total_steps == steps + found.steps
        assert worker.probe is None
        worker.close()
        worker.session.folder.close()
    assert ('heavy', 'evaluating') in outside.modes


def test_commands_are_answered_in_order_while_it_rests(config, tmp_path: Path) -> None:
    with Sampler(config.suite, 1) as sampler:
        worker, outside = open_worker(config, tmp_path / 'run', sampler, empty=True)
        worker.start()
        worker.do(lambda: worker.switch('heavy', True)).result(20.0)
        end = time.monotonic() + 60.0
        while 'heavy' not in worker.knowledge.tasks and time.monotonic() < end:
            time.sleep(0.01)
        batch = worker.do(lambda: worker.evaluate('heavy', 2, 5, False)).result(20.0)
        assert batch.n_trajectories == 2
        with pytest.raises(UnknownName):
            worker.do(lambda: worker.evaluate('light', 2, 5, False)).result(20.0)
        worker.close()
        worker.session.folder.close()
    assert ('heavy', 'training') in outside.modes
    assert ('heavy', 'evaluating') in outside.modes


def test_a_closing_worker_gives_up_its_rollout(config, tmp_path: Path) -> None:
    with Sampler(config.suite, 1) as sampler:
        worker, outside = open_worker(config, tmp_path / 'run', sampler, empty=False)
        outside.closing.set()
        worker.start()
        worker.close(10.0)
        assert worker.failed is None
        worker.session.folder.close()


def test_a_closed_worker_goes_on_where_it_stopped(config, tmp_path: Path) -> None:
    with Sampler(config.suite, 1) as sampler:
        whole, _ = open_worker(config, tmp_path / 'whole', sampler, empty=False)
        whole.start()
        assert whole.finished.wait(60.0)
        worker, outside = open_worker(config, tmp_path / 'parts', sampler, empty=False)
        while not worker.finished.is_set():
            begun = len(outside.modes)
            outside.closing.clear()
            worker.start()
            while len(outside.modes) < begun + 4 and not worker.finished.is_set():
                time.sleep(0.001)
            outside.closing.set()
            worker.close(10.0)
        for each in (whole, worker):
            assert each.failed is None
            each.close()
            each.session.folder.close()
    assert rows(tmp_path / 'parts') == rows(tmp_path / 'whole')


def test_every_rollout_has_a_number_of_its_own(config, tmp_path: Path) -> None:
    with Sampler(config.suite, 1) as sampler:
        worker, outside = open_worker(config, tmp_path / 'run', sampler, empty=False)
        worker.start()
        assert worker.finished.wait(60.0)
        worker.close()
        worker.session.folder.close()
    ids = [goal.key.rollout for goal in outside.goals]
    assert len(ids) > 10
    assert len(set(ids)) == len(ids)


def test_a_task_can_be_evaluated_between_any_two_rollouts(config, tmp_path: Path) -> None:
    asked = []
    with Sampler(config.suite, 1) as sampler:
        worker, outside = open_worker(config, tmp_path / 'run', sampler, empty=False)

        def evaluate_too(goal) -> None:
            if goal.key.rollout < 1 << 62:  # the run's own
                asked.append(worker.do(lambda: worker.evaluate(goal.key.task, 1, 5, True)))

        outside.after = evaluate_too
        worker.start()
        assert worker.finished.wait(60.0)
        assert worker.failed is None
        worker.close()
        worker.session.folder.close()
    assert len(asked) > 10
    assert [future.exception() for future in asked if future.done()] == [None] * len(asked)


def test_acting_begins_also_while_the_last_measurements_are_taken(config, tmp_path: Path) -> None:
    with Sampler(config.suite, 1) as sampler:
        worker, outside = open_worker(config, tmp_path / 'run', sampler, empty=False)

        def act_at_last(goal) -> None:
            if worker.session.learner.running is None:
                worker.do(lambda: worker.switch('light', False))
                outside.after = lambda goal: None

        outside.after = act_at_last
        worker.start()
        end = time.monotonic() + 60.0
        while (worker.state, worker.mode) != ('idle', 'acting') and time.monotonic() < end:
            time.sleep(0.01)
        assert (worker.state, worker.mode, worker.active) == ('idle', 'acting', 'light')
        assert [goal.key.task for goal in outside.goals] == ['light'] * len(outside.goals)
        assert [visit.state for visit in worker.session.lifelong.visits] == ['finished']
        worker.close()
        worker.session.folder.close()


def test_a_command_that_fails_says_why(config, tmp_path: Path) -> None:
    with Sampler(config.suite, 1) as sampler:
        worker, _ = open_worker(config, tmp_path / 'run', sampler, empty=True)
        worker.start()
        worker.do(lambda: worker.switch('light', True)).result(20.0)
        refused = worker.do(lambda: worker.load(tmp_path / 'nothing.safetensors'))
        with pytest.raises(LpgftwError):
            refused.result(20.0)
        assert worker.message.startswith('failed: ')
        worker.close()
        worker.session.folder.close()
