import numpy as np
import pytest

from lpgftw_ros.errors import LpgftwError, NonFinite, WrongShape
from lpgftw_ros.graph.admission import Foreign, RolloutKey, Seal, TaskPolicy
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.nodes.conversions import (
    batch_from_msg,
    batch_to_msg,
    from_field,
    key_from_msg,
    key_to_msg,
    knowledge_from_msg,
    knowledge_to_msg,
    task_policy_from_msg,
    task_policy_to_msg,
    to_field,
)

RNG = np.random.default_rng(1)
SEAL = Seal('secret')
KEY = RolloutKey('run', 'reach', 3, 4, True, 5, 6)


def batch():
    lengths = np.array([3, 1, 4])
    return Batch(
        task='reach',
        observations=RNG.standard_normal((8, 5)),
        actions=RNG.standard_normal((8, 2)),
        rewards=RNG.standard_normal(8),
        lengths=lengths,
        terminated=np.array([True, False, False]),
        truncated=np.array([False, False, True]),
        success=np.array([True, False, True]),
        failed=np.array([False, True, False]),
        final_observations=RNG.standard_normal((3, 5)),
    )


def knowledge(hidden=()):
    spec = PolicySpec(5, 2, hidden)
    d = spec.n_parameters

    def factors(columns, residual):
        return TaskFactors(
            RNG.standard_normal(columns),
            RNG.standard_normal(d) if residual else np.zeros(d),
            RNG.standard_normal(spec.head_size),
            RNG.standard_normal(2),
        )

    basis = np.asfortranarray(RNG.standard_normal((d, 2)))
    return Knowledge(4, spec, basis, {'a': factors(2, False), 'b': factors(1, True)})


def test_a_batch_survives_the_wire_bit_by_bit():
    one = batch()
    message = batch_to_msg(one)
    message.key = key_to_msg(KEY)
    other = batch_from_msg(message)
    assert key_from_msg(message.key) == KEY
    for name in Batch.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))


@pytest.mark.parametrize('hidden', [(), (8, 4)])
def test_knowledge_survives_the_wire_bit_by_bit(hidden):
    one = knowledge(hidden)
    other = knowledge_from_msg(knowledge_to_msg(one, 'run', SEAL), SEAL)
    assert (other.version, other.spec, list(other.tasks)) == (4, one.spec, ['a', 'b'])
    for task in one.tasks:
        np.testing.assert_array_equal(other.policy(task).theta, one.policy(task).theta)
        np.testing.assert_array_equal(other.policy(task).head, one.policy(task).head)


def test_a_zero_residual_is_not_sent():
    message = knowledge_to_msg(knowledge(), 'run', SEAL)
    assert [len(task.residual) for task in message.tasks] == [0, 12]


@pytest.mark.parametrize(
    'spoil',
    [
        lambda m: m.observations.pop(),
        lambda m: m.rewards.append(0.0),
        lambda m: m.lengths.pop(),
        lambda m: m.success.append(1),
        lambda m: setattr(m, 'n', 7),
        lambda m: m.actions.__setitem__(0, float('nan')),
    ],
)
def test_a_spoiled_batch_is_refused(spoil):
    message = batch_to_msg(batch())
    spoil(message)
    with pytest.raises(LpgftwError):
        batch_from_msg(message)


@pytest.mark.parametrize(
    'spoil',
    [
        lambda m: m.basis.pop(),
        lambda m: setattr(m, 'n_parameters', 3),
        lambda m: setattr(m, 'n_columns', 1),
        lambda m: setattr(m.spec, 'obs_dim', 0),
        lambda m: setattr(m.spec, 'obs_dim', 2**32 - 1),
        lambda m: m.tasks[0].log_std.pop(),
        lambda m: m.tasks[1].residual.__setitem__(2, float('inf')),
    ],
)
def test_spoiled_knowledge_is_refused(spoil):
    message = knowledge_to_msg(knowledge(), 'run', SEAL)
    spoil(message)
    with pytest.raises(LpgftwError):
        knowledge_from_msg(message, SEAL)


def test_a_field_must_have_its_shape_and_be_finite():
    field = to_field(np.arange(6.0))
    assert from_field('x', field, (2, 3))[1, 2] == 5.0
    with pytest.raises(WrongShape, match='x has 6 numbers'):
        from_field('x', field, (2, 2))
    field[0] = float('inf')
    with pytest.raises(NonFinite):
        from_field('x', field, (6,))


def training():
    one = knowledge()
    return TaskPolicy('a', 7, one.version, one.spec, one.tasks['a'])


def test_the_policy_in_training_survives_the_wire():
    one = training()
    other = task_policy_from_msg(task_policy_to_msg(one, 'run', SEAL), SEAL)
    assert (other.task, other.version, other.spec) == ('a', 7, one.spec)
    np.testing.assert_array_equal(other.factors.coefficients, one.factors.coefficients)


@pytest.mark.parametrize(
    'change',
    [
        lambda m: setattr(m, 'version', m.version + 1),
        lambda m: setattr(m, 'run_id', 'other'),
        lambda m: setattr(m.spec, 'min_log_std', -2.25),
        lambda m: setattr(m, 'digest', np.zeros(32, np.uint8)),
    ],
)
def test_knowledge_and_policies_of_strangers_are_refused(change):
    base = knowledge_to_msg(knowledge(), 'run', SEAL)
    policy = task_policy_to_msg(training(), 'run', SEAL)
    for message in (base, policy):
        change(message)
    with pytest.raises(Foreign, match='digest'):
        knowledge_from_msg(base, SEAL)
    with pytest.raises(Foreign, match='digest'):
        task_policy_from_msg(policy, SEAL)


def test_another_secret_gives_another_digest_and_so_does_every_number():
    one, other = training(), training()
    assert SEAL.of_policy('run', one) != Seal('another').of_policy('run', one)
    assert SEAL.of_policy('run', one) != SEAL.of_policy('run', other)
    assert SEAL.of_policy('run', one) == Seal('secret').of_policy('run', one)
