import numpy as np
import pytest

from lpgftw_ros.errors import NonFinite, UnknownName, WrongShape
from lpgftw_ros.graph.admission import RolloutKey, TaskPolicy
from lpgftw_ros.graph.policy_server import NotYet, PolicyServer, Query
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.learning.randomness import ExplorationNoise

SPEC = PolicySpec(3, 2, ())
RNG = np.random.default_rng(0)
OBS = RNG.standard_normal((4, 3))


def factors(columns=0):
    return TaskFactors(
        RNG.standard_normal(columns),
        RNG.standard_normal(SPEC.n_parameters),
        np.zeros(0),
        np.full(2, -0.5),
    )


def knowledge(version=1):
    basis = np.asfortranarray(RNG.standard_normal((SPEC.n_parameters, 2)))
    return Knowledge(version, SPEC, basis, {'a': factors(2), 'b': factors(1)})


def query(**changes):
    own = {
        name: changes.pop(name) for name in ('first', 'step', 'observations') if name in changes
    }
    key = {'run_id': 'run', 'task': 'a', 'rollout': 1, 'seed': 7, 'explore': False}
    fields = {'first': 0, 'step': 0, 'observations': OBS} | own
    return Query(key=RolloutKey(**(key | changes)), **fields)


def server(version=1):
    one = PolicyServer()
    one.set_knowledge(knowledge(version))
    return one


def test_it_acts_with_the_task_asked_for():
    one = server()
    for task in ('a', 'b'):
        expected = one.knowledge.policy(task).act(OBS)
        np.testing.assert_array_equal(one.act(query(task=task)), expected)


def test_noise_is_that_of_the_rollout_whatever_was_asked_before():
    one = server()
    noise = ExplorationNoise(7, 4, 2, 10)
    expected = [one.knowledge.policy('a').act(OBS, noise.at(step)) for step in range(3)]
    for step in (0, 1, 1, 2, 0):  # asked twice, and from the start again
        actual = one.act(query(explore=True, first=10, step=step))
        np.testing.assert_array_equal(actual, expected[step])


def test_two_parts_that_ask_in_turns_have_the_noise_of_their_trajectories():
    one = server()
    noise = {first: ExplorationNoise(7, 4, 2, first) for first in (0, 30)}
    for step, first in ((0, 0), (0, 30), (1, 0), (1, 30)):
        expected = one.knowledge.policy('a').act(OBS, noise[first].at(step))
        actual = one.act(query(explore=True, first=first, step=step))
        np.testing.assert_array_equal(actual, expected)
    assert len(one._noise) == 2


def test_a_restarted_server_answers_a_later_step_with_the_same_noise():
    one, other = server(), PolicyServer()
    other.set_knowledge(one.knowledge)
    for step in range(5):
        last = one.act(query(explore=True, step=step))
    np.testing.assert_array_equal(other.act(query(explore=True, step=4)), last)


def test_nothing_is_answered_before_knowledge_comes():
    with pytest.raises(NotYet, match='no knowledge'):
        PolicyServer().act(query())


def test_another_knowledge_version_is_waited_for():
    one = server(version=2)
    with pytest.raises(NotYet, match='knowledge 3 is asked for, 2 is here'):
        one.act(query(knowledge_version=3))
    one.set_knowledge(knowledge(3))
    assert one.act(query(knowledge_version=3)).shape == (4, 2)


def test_a_policy_in_training_composes_only_with_its_own_knowledge():
    one, own = server(version=2), factors(2)
    with pytest.raises(NotYet, match='none is here'):
        one.act(query(policy_version=5))
    one.set_training(TaskPolicy('c', 5, 3, SPEC, own))
    with pytest.raises(NotYet, match='stands on knowledge 3'):
        one.act(query(task='c', policy_version=5))
    one.set_knowledge(knowledge(3))
    expected = one.knowledge.compose(own).act(OBS)
    np.testing.assert_array_equal(one.act(query(task='c', policy_version=5)), expected)


def test_a_new_policy_replaces_the_composed_one():
    one, new = server(), factors(2)
    one.set_training(TaskPolicy('c', 5, 1, SPEC, factors(2)))
    one.act(query(task='c', policy_version=5))
    one.set_training(TaskPolicy('c', 6, 1, SPEC, new))
    expected = one.knowledge.compose(new).act(OBS)
    np.testing.assert_array_equal(one.act(query(task='c', policy_version=6)), expected)


@pytest.mark.parametrize(
    ('changes', 'error'),
    [
        ({'task': 'z'}, UnknownName),
        ({'observations': np.zeros((4, 5))}, WrongShape),
        ({'observations': np.full((4, 3), np.nan)}, NonFinite),
    ],
)
def test_what_can_never_be_answered_is_refused(changes, error):
    with pytest.raises(error):
        server().act(query(**changes))


@pytest.mark.parametrize(
    ('policy', 'words'),
    [
        (TaskPolicy('c', 5, 1, SPEC, factors(50)), '50 coefficients, the basis 2 columns'),
        (TaskPolicy('c', 5, 1, PolicySpec(4, 2, ()), factors(2)), 'another shape'),
    ],
)
def test_a_policy_that_does_not_fit_the_knowledge_is_refused(policy, words):
    one = server()
    one.set_training(policy)
    with pytest.raises(WrongShape, match=words):
        one.act(query(task='c', policy_version=5))
