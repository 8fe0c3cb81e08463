"""What every compared method promises: tasks started, parked, revisited, forgotten, saved."""

import numpy as np
import pytest

from lpgftw_ros.errors import (
    InvalidConfig,
    LearnerMisuse,
    NonFinite,
    StateMismatch,
    UnknownName,
    WrongShape,
)
from lpgftw_ros.learning import LEARNERS, make_learner, STATE_PARTS
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

TRAINED = ('stl', 'ewc', 'er')
METHODS = (*TRAINED, 'pg-ella')
SETTINGS = {'er': {'replay_capacity': 12}, 'pg-ella': {'max_columns': 2}}


@pytest.fixture
def source(spec):
    rng = np.random.default_rng(3)
    return {
        name: PolicySnapshot(
            spec,
            0.5 * rng.standard_normal(spec.n_parameters),
            0.5 * rng.standard_normal(spec.head_size),
            np.full(2, -0.5),
        )
        for name in 'abc'
    }


@pytest.fixture
def make(spec, source):
    def build(name, **settings):
        settings = {'value_epochs': 1} | SETTINGS.get(name, {}) | settings
        stl = source if name == 'pg-ella' else None
        return make_learner(name, spec, settings, 5, source=stl)

    return build


@pytest.fixture
def visit(make_batch):
    """Return a function that trains (if the method trains) and finishes one visit."""

    def run(learner, task, iterations=2, finish=True, seed=None):
        learner.start_task(task, seed=sum(task.encode()) if seed is None else seed)
        if learner.name != 'pg-ella':
            for _ in range(iterations):
                learner.improve(make_batch(learner))
                learner.fit_values()
        return learner.finish_task(make_batch(learner, seed=1)) if finish else None

    return run


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def shared(state):
    """Everything but the version counter."""
    return {key: value for key, value in state.items() if not key.endswith('/version')}


@pytest.mark.parametrize('name', METHODS)
def test_tasks_pass_from_new_to_running_to_finished(make, visit, name):
    learner = make(name)
    assert learner.phase('a') == 'new'
    visit(learner, 'a', finish=False)
    assert (learner.phase('a'), learner.running) == ('running', 'a')
    learner.cancel_task()
    visit(learner, 'a')
    assert (learner.phase('a'), learner.running) == ('finished', None)
    assert list(learner.knowledge().tasks) == ['a']


@pytest.mark.parametrize('name', METHODS)
def test_a_state_round_trip_keeps_every_bit(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    visit(learner, 'b', finish=False)
    learner.park_task()
    visit(learner, 'c', finish=False)
    state = learner.state()
    other = make(name)
    other.load_state(state)
    assert same(other.state(), state)
    assert [other.phase(task) for task in 'abc'] == ['finished', 'parked', 'running']


@pytest.mark.parametrize('name', METHODS)
def test_a_loaded_learner_goes_on_like_the_original(make, visit, make_batch, name):
    one = make(name)
    visit(one, 'a')
    visit(one, 'b', finish=False)
    other = make(name)
    other.load_state(one.state())
    for learner in (one, other):
        if name != 'pg-ella':
            learner.improve(make_batch(learner))
            learner.fit_values()
        learner.finish_task(make_batch(learner, seed=1))
        visit(learner, 'c')
    assert same(one.state(), other.state())


@pytest.mark.parametrize('name', METHODS)
def test_the_running_part_may_be_newer_than_the_rest(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    visit(learner, 'b', finish=False)
    learner.park_task()
    older = learner.state(('base', 'models', 'replay'))
    visit(learner, 'b', finish=False)
    other = make(name)
    other.load_state(older | learner.state(('run',)))
    assert other.phase('b') == 'running'
    assert same(other.state(('run',)), learner.state(('run',)))


@pytest.mark.parametrize('name', METHODS)
def test_parts_of_a_state_make_up_the_whole(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    parts = [learner.state((part,)) for part in STATE_PARTS]
    assert same({k: v for part in parts for k, v in part.items()}, learner.state())
    assert all(key.split('/')[0] in STATE_PARTS for key in learner.state())


@pytest.mark.parametrize('name', METHODS)
def test_a_damaged_state_is_refused_and_changes_nothing(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    visit(learner, 'b', finish=False)
    good = learner.state()
    for key, array in good.items():
        broken = good | {key: np.zeros((2, 3, 4))}
        with pytest.raises(StateMismatch):
            learner.load_state(broken)
        with pytest.raises(StateMismatch, match='is missing'):
            learner.load_state({k: v for k, v in good.items() if k != key})
        if array.dtype.kind == 'f' and array.size:
            with pytest.raises(StateMismatch, match='not finite'):
                learner.load_state(good | {key: np.full_like(array, np.nan)})
    assert same(learner.state(), good)


def test_a_state_of_another_kind_is_refused(make, visit):
    learner = make('stl')
    good = learner.state()
    with pytest.raises(StateMismatch, match='the state has format 99'):
        learner.load_state(good | {'base/format': np.array([99], np.uint64)})
    with pytest.raises(StateMismatch, match="of learner 'ewc', not 'stl'"):
        learner.load_state(make('ewc').state())
    with pytest.raises(StateMismatch, match='1 unknown entries, the first is base/more'):
        learner.load_state(good | {'base/more': np.zeros(1)})
    with pytest.raises(StateMismatch, match='is not a text'):
        learner.load_state(good | {'base/learner': np.array([255], np.uint8)})
    other = make_learner('stl', PolicySpec(2, 2))
    with pytest.raises(StateMismatch, match='the state is of policies'):
        learner.load_state(other.state())


def test_a_state_that_contradicts_itself_is_refused(make, visit):
    learner = make('stl')
    visit(learner, 'a')
    nobody = {'base/order': np.frombuffer(b'\n', np.uint8)}
    with pytest.raises(StateMismatch, match='base/order'):
        learner.load_state(learner.state() | nobody)
    wide = {'base/task/a/coefficients': np.ones(4)}
    with pytest.raises(StateMismatch, match='4 numbers for 0 columns'):
        learner.load_state(learner.state() | wide)


@pytest.mark.parametrize('name', METHODS)
def test_parking_keeps_the_task_and_leaves_the_shared_knowledge(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    basis, policy = learner.knowledge().basis, learner.knowledge().policy('a')
    visit(learner, 'b', finish=False)
    factors, iteration = learner.factors(), learner.iteration
    learner.park_task()
    assert learner.phase('b') == 'parked'
    np.testing.assert_array_equal(learner.knowledge().basis, basis)
    np.testing.assert_array_equal(learner.knowledge().policy('a').theta, policy.theta)
    learner.start_task('b', seed=999)
    assert learner.iteration == iteration
    np.testing.assert_array_equal(learner.factors().residual, factors.residual)
    np.testing.assert_array_equal(learner.factors().log_std, factors.log_std)


@pytest.mark.parametrize('name', METHODS)
def test_a_task_parked_and_continued_ends_as_if_never_parked(make, visit, make_batch, name):
    plain, parked = make(name), make(name)
    for learner in (plain, parked):
        visit(learner, 'a')
        visit(learner, 'b', iterations=1, finish=False)
        if learner is parked:
            learner.park_task()
            learner.start_task('b', seed=0)
        if name != 'pg-ella':
            learner.improve(make_batch(learner))
            learner.fit_values()
        learner.finish_task(make_batch(learner, seed=1))
    assert same(shared(plain.state()), shared(parked.state()))


@pytest.mark.parametrize('name', METHODS)
def test_a_cancelled_revisit_leaves_no_trace(make, visit, name):
    learner = make(name)
    for task in 'ab':
        visit(learner, task)
    before = learner.state()
    visit(learner, 'a', finish=False, seed=77)
    learner.cancel_task()
    assert same(shared(learner.state()), shared(before))


@pytest.mark.parametrize('name', METHODS)
def test_a_cancelled_new_task_leaves_no_trace(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    before = learner.state()
    visit(learner, 'b', finish=False)
    learner.cancel_task()
    assert same(shared(learner.state()), shared(before))


@pytest.mark.parametrize('name', METHODS)
def test_a_revisit_keeps_the_place_of_a_task(make, visit, name):
    learner = make(name)
    for task in 'aba':
        visit(learner, task)
    assert list(learner.knowledge().tasks) == ['a', 'b']
    assert set(learner.state(('models',))) == {
        key for key in learner.state() if key.startswith('models/')
    }


@pytest.mark.parametrize('name', METHODS)
def test_forgetting_removes_a_task_from_everything(make, visit, name):
    learner = make(name)
    for task in 'abc':
        visit(learner, task)
    learner.forget_task('b')
    assert learner.phase('b') == 'new'
    assert list(learner.knowledge().tasks) == ['a', 'c']
    assert not [key for key in learner.state() if '/b/' in key or key.endswith('/b')]


@pytest.mark.parametrize('name', METHODS)
def test_forgetting_a_parked_task_leaves_the_others(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    before = shared(learner.state())
    visit(learner, 'b', finish=False)
    learner.park_task()
    learner.forget_task('b')
    assert same(shared(learner.state()), before)


@pytest.mark.parametrize('name', METHODS)
def test_the_version_grows_with_every_change_of_the_tasks(make, visit, name):
    learner = make(name)
    versions = [learner.knowledge().version]
    visit(learner, 'a')
    versions.append(learner.knowledge().version)
    visit(learner, 'b', finish=False)
    learner.park_task()
    versions.append(learner.knowledge().version)
    learner.forget_task('b')
    versions.append(learner.knowledge().version)
    assert versions == sorted(set(versions))


@pytest.mark.parametrize('name', TRAINED)
def test_learning_does_not_touch_what_finished_tasks_compose_from(make, visit, name):
    learner = make(name)
    visit(learner, 'a')
    before = learner.knowledge()
    visit(learner, 'b', finish=False)
    after = learner.knowledge()
    assert after.version == before.version
    np.testing.assert_array_equal(after.policy('a').theta, before.policy('a').theta)


def test_stl_starts_every_task_alike(make, visit):
    learner = make('stl')
    learner.start_task('a', seed=1)
    first = learner.factors()
    learner.cancel_task()
    learner.start_task('b', seed=2)
    np.testing.assert_array_equal(learner.factors().residual, first.residual)
    np.testing.assert_array_equal(learner.factors().head, first.head)


def test_stl_improves_a_toy_task(make, make_batch):
    learner = make('stl', max_kl=0.05)
    learner.start_task('a', seed=1)
    returns = []
    for _ in range(30):
        batch = make_batch(learner, n=40)
        returns.append(batch.returns.mean())
        learner.improve(batch)
        learner.fit_values()
    assert np.mean(returns[-3:]) > 0.8 * np.mean(returns[:3])  # both are negative


def test_misuse_is_refused_in_words(make, visit, make_batch):
    learner = make('stl')
    with pytest.raises(LearnerMisuse, match='no task is running'):
        learner.factors()
    with pytest.raises(UnknownName, match="no task to forget 'x'"):
        learner.forget_task('x')
    with pytest.raises(InvalidConfig, match='a task name needs'):
        learner.start_task('a/b', seed=0)
    learner.start_task('a', seed=0)
    batch = make_batch(learner)
    with pytest.raises(LearnerMisuse, match="'a' is running"):
        learner.start_task('b', seed=0)
    with pytest.raises(LearnerMisuse, match="'a' is running: cancel it"):
        learner.forget_task('a')
    with pytest.raises(LearnerMisuse, match='needs an improve before it'):
        learner.fit_values()
    learner.improve(batch)
    with pytest.raises(LearnerMisuse, match='fit_values has to run before'):
        learner.improve(batch)
    with pytest.raises(LearnerMisuse, match='is not fitted yet'):
        learner.finish_task(batch)
    with pytest.raises(LearnerMisuse, match='is not fitted yet'):
        learner.park_task()
    learner.cancel_task()
    learner.start_task('b', seed=0)
    with pytest.raises(LearnerMisuse, match="trajectories of 'a' while 'b' runs"):
        learner.improve(batch)


def test_trajectories_of_another_shape_are_refused(make):
    learner = make('stl')
    learner.start_task('a', seed=0)
    no = np.zeros(1, bool)
    batch = Batch(
        'a', np.zeros((2, 5)), np.zeros((2, 2)), np.zeros(2), np.array([2]), no, ~no, no, no,
        np.zeros((1, 5)),
    )  # fmt: skip
    with pytest.raises(WrongShape, match='observations has shape'):
        learner.improve(batch)


def test_a_failed_step_changes_nothing(make, make_batch, monkeypatch):
    learner = make('stl')
    learner.start_task('a', seed=0)
    batch = make_batch(learner)
    before = learner.state()
    batch.rewards[:] = 1e308  # the sums overflow
    with np.errstate(all='ignore'), pytest.raises(NonFinite):
        learner.improve(batch)
    assert same(learner.state(), before)


def test_bootstrapping_at_time_limits_changes_the_advantages(make, make_batch):
    found = []
    for bootstrap in (False, True):
        learner = make('stl', bootstrap_timeouts=bootstrap)
        learner.start_task('a', seed=0)
        learner.improve(make_batch(learner))
        found.append(learner.factors().residual)
    assert not np.array_equal(*found)


def test_an_unknown_learner_names_the_known_ones(spec):
    with pytest.raises(
        UnknownName, match=r"no learner 'sl'.*lpg-ftw, lpg-ftw-adaptive, stl, ewc, er, pg-ella"
    ):
        make_learner('sl', spec)


def test_a_learner_refuses_settings_of_another(spec):
    with pytest.raises(InvalidConfig, match='ewc takes EwcConfig, got StlConfig'):
        make_learner('ewc', spec, LEARNERS['stl'][0]())


def test_only_pg_ella_takes_and_needs_finished_policies(spec, source):
    with pytest.raises(InvalidConfig, match='pg-ella needs finished STL'):
        make_learner('pg-ella', spec)
    with pytest.raises(InvalidConfig, match='pg-ella needs finished STL'):
        make_learner('stl', spec, source=source)


def test_the_version_grows_by_one_with_every_change(learn):
    """Finishing, parking, continuing and forgetting each change the knowledge once."""
    learner = make_learner('stl', PolicySpec(3, 2))
    seen = [learner.knowledge().version]
    learn(learner, 'a')
    seen.append(learner.knowledge().version)
    learner.start_task('b', seed=1)
    learner.park_task()
    seen.append(learner.knowledge().version)
    learner.start_task('b', seed=1)
    seen.append(learner.knowledge().version)
    learner.park_task()
    learner.forget_task('b')
    seen.append(learner.knowledge().version)
    assert seen == [0, 1, 2, 3, 5]
