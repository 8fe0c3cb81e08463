"""Trackers beside the metrics: what they are told, and that the real ones keep it offline."""

from contextlib import contextmanager

import pytest

from lpgftw_ros.errors import LpgftwError, UnknownName
from lpgftw_ros.runs import tracking
from lpgftw_ros.runs.driver import drive, policy_spec
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.tracking import tracked, tracker_names


def learn(config, out, sampler, names, resume=False):
    with (
        tracked(names, out, config) as on_row,
        Session(
            config, out, spec=policy_spec(config, sampler), on_row=on_row, resume=resume
        ) as session,
    ):
        drive(session, sampler, lambda session: None)


@pytest.fixture
def told(monkeypatch):
    """Note what a tracker is told."""
    found = []

    @contextmanager
    def note(folder, config):
        yield lambda values, step: found.append((dict(values), step))

    monkeypatch.setitem(tracking._OPEN, 'tensorboard', note)
    return found


def test_tasks_of_one_measure_stand_together_and_stages_are_told_once(
    told, tiny_config, sampler, tmp_path
):
    config = tiny_config(tasks='g-08,g-12,g-08')
    learn(config, tmp_path / 'run', sampler, ('tensorboard',))
    steps = {tag: [s for values, s in told if tag in values] for tag, _ in _pairs(told)}
    for task in ('g-08', 'g-12', 'g-08 again 1'):
        assert steps[f'return/{task}'] == [0, 1, 2]
        assert steps[f'KL/{task}'] == [0, 1, 2]
    assert steps['stage return/tune'] == [0, 1, 2]
    assert sorted(steps['stage return/final']) == [0, 1, 2]
    before = len(told)
    learn(config, tmp_path / 'run', sampler, ('tensorboard',), resume=True)
    again = {tag for values, _ in told[before:] for tag in values}
    assert not any(tag.startswith(('return/', 'tune/')) for tag in again), again


def _pairs(told):
    return [(tag, value) for values, _ in told for tag, value in values.items()]


def test_tensorboard_events_can_be_read(tiny_config, sampler, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    learn(tiny_config(tasks='g-08'), tmp_path / 'run', sampler, ('tensorboard',))
    events = EventAccumulator(str(tmp_path / 'run' / 'tensorboard'))
    events.Reload()
    assert [event.step for event in events.Scalars('return/g-08')] == [0, 1, 2]
    assert len(events.Scalars('stage return/tune')) == 1


def test_wandb_keeps_a_run_offline(tiny_config, sampler, tmp_path, monkeypatch):
    pytest.importorskip('wandb', reason='wandb is optional: pip install wandb')
    monkeypatch.setenv('WANDB_MODE', 'offline')
    learn(tiny_config(tasks='g-08'), tmp_path / 'run', sampler, ('wandb',))
    (written,) = (tmp_path / 'run' / 'wandb').glob('offline-run-*/run-*.wandb')
    assert b'return/g-08' in written.read_bytes()


def test_mlflow_keeps_a_run_in_the_folder(tiny_config, sampler, tmp_path, monkeypatch):
    pytest.importorskip('mlflow', reason='mlflow is optional: pip install mlflow-skinny')
    monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
    learn(tiny_config(tasks='g-08'), tmp_path / 'run', sampler, ('mlflow',))
    (written,) = (tmp_path / 'run' / 'mlflow').rglob('metrics/return/g-08')
    assert len(written.read_text().splitlines()) == 3


def test_an_unknown_tracker_is_refused():
    assert tracker_names(' wandb, tensorboard,wandb') == ('wandb', 'tensorboard')
    with pytest.raises(UnknownName, match='tensorboard'):
        tracker_names('comet')


def test_a_tracker_that_is_not_installed_is_said_before_anything_is_learned(
    tiny_config, sampler, tmp_path, monkeypatch
):
    monkeypatch.setitem(tracking._MODULES, 'wandb', ('no_such_module', 'wandb'))
    with pytest.raises(LpgftwError, match='pip install wandb'):
        learn(tiny_config(tasks='g-08'), tmp_path / 'run', sampler, ('wandb',))
    assert not (tmp_path / 'run').exists()
