"""What a person sees of a run: lines, a bar, pictures."""

from types import SimpleNamespace

import pytest

from lpgftw_ros.runs import driver
from lpgftw_ros.runs.driver import _Bar, _Lines, describe, drive, last_frame, open_sampler
from lpgftw_ros.runs.visits import Collect, Done, Evaluate, Stage

ROW = {
    'kind': 'iteration',
    'visit': 1,
    'task': 'b',
    'iteration': 4,
    'return_mean': 12.34,
    'success': 0.5,
    'kl': 0.0123,
    'steps': 3000,
    'timing': {'sampling': 2.0},
}


@pytest.fixture
def session():
    visits = [
        SimpleNamespace(number=i, task=task, iterations=9, finished_iterations=done, state=state)
        for i, (task, done, state) in enumerate([('a', 9, 'finished'), ('b', 5, 'running')])
    ]
    loop = SimpleNamespace(sequence=['a', 'b', 'c'], visits=visits, current=visits[1], queue=['c'])
    config = SimpleNamespace(loop=SimpleNamespace(iterations=9))
    return SimpleNamespace(lifelong=loop, config=config, last_row=dict(ROW))


def test_an_iteration_is_told_in_a_few_words():
    assert describe(ROW) == 'return 12.3  success 0.50  KL 0.0123  1,500 steps/s'
    update = {key: value for key, value in ROW.items() if key != 'kl'} | {'kind': 'update'}
    assert describe(update) == 'return 12.3  success 0.50  1,500 steps/s'


def test_lines_are_some_seconds_apart_but_for_the_end_of_a_task(session, capsys):
    lines = _Lines()
    lines.update(session)
    assert capsys.readouterr().err.startswith('task 2/3 b  5/9  return 12.3')
    lines.update(session)
    session.last_row = dict(ROW)
    lines.update(session)
    assert capsys.readouterr().err == ''
    session.last_row = {**ROW, 'kind': 'update'}
    lines.update(session)
    assert capsys.readouterr().err.startswith('task 2/3 b  folded in  return 12.3')


def test_the_bar_counts_the_iterations_of_all_tasks_on_the_error_stream(session):
    bar = _Bar(session)
    bar.update(session)
    (shown,) = bar.progress.tasks
    assert (shown.total, shown.completed, shown.description) == (27, 14, '2/3 b')
    assert (bar.progress.console.stderr, bar.progress.expand) == (True, True)


def test_a_picture_shows_the_end_of_an_episode(monkeypatch):
    class Episode:
        def __init__(self, env, n, seed, task):
            self.env, self.observations = env, None

        @property
        def done(self):
            return self.env.steps == 3

        def advance(self, action):
            self.env.steps += action

    env = SimpleNamespace(steps=0)
    env.render_frame = lambda: f'after {env.steps}'
    monkeypatch.setattr(driver, 'Rollout', Episode)
    assert last_frame(env, SimpleNamespace(act=lambda seen: 1), seed=0) == 'after 3'


def test_a_driver_answers_every_request_and_counts_those_that_were_learned_from():
    told = []
    stage = Stage('final', 'evaluate')
    wanted = iter(
        [
            Collect('a', 4, 1, 0, stage),
            Evaluate('a', 2, 2, 0, stage, explore=False, running=True),
            Collect('b', 4, 3, 1, stage),
            Done(),
        ]
    )
    session = SimpleNamespace(
        resumed=False,
        next_request=lambda: next(wanted),
        note_physics=lambda task, digest: told.append(('physics', task)),
        policy=lambda request: f'policy of {request.task}',
        background=lambda: told.append(('background',)),
        feed=lambda batch, seconds: told.append(('feed', *batch, seconds >= 0.0)),
        finish=lambda: told.append(('finish',)),
    )
    sampler = SimpleNamespace(fingerprint=lambda task: task, collect=lambda *asked: asked)
    steps = []
    assert drive(session, sampler, steps.append) == 2
    assert len(steps) == 3
    assert [one[1] for one in told if one[0] == 'physics'] == ['a', 'b']
    assert [one for one in told if one[0] == 'feed'] == [
        ('feed', 'a', 'policy of a', 4, 1, True, True),
        ('feed', 'a', 'policy of a', 2, 2, False, True),
        ('feed', 'b', 'policy of b', 4, 3, True, True),
    ]
    assert told[-1] == ('finish',)


def test_an_address_of_a_cluster_moves_the_workers_there(monkeypatch):
    monkeypatch.setattr(driver, 'ClusterSampler', lambda *said: said)
    monkeypatch.setattr(driver, 'Sampler', lambda *said: said)
    assert open_sampler('demo', 2, 60.0, 'auto') == ('demo', 'auto', 2, 60.0)
    assert open_sampler('demo', 2, 60.0, '') == ('demo', 2, 60.0)
