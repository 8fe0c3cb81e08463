"""A run that was held or stopped in the ROS graph goes on in one process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import drive, policy_spec
from lpgftw_ros.runs.session import Session

from .conftest import metrics

Make = Callable[..., RunConfig]
Train = Callable[..., Path]
Command = Callable[[Session], None]


def hold(session: Session) -> None:
    session.lifelong.hold()


def stop(session: Session) -> None:
    """Do what the learner node does when it is told to stop."""
    session.lifelong.hold()
    session.lifelong.queue.clear()


def interrupt(config: RunConfig, out: Path, sampler: Sampler, command: Command) -> None:
    """Learn until the second task has an iteration behind it, then obey the command."""

    class Reached(Exception):
        pass

    def look(session: Session) -> None:
        visits = session.lifelong.visits
        if len(visits) > 1 and visits[1].finished_iterations:
            raise Reached

    with Session(config, out, spec=policy_spec(config, sampler)) as session:
        with pytest.raises(Reached):
            drive(session, sampler, look)
        command(session)
        session.save()


@pytest.mark.parametrize('command', [hold, stop])
def test_it_ends_with_the_metrics_of_a_run_that_was_left_alone(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path, command: Command
) -> None:
    config = tiny_config(tasks='3')
    whole = metrics(train(config, tmp_path / 'whole'))
    interrupt(config, tmp_path / 'cut', sampler, command)
    assert metrics(train(config, tmp_path / 'cut', resume=True)) == whole


def test_tasks_that_repeat_are_met_as_often_as_asked(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path
) -> None:
    config = tiny_config('stl', tasks='g-08,g-12,g-08,g-06')
    interrupt(config, tmp_path / 'run', sampler, stop)
    rows = metrics(train(config, tmp_path / 'run', resume=True))
    learned = [row['task'] for row in rows if row['kind'] == 'update']
    assert learned == ['g-08', 'g-12', 'g-08', 'g-06']


def test_a_task_set_aside_is_learned_after_all(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path
) -> None:
    config = tiny_config(tasks='3')
    interrupt(config, tmp_path / 'run', sampler, lambda session: session.lifelong.set_aside())
    rows = metrics(train(config, tmp_path / 'run', resume=True))
    assert {row['task'] for row in rows if row['kind'] == 'update'} == set(config.tasks)


def test_a_finished_run_has_nothing_left_to_learn(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path
) -> None:
    config = tiny_config(tasks='1')
    out = train(config, tmp_path / 'run')
    spec = policy_spec(config, sampler)
    with Session(config, out, spec=spec, resume=True) as session:
        assert drive(session, sampler, lambda s: None) == 0
