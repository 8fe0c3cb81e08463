import numpy as np
import pytest

from lpgftw_ros.errors import LpgftwError, NonFinite, WrongShape
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.nodes.conversions import (
    batch_from_msg,
    batch_to_msg,
    from_field,
    knowledge_from_msg,
    knowledge_to_msg,
    to_field,
)

RNG = np.random.default_rng(1)


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
    other = batch_from_msg(batch_to_msg(one))
    for name in Batch.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))


@pytest.mark.parametrize('hidden', [(), (8, 4)])
def test_knowledge_survives_the_wire_bit_by_bit(hidden):
    one = knowledge(hidden)
    other = knowledge_from_msg(knowledge_to_msg(one, 'run'))
    assert (other.version, other.spec, list(other.tasks)) == (4, one.spec, ['a', 'b'])
    for task in one.tasks:
        np.testing.assert_array_equal(other.policy(task).theta, one.policy(task).theta)
        np.testing.assert_array_equal(other.policy(task).head, one.policy(task).head)


def test_a_zero_residual_is_not_sent():
    message = knowledge_to_msg(knowledge(), 'run')
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
    message = knowledge_to_msg(knowledge(), 'run')
    spoil(message)
    with pytest.raises(LpgftwError):
        knowledge_from_msg(message)


def test_a_field_must_have_its_shape_and_be_finite():
    field = to_field(np.arange(6.0))
    assert from_field('x', field, (2, 3))[1, 2] == 5.0
    with pytest.raises(WrongShape, match='x has 6 numbers'):
        from_field('x', field, (2, 2))
    field[0] = float('inf')
    with pytest.raises(NonFinite):
        from_field('x', field, (6,))
