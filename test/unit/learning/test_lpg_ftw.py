"""LPG-FTW as a learner: its phases, parking, revisits and state."""

from dataclasses import replace
import time

import numpy as np
import pytest

from lpgftw_ros.errors import InvalidConfig, LearnerMisuse, NonFinite, StateMismatch
from lpgftw_ros.learning.knowledge_base import BasisRules
from lpgftw_ros.learning.lpg_ftw import LpgFtw, LpgFtwConfig, PAPER
from lpgftw_ros.learning.methods.stl import Stl, StlConfig
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.learning.solvers import SOLVERS
from lpgftw_ros.runs.config import resolve

from .conftest import toy_batch as batch_of

LINEAR = PolicySpec(obs_dim=3, act_dim=2)
MLP = PolicySpec(obs_dim=3, act_dim=2, hidden=(6, 5))
SPECS = pytest.mark.parametrize('spec', [LINEAR, MLP], ids=['linear', 'mlp'])


def make(spec=LINEAR, seed=3, **settings):
    return LpgFtw(spec, LpgFtwConfig(**{'max_columns': 2, 'value_epochs': 1} | settings), seed)


def iterate(learner, n=2):
    for _ in range(n):
        report = learner.improve(batch_of(learner))
        learner.fit_values()
    return report


def learn(learner, *tasks, iterations=2):
    for task in tasks:
        learner.start_task(task, seed=sum(task.encode()))
        iterate(learner, iterations)
        report = learner.finish_task(batch_of(learner, seed=1))
    return report


def insides(learner):
    """Return copies of L, A and b."""
    kb = learner._knowledge_base
    d, k = kb.basis.shape
    return kb.basis.copy(), kb.solver.normal_matrix(d, k), kb.solver.normal_rhs(d, k)


def assert_same(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_same_state(first, second):
    a, b = first.state(), second.state()
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


# -- phases ------------------------------------------------------------------------------------


@SPECS
def test_the_first_task_learns_exactly_like_a_single_task(spec):
    first, alone = make(spec), Stl(spec, StlConfig(value_epochs=1), 3)
    for learner in (first, alone):
        learner.start_task('a', seed=7)
        iterate(learner, 3)
    np.testing.assert_array_equal(first.factors().residual, alone.factors().residual)
    np.testing.assert_array_equal(first.factors().head, alone.factors().head)


@SPECS
def test_the_first_task_becomes_the_first_column(spec):
    learner = make(spec)
    learner.start_task('a', seed=7)
    iterate(learner)
    theta = learner.factors().residual
    report = learner.finish_task(batch_of(learner))
    np.testing.assert_array_equal(learner.knowledge().basis[:, 0], theta)
    np.testing.assert_array_equal(learner.knowledge().tasks['a'].coefficients, [1.0])
    assert report.measures == {'basis_change': 0.0, 'parameter_change': 0.0, 'columns': 1}


def test_the_second_task_starts_at_the_mean_of_earlier_coefficients():
    learner = make()
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    np.testing.assert_array_equal(learner.factors().coefficients, [1.0])


def test_a_task_may_start_at_the_coefficients_of_the_one_before():
    learner = make(coefficient_start='latest')
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    latest = learner.knowledge().tasks['b'].coefficients
    np.testing.assert_array_equal(learner.factors().coefficients, latest)


def test_a_linear_residual_starts_at_zero_and_moves():
    learner = make()
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    assert not learner.factors().residual.any()
    iterate(learner, 1)
    assert learner.factors().residual.any()


def test_an_mlp_residual_starts_at_random():
    learner = make(MLP)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    assert np.abs(learner.factors().residual).min() > 0.0


@SPECS
def test_after_the_last_column_only_the_coefficients_move(spec):
    learner = make(spec)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    before = learner.factors()
    iterate(learner)
    after = learner.factors()
    assert len(after.coefficients) == 2
    assert not after.residual.any()
    assert not np.array_equal(after.coefficients, before.coefficients)


@SPECS
def test_every_task_starts_with_its_own_head_and_unit_sigma(spec):
    learner, heads = make(spec), []
    for task in 'abc':
        learner.start_task(task, seed=ord(task))
        heads.append(learner.factors().head)
        np.testing.assert_array_equal(learner.factors().log_std, np.zeros(2))
        iterate(learner, 1)
        learner.finish_task(batch_of(learner))
    if spec.hidden:
        assert len({head.tobytes() for head in heads}) == 3
        assert max(np.abs(head).max() for head in heads) <= 0.01


def test_the_basis_stops_growing_at_its_last_column():
    learner = make(max_columns=3)
    counts = [learn(learner, task).columns for task in 'abcde']
    assert counts == [1, 2, 3, 3, 3]


def test_a_finished_residual_is_part_of_the_basis():
    learner = make(update_from='after_columns')
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    iterate(learner)
    theta = learner.knowledge().compose(learner.factors()).theta
    learner.finish_task(batch_of(learner))
    assert not learner.knowledge().tasks['b'].residual.any()
    np.testing.assert_allclose(learner.knowledge().policy('b').theta, theta, rtol=1e-12)


def test_the_one_norm_pulls_coefficients_to_zero():
    moved = []
    for sparsity in (0.0, 100.0):
        learner = make(sparsity=sparsity)
        learn(learner, 'a', 'b')
        learner.start_task('c', seed=1)
        before = np.abs(learner.factors().coefficients).sum()
        iterate(learner, 1)
        moved.append(np.abs(learner.factors().coefficients).sum() - before)
    assert moved[1] < 0.0
    assert moved[1] < moved[0]


def test_the_residual_penalty_pulls_the_residual_to_zero():
    sizes = []
    for weight in (0.0, 10.0):
        learner = make(MLP, residual_penalty=weight)
        learn(learner, 'a')
        learner.start_task('b', seed=1)
        iterate(learner, 5)
        sizes.append(np.linalg.norm(learner.factors().residual))
    assert sizes[1] < sizes[0]


def test_the_paper_preset_keeps_the_basis_while_columns_are_added():
    learner = make(**PAPER)
    learn(learner, 'a')
    first = learner.knowledge().basis[:, 0]
    learn(learner, 'b')
    np.testing.assert_array_equal(learner.knowledge().basis[:, 0], first)
    learn(learner, 'c')
    assert not np.array_equal(learner.knowledge().basis[:, 0], first)


@SPECS
def test_reinforce_learns_too(spec):
    learner = make(spec, step='reinforce', learning_rate=0.05, max_kl=1.0)
    learn(learner, *'abc')
    kb = learner._knowledge_base
    assert max(np.linalg.eigvalsh(t.matrix)[-1] for t in kb.terms.values()) <= -1e-3 * (1 - 1e-9)


@pytest.mark.parametrize('solver', SOLVERS)
@pytest.mark.parametrize('step', ['npg', 'reinforce'])
def test_every_solver_runs_a_lifetime(solver, step):
    learner = make(MLP, solver=solver, step=step)
    report = learn(learner, *'abcd')
    assert report.columns == 2
    assert 0.0 < report.measures['basis_change'] < 1.0


# -- M < N -------------------------------------------------------------------------------------


def test_the_basis_is_updated_every_few_iterations():
    learner = make(update_every=2)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    assert [iterate(learner, 1).knowledge_updated for _ in range(4)] == [False, True, False, True]


def test_there_is_no_update_while_a_residual_is_learned():
    learner = make(update_every=1)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    assert not iterate(learner, 3).knowledge_updated


def test_updates_on_the_way_leave_no_trace_in_the_normal_equations():
    learner = make(update_every=1)
    learn(learner, 'a', 'b')
    before = insides(learner)
    learner.start_task('c', seed=1)
    iterate(learner)
    assert not np.array_equal(learner.knowledge().basis, before[0])
    assert_same(insides(learner)[1:], before[1:])
    learner.cancel_task()
    assert_same(insides(learner), before)


def test_a_basis_that_cannot_be_solved_for_leaves_the_learner_as_it_was(monkeypatch):
    learner = make(update_every=1)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    before, batch = learner.factors(), batch_of(learner)

    def fail(*args, **kwargs):
        raise NonFinite('no solution')

    monkeypatch.setattr(learner._knowledge_base.solver, 'solve', fail)
    with pytest.raises(NonFinite):
        learner.improve(batch)
    assert learner.iteration == 0
    assert learner.factors() is before


# -- parking, revisits, forgetting --------------------------------------------------------------


def test_parking_and_continuing_at_once_changes_nothing():
    straight, parked = make(), make()
    for learner in (straight, parked):
        learn(learner, 'a')
        learner.start_task('b', seed=1)
        iterate(learner, 1)
    parked.park_task()
    assert parked.phase('b') == 'parked'
    parked.start_task('b', seed=99)
    assert parked.iteration == 1
    for learner in (straight, parked):
        iterate(learner, 1)
        learner.finish_task(batch_of(learner))
    assert_same(insides(straight), insides(parked))


@pytest.mark.parametrize('earlier', ['', 'a', 'ab'])
def test_a_parked_task_leaves_the_knowledge_base_alone(earlier):
    learner = make()
    learn(learner, *earlier) if earlier else None
    before = insides(learner)
    learner.start_task('x', seed=1)
    iterate(learner)
    learner.park_task()
    assert_same(insides(learner), before)
    assert 'x' in learner.knowledge().tasks


def test_a_parked_task_keeps_its_column():
    learner = make(max_columns=2)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    iterate(learner)
    learner.park_task()
    assert learn(learner, 'c').columns == 1
    learner.start_task('b', seed=1)
    assert learner.finish_task(batch_of(learner)).columns == 2


def test_a_parked_first_task_can_finish_second():
    learner = make(max_columns=2)
    learner.start_task('a', seed=1)
    iterate(learner)
    learner.park_task()
    learn(learner, 'b')
    before = learner.knowledge().policy('a').theta
    learner.start_task('a', seed=1)
    theta = learner.knowledge().compose(learner.factors()).theta
    np.testing.assert_array_equal(theta, before)
    assert learner.finish_task(batch_of(learner)).columns == 2


def test_a_task_without_any_column_left_is_refused():
    learner = make(max_columns=1)
    learner.start_task('a', seed=1)
    learner.park_task()
    with pytest.raises(LearnerMisuse, match='first: a'):
        learner.start_task('b', seed=2)
    assert learner.running is None
    learner.forget_task('a')
    learner.start_task('b', seed=2)
    assert learner.running == 'b'


def test_a_cancelled_revisit_leaves_everything_as_it_was():
    learner = make()
    learn(learner, *'abc')
    before, state = insides(learner), learner.state(('base', 'models'))
    learner.start_task('b', seed=5)
    iterate(learner)
    learner.cancel_task()
    assert_same(insides(learner), before)
    for name, array in learner.state(('base', 'models')).items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)


def test_a_cancelled_new_task_gives_its_column_back():
    learner = make(max_columns=2)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    learner.cancel_task()
    assert learn(learner, 'c').columns == 2


def test_a_revisit_starts_where_the_task_ended():
    learner = make(max_columns=3)
    learn(learner, *'abc')
    theta = learner.knowledge().policy('a').theta
    learner.start_task('a', seed=5)
    assert learner.iteration == 0
    assert len(learner.factors().coefficients) == 3
    np.testing.assert_array_equal(learner.knowledge().compose(learner.factors()).theta, theta)


def test_a_revisit_replaces_the_terms_of_the_task():
    learner = make()
    learn(learner, *'abc')
    learn(learner, 'b')
    kb = learner._knowledge_base
    assert kb.tasks == ('a', 'b', 'c')
    A = sum(2.0 * np.kron(np.outer(t.padded(2), t.padded(2)), t.matrix) for t in kb.terms.values())
    np.testing.assert_allclose(insides(learner)[1], A, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(
        learner.knowledge().tasks['b'].coefficients, kb.coefficients('b')
    )


def test_the_only_task_learns_its_column_again():
    learner = make()
    learn(learner, 'a')
    before = learner.knowledge().policy('a').theta
    learner.start_task('a', seed=5)
    np.testing.assert_array_equal(learner.factors().residual, before)
    iterate(learner)
    theta = learner.factors().residual
    assert learner.finish_task(batch_of(learner)).columns == 1
    np.testing.assert_array_equal(learner.knowledge().policy('a').theta, theta)


def test_a_report_tells_the_seconds_its_own_work_took():
    learner = make()
    learner.start_task('a', seed=1)
    batch = batch_of(learner)
    for work in (lambda: learner.improve(batch), learner.fit_values, lambda: finish(learner)):
        began = time.perf_counter()
        seconds = work().seconds
        assert 0.0 < seconds <= time.perf_counter() - began


def finish(learner):
    return learner.finish_task(batch_of(learner))


def test_a_revisit_among_others_adds_no_column():
    learner = make(max_columns=4)
    learn(learner, 'a', 'b')
    learner.start_task('a', seed=9)
    assert len(learner.factors().coefficients) == 2
    assert not learner.factors().residual.any()
    iterate(learner)
    learner.finish_task(batch_of(learner))
    assert learner.knowledge().basis.shape[1] == 2


def test_a_revisit_can_be_parked():
    learner = make()
    learn(learner, *'abc')
    learner.start_task('b', seed=5)
    iterate(learner)
    factors = learner.factors()
    learner.park_task()
    assert learner.phase('b') == 'parked'
    assert learner.knowledge().tasks['b'] is factors
    learn(learner, 'd')
    learner.start_task('b', seed=6)
    assert learner.iteration == 2
    learner.finish_task(batch_of(learner))
    assert learner._knowledge_base.tasks == ('a', 'b', 'c', 'd')


def test_without_local_models_a_revisit_is_refused():
    learner = make(keep_local_models=False)
    learn(learner, *'abc')
    with pytest.raises(LearnerMisuse, match='keep_local_models'):
        learner.start_task('b', seed=5)
    assert learner.running is None
    with pytest.raises(LearnerMisuse, match='keep_local_models'):
        learner.forget_task('b')
    assert learner.phase('b') == 'finished'


def test_iterative_solvers_need_local_models():
    with pytest.raises(InvalidConfig, match='keep_local_models'):
        LpgFtwConfig(solver='cg', keep_local_models=False)


def test_a_forgotten_task_is_gone_from_the_basis():
    learner = make()
    learn(learner, *'abcd')
    learner.forget_task('c')
    assert 'c' not in learner.knowledge().tasks
    kb = learner._knowledge_base
    A = sum(2.0 * np.kron(np.outer(t.padded(2), t.padded(2)), t.matrix) for t in kb.terms.values())
    np.testing.assert_allclose(insides(learner)[1], A, rtol=1e-12, atol=1e-12)


def test_nothing_is_forgotten_while_a_task_runs():
    learner = make()
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    with pytest.raises(LearnerMisuse, match="'b' is running"):
        learner.forget_task('a')


def test_when_all_is_forgotten_learning_starts_anew():
    learner = make()
    learn(learner, 'a', 'b')
    learner.forget_task('a')
    learner.forget_task('b')
    assert learner.knowledge().basis.shape == (LINEAR.n_parameters, 0)
    assert learn(learner, 'c').columns == 1


def test_every_change_of_the_knowledge_has_its_own_version():
    learner, seen = make(update_every=1), {}

    def note():
        knowledge = learner.knowledge()
        content = (knowledge.basis.tobytes(), tuple(knowledge.tasks))
        assert seen.setdefault(knowledge.version, content) == content

    for task in 'abcb':
        learner.start_task(task, seed=1)
        note()
        for _ in range(2):
            iterate(learner, 1)
            note()
        learner.park_task()
        note()
        learner.start_task(task, seed=1)
        note()
        learner.finish_task(batch_of(learner))
        note()
    learner.start_task('d', seed=1)
    iterate(learner, 1)
    note()
    learner.cancel_task()
    note()
    learner.forget_task('c')
    note()


# -- state -------------------------------------------------------------------------------------


def stages():
    """Yield learners in all situations worth saving, each with its name."""
    learner = make(update_every=1)
    yield 'empty', learner
    learner.start_task('a', seed=1)
    iterate(learner)
    yield 'first task', learner
    learn(learner := make(update_every=1), 'a')
    learner.start_task('b', seed=1)
    iterate(learner)
    yield 'residual', learner
    learner.park_task()
    yield 'parked residual', learner
    learner.start_task('b', seed=1)
    learner.finish_task(batch_of(learner))
    learner.start_task('c', seed=1)
    iterate(learner)
    yield 'tried out', learner
    learner.park_task()
    learner.start_task('a', seed=1)
    iterate(learner)
    yield 'revisit beside a parked task', learner


@pytest.mark.parametrize('stage', range(6))
def test_a_loaded_state_goes_on_bit_for_bit(stage):
    _, learner = list(stages())[stage]
    again = make(update_every=1)
    again.load_state(learner.state())
    assert_same(insides(learner), insides(again))
    assert learner.phase('b') == again.phase('b')
    for one in (learner, again):
        if one.running:
            iterate(one)
            one.finish_task(batch_of(one))
        learn(one, *'xyx')
    assert_same(insides(learner), insides(again))
    assert_same_state(learner, again)


@pytest.mark.parametrize('solver', SOLVERS)
def test_every_solver_goes_on_bit_for_bit(solver):
    learner, again = make(MLP, solver=solver), make(MLP, solver=solver)
    learn(learner, *'abc')
    again.load_state(learner.state())
    for one in (learner, again):
        learn(one, *'da')
    assert_same_state(learner, again)


@pytest.mark.parametrize('solver', ['dense', 'diagonal'])
def test_without_local_models_the_sums_are_saved(solver):
    learner, again = (make(solver=solver, keep_local_models=False) for _ in range(2))
    learn(learner, *'abc')
    again.load_state(learner.state())
    for one in (learner, again):
        learn(one, *'de')
    assert_same_state(learner, again)


def test_the_normal_equations_are_not_saved():
    learner = make()
    learn(learner, *'abc')
    d, k = learner.knowledge().basis.shape
    assert (d * k, d * k) not in {array.shape for array in learner.state().values()}
    assert not any(name.startswith('models/sums') for name in learner.state())


def test_what_an_iteration_changes_is_small():
    spec = PolicySpec(obs_dim=6, act_dim=4, hidden=(32, 32))
    learner = LpgFtw(spec, LpgFtwConfig(max_columns=3), 0)
    learner.start_task('reach', seed=1)
    assert sum(array.nbytes for array in learner.state(('run',)).values()) < 1_000_000


def test_an_old_run_part_fits_a_base_saved_before_the_task_was_continued():
    learner, again = make(), make()
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    iterate(learner)
    learner.park_task()
    saved = learner.state(('base', 'models'))
    learner.start_task('b', seed=1)
    iterate(learner)
    again.load_state(saved | learner.state(('run',)))
    assert again.phase('b') == 'running'
    for one in (learner, again):
        iterate(one)
        one.finish_task(batch_of(one))
    assert_same(insides(learner), insides(again))


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('base/basis', np.zeros((3, 1)), 'base/basis'),
        ('base/basis', np.zeros((8, 5)), '5 columns'),
        ('models/a/H', np.eye(8), 'no maximum'),
        ('models/a/alpha', None, 'missing'),
        ('models/z/alpha', np.zeros(8), 'unknown'),
        ('base/format', np.array([99], np.uint64), 'format 99'),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(name, value, message):
    learner, other = make(), make(seed=4)
    learn(learner, *'abc')
    learn(other, *'xy')
    state = learner.state()
    state = {k: v for k, v in state.items() if k != name}
    state |= {} if value is None else {name: value}
    before = other.state()
    with pytest.raises(StateMismatch, match=message):
        other.load_state(state)
    for key, array in other.state().items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)


def test_a_state_is_not_shared_with_the_learner_it_was_loaded_into():
    learner, again = make(), make()
    learn(learner, *'ab')
    state = learner.state()
    again.load_state(state)
    for array in state.values():
        array.flags.writeable = True
        array[...] = 0
    assert np.abs(again.knowledge().basis).max() > 0.0


def test_a_batch_of_another_task_is_refused():
    learner = make()
    learner.start_task('a', seed=1)
    with pytest.raises(LearnerMisuse, match="'z'"):
        learner.improve(replace(batch_of(learner), task='z'))


def test_the_paper_preset_file_says_what_the_text_says():
    method = resolve('demo', 'lpg-ftw', preset='paper').method
    assert {name: method[name] for name in PAPER} == PAPER


def test_rules_without_settings_are_those_of_the_default_settings():
    config = LpgFtwConfig()
    learner = LpgFtw(PolicySpec(3, 2), config, 0)
    assert learner._knowledge_base.rules == BasisRules(config.max_columns)


def test_a_state_holds_no_earlier_basis_unless_one_was_tried_out(learn):
    learner = LpgFtw(PolicySpec(3, 2), LpgFtwConfig(), 0)
    learn(learner, 'a', 'b')
    assert learner.state(['base'])['base/basis_before'].shape == (8, 0)
