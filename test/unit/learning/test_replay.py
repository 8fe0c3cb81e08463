"""Experience replay: its gradient, its turns and its memory."""

import numpy as np
import pytest
import torch

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.methods.replay import Replay, ReplayConfig, Reservoir, Stored
from lpgftw_ros.learning.policies import forward, PolicySpec, surrogate_gradient
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.values import whitened_advantages

LINEAR = PolicySpec(3, 2)


@pytest.fixture
def trained(spec, learn):
    learner = Replay(spec, ReplayConfig(value_epochs=1, replay_capacity=10), 5)
    learn(learner, 'a', 'b')
    learner.start_task('c', seed=1)
    return learner


def test_importance_is_only_bounded_to_keep_sums_finite():
    assert ReplayConfig().max_importance == 1e6


def stored_of(first, n):
    """Make trajectories of two steps that carry their number in the rewards."""
    numbers = np.arange(first, first + n)
    flags = np.zeros(n, bool)
    batch = Batch(
        task='t',
        observations=np.zeros((2 * n, 3)),
        actions=np.zeros((2 * n, 2)),
        rewards=np.repeat(numbers, 2).astype(float),
        lengths=np.full(n, 2),
        terminated=flags,
        truncated=~flags,
        success=flags,
        failed=flags,
        final_observations=np.zeros((n, 3)),
    )
    return Stored(batch, -np.repeat(numbers, 2).astype(float))


def numbers_in(reservoir):
    kept = reservoir.take(np.arange(len(reservoir.slots)))
    np.testing.assert_array_equal(kept.log_likelihood, -kept.batch.rewards)
    return kept.batch.rewards[::2].astype(int).tolist()


def torch_mean(spec, theta, head, obs):
    n, m = spec.obs_dim, spec.act_dim
    if not spec.hidden:
        rows = theta.reshape(m, n + 1)
        return obs @ rows[:, :n].T + rows[:, n]
    a, b = spec.hidden
    W0, b0, W1, b1 = torch.split(theta, [a * n, a, b * a, b])
    W2, b2 = torch.split(head, [m * b, m])
    h1 = torch.tanh(obs @ W0.reshape(a, n).T + b0)
    return torch.tanh(h1 @ W1.reshape(b, a).T + b1) @ W2.reshape(m, b).T + b2


def test_replay_gradient_is_autograd_of_the_weighted_surrogate(trained):
    """The weights carry no gradient: the surrogate is mean(stop(pi / pi_stored) ratio A)."""
    spec, start = trained.spec, trained.factors().residual
    theta = torch.tensor(start, requires_grad=True)
    rng = generator(1, Purpose.REPLAY, 0, 0)
    total, n_steps = 0.0, 0
    for task, count in trained.rotation(8, 0).items():
        own = trained.knowledge().tasks[task]
        stored = trained._memory[task].draw(count, rng)
        batch = stored.batch
        obs, actions = torch.tensor(batch.observations), torch.tensor(batch.actions)
        mean = torch_mean(spec, theta, torch.tensor(own.head), obs)
        normal = torch.distributions.Normal(mean, torch.exp(torch.tensor(own.log_std)))
        log_p = normal.log_prob(actions).sum(dim=1)
        weight = torch.exp(log_p.detach() - torch.tensor(stored.log_likelihood))
        ratio = torch.exp(log_p - log_p.detach())
        values = trained._finished[task].values
        A = whitened_advantages(values, batch, trained.config, trained.config.gae_lambda)
        total = total + torch.sum(weight * ratio * torch.tensor(A))
        n_steps += batch.n_steps
    (total / n_steps).backward()
    found = trained.replay_gradient(start, 8)
    np.testing.assert_allclose(found, theta.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_half_of_an_update_is_replay(trained, make_batch, rng):
    batch = make_batch(trained)
    policy = trained._running_policy()
    at = forward(policy, batch.observations)
    advantages = rng.standard_normal(batch.n_steps)
    now = surrogate_gradient(policy, at, batch.actions, advantages)
    found = trained._gradient(policy, at, batch, advantages)
    replayed = trained.replay_gradient(policy.theta, batch.n_trajectories)
    np.testing.assert_allclose(found.residual, 0.5 * now.theta + 0.5 * replayed, rtol=1e-12)
    np.testing.assert_allclose(found.head, 0.5 * now.head)
    np.testing.assert_allclose(found.log_std, 0.5 * now.log_std)


def test_the_first_task_learns_from_itself_alone(spec):
    learner = Replay(spec, ReplayConfig(), 5)
    learner.start_task('a', seed=1)
    assert learner.replay_gradient(learner.factors().residual, 8) is None


def test_an_importance_weight_cannot_overflow(trained):
    for task, reservoir in trained._memory.items():
        for chunk in reservoir.chunks.values():
            chunk.log_likelihood[:] = -1e6
        assert np.isfinite(trained.replay_gradient(trained.factors().residual, 8)).all(), task


@pytest.mark.parametrize('n_trajectories', [2, 5, 7, 10])
def test_every_earlier_task_has_its_turn(learn, n_trajectories):
    learner = Replay(LINEAR, ReplayConfig(value_epochs=1), 5)
    learn(learner, 'a', 'b', 'c', 'd', 'e', iterations=1)
    learner.start_task('f', seed=1)
    turns = [learner.rotation(n_trajectories, i) for i in range(5)]
    assert all(sum(turn.values()) == n_trajectories for turn in turns)
    needed = -(-5 // n_trajectories)
    assert set().union(*turns[:needed]) == set('abcde')
    totals = [sum(turn.get(task, 0) for turn in turns) for task in 'abcde']
    assert totals == [n_trajectories] * 5


def test_the_memory_holds_what_the_task_saw(trained):
    assert {task: len(memory.slots) for task, memory in trained._memory.items()} == {
        'a': 10,
        'b': 10,
    }
    assert trained._memory['a'].seen == 16


def test_stored_likelihoods_are_those_of_sampling(spec, make_batch):
    learner = Replay(spec, ReplayConfig(value_epochs=1), 5)
    learner.start_task('a', seed=1)
    policy = learner.knowledge().compose(learner.factors())
    batch = make_batch(learner)
    learner.improve(batch)
    kept = learner._working['a'].take(np.arange(8))
    mean = torch.tensor(policy.act(batch.observations))
    normal = torch.distributions.Normal(mean, torch.exp(torch.tensor(policy.log_std)))
    wanted = normal.log_prob(torch.tensor(batch.actions)).sum(dim=1).numpy()
    np.testing.assert_allclose(kept.log_likelihood, wanted, rtol=1e-9)


def test_a_reservoir_keeps_everything_until_it_is_full(rng):
    reservoir = Reservoir(10).offer(stored_of(0, 4), rng).offer(stored_of(4, 6), rng)
    assert numbers_in(reservoir) == list(range(10))


def test_a_full_reservoir_keeps_a_uniform_sample():
    counts = np.zeros(60)
    for seed in range(100):
        rng, reservoir = np.random.default_rng(seed), Reservoir(6)
        for first in range(0, 60, 5):
            reservoir = reservoir.offer(stored_of(first, 5), rng)
        counts[numbers_in(reservoir)] += 1
    assert counts.sum() == 100 * 6
    thirds = counts.reshape(3, 20).sum(axis=1)  # early, middle, late: 200 expected each
    assert np.abs(thirds - 200).max() < 4 * np.sqrt(200 * 2 / 3)


def test_chunks_never_change_under_their_number():
    rng, reservoir, held = np.random.default_rng(0), Reservoir(6), {}
    for first in range(0, 200, 5):
        reservoir = reservoir.offer(stored_of(first, 5), rng)
        for key, array in reservoir.arrays().items():
            assert held.setdefault(key, array) is array
        dead = sum(c.batch.n_trajectories for c in reservoir.chunks.values()) - 6
        assert dead <= 12


def test_compacting_keeps_the_trajectories_in_one_chunk(rng):
    reservoir = Reservoir(10).offer(stored_of(0, 4), rng).offer(stored_of(4, 6), rng)
    compact = reservoir.compact()
    assert numbers_in(compact) == numbers_in(reservoir)
    assert len(compact.chunks) == 1
    assert compact.compact() is compact


def test_a_draw_has_no_repeats(rng):
    reservoir = Reservoir(10).offer(stored_of(0, 10), rng)
    drawn = reservoir.draw(6, rng).batch.rewards[::2].tolist()
    assert len(set(drawn)) == 6
    assert reservoir.draw(99, rng).batch.n_trajectories == 10


@pytest.mark.parametrize(
    ('key', 'value', 'message'),
    [
        ('replay/index/a', np.zeros(3, np.uint64), 'does not describe a reservoir'),
        ('replay/index/a', np.array([9, 9, 1, 99], np.uint64), 'is missing|not there'),
    ],
)
def test_a_broken_index_is_refused(trained, key, value, message):
    state = trained.state()
    chunk = next(int(k.split('/')[3]) for k in state if k.startswith('replay/chunks/a'))
    value = value.copy()
    value[2:3] = chunk
    with pytest.raises(StateMismatch, match=message):
        trained.load_state(state | {key: value})


def test_trajectories_without_steps_are_refused(trained):
    state = trained.state()
    key = next(k for k in state if k.startswith('replay/chunks/a') and k.endswith('lengths'))
    with pytest.raises(StateMismatch, match='without steps'):
        trained.load_state(state | {key: np.zeros_like(state[key])})
