"""Elastic weight consolidation: its penalty and what its tasks share."""

import numpy as np
import pytest
import torch

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.methods.ewc import Ewc, EwcConfig
from lpgftw_ros.learning.policies import forward, PolicySpec, surrogate_gradient

PENALTIES = ('original', 'scaled', 'huszar')


@pytest.fixture
def trained(spec, learn):
    def build(**settings):
        learner = Ewc(spec, EwcConfig(value_epochs=1, **settings), 5)
        learn(learner, 'a', 'b', 'c')
        return learner

    return build


def penalty(kind, models, weight, theta):
    """Return the penalty as the paper writes it, to be maximised."""
    H = [torch.tensor(model.H) for model in models]
    alpha = [torch.tensor(model.alpha) for model in models]
    if kind == 'huszar':
        step = theta - alpha[-1]
        return weight * step @ sum(H) @ step
    total = sum((theta - a) @ h @ (theta - a) for h, a in zip(H, alpha, strict=True))
    return weight * total / (len(models) if kind == 'scaled' else 1)


@pytest.mark.parametrize('kind', PENALTIES)
def test_penalty_gradient_is_autograd_of_the_penalty(trained, rng, kind):
    learner = trained(penalty=kind, ewc_weight=0.3)
    learner.start_task('d', seed=1)
    theta = torch.tensor(rng.standard_normal(learner.spec.n_parameters), requires_grad=True)
    models = [learner._models[task] for task in 'abc']
    penalty(kind, models, 0.3, theta).backward()
    found = learner.penalty_gradient(theta.detach().numpy())
    np.testing.assert_allclose(found, theta.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize('kind', PENALTIES)
def test_a_revisited_task_does_not_hold_itself_back(trained, rng, kind):
    learner = trained(penalty=kind, ewc_weight=0.3)
    learner.start_task('b', seed=1)
    theta = torch.tensor(rng.standard_normal(learner.spec.n_parameters), requires_grad=True)
    models = [learner._models[task] for task in 'ac']
    penalty(kind, models, 0.3, theta).backward()
    found = learner.penalty_gradient(theta.detach().numpy())
    np.testing.assert_allclose(found, theta.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_the_first_task_has_no_penalty(spec):
    learner = Ewc(spec, EwcConfig(ewc_weight=1.0), 5)
    learner.start_task('a', seed=1)
    assert not learner.penalty_gradient(np.ones(spec.n_parameters)).any()


def test_the_penalty_is_added_to_theta_only(trained, make_batch, rng):
    learner = trained(ewc_weight=0.3)
    learner.start_task('d', seed=1)
    batch, policy = make_batch(learner), learner._running_policy()
    at, advantages = forward(policy, batch.observations), rng.standard_normal(80)
    plain = surrogate_gradient(policy, at, batch.actions, advantages)
    found = learner._gradient(policy, at, batch, advantages)
    pull = learner.penalty_gradient(policy.theta)
    np.testing.assert_array_equal(found.residual, plain.theta + pull)
    np.testing.assert_array_equal(found.head, plain.head)
    np.testing.assert_array_equal(found.log_std, plain.log_std)


def test_finished_tasks_share_theta(trained):
    knowledge = trained().knowledge()
    assert knowledge.basis.shape[1] == 1
    for task in 'abc':
        np.testing.assert_array_equal(knowledge.policy(task).theta, knowledge.basis[:, 0])


def test_heads_belong_to_tasks(trained):
    knowledge = trained().knowledge()
    if knowledge.spec.hidden:
        assert not np.array_equal(knowledge.tasks['a'].head, knowledge.tasks['b'].head)


def test_a_shared_sigma_is_carried_over_and_common_to_all(trained):
    learner = trained(shared_std=True)
    sigmas = [factors.log_std for factors in learner.knowledge().tasks.values()]
    np.testing.assert_array_equal(sigmas[0], sigmas[2])
    learner.start_task('d', seed=1)
    np.testing.assert_array_equal(learner.factors().log_std, sigmas[0])


def test_a_sigma_per_task_starts_at_one_and_stays(trained):
    learner = trained(shared_std=False)
    sigmas = [factors.log_std for factors in learner.knowledge().tasks.values()]
    assert not np.array_equal(sigmas[0], sigmas[1])
    learner.start_task('d', seed=1)
    assert not learner.factors().log_std.any()


@pytest.mark.parametrize('shared_std', [True, False])
def test_a_parked_copy_follows_what_was_committed_meanwhile(spec, learn, make_batch, shared_std):
    learner = Ewc(spec, EwcConfig(value_epochs=1, shared_std=shared_std), 5)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    learner.improve(make_batch(learner))
    learner.fit_values()
    parked, before = learner.factors(), learner.knowledge().basis[:, 0].copy()
    log_std = learner.knowledge().tasks['a'].log_std
    learner.park_task()
    learn(learner, 'c')
    now = learner.knowledge()
    learner.start_task('b', seed=1)
    moved = learner.factors()
    np.testing.assert_array_equal(moved.residual, parked.residual + (now.basis[:, 0] - before))
    change = now.tasks['a'].log_std - log_std
    np.testing.assert_allclose(moved.log_std, parked.log_std + change, atol=1e-15)


def test_a_parked_copy_keeps_to_the_floor_of_log_std(spec, learn):
    learner = Ewc(spec, EwcConfig(value_epochs=1, shared_std=True), 5)
    learn(learner, 'a')
    learner.start_task('b', seed=1)
    learner.park_task()
    learner._log_std = learner._log_std - 10.0  # as if other tasks had sharpened it far
    learner.start_task('b', seed=1)
    np.testing.assert_array_equal(learner.factors().log_std, np.full(spec.act_dim, -3.0))


def test_forgetting_a_task_takes_its_penalty_out(trained, rng):
    learner = trained(ewc_weight=0.3)
    learner.forget_task('b')
    theta = rng.standard_normal(learner.spec.n_parameters)
    models = [learner._models[task] for task in 'ac']
    wanted = sum(0.6 * m.H @ (theta - m.alpha) for m in models)
    learner.start_task('d', seed=1)
    np.testing.assert_allclose(learner.penalty_gradient(theta), wanted, rtol=1e-9, atol=1e-12)


def test_the_penalty_holds_an_earlier_task_in_place(learn):
    distance = {}
    for weight in (0.0, 1e3):
        learner = Ewc(PolicySpec(3, 2), EwcConfig(value_epochs=1, ewc_weight=weight), 5)
        learn(learner, 'a', iterations=10)
        theta = learner.knowledge().basis[:, 0]
        learn(learner, 'b', iterations=10)
        distance[weight] = np.linalg.norm(learner.knowledge().basis[:, 0] - theta)
    assert distance[1e3] < 0.5 * distance[0.0]


def test_anchors_must_be_the_finished_tasks(trained):
    learner = trained()
    wrong = {'base/anchors': np.frombuffer(b'\na\nb', np.uint8)}
    with pytest.raises(StateMismatch, match='base/anchors'):
        learner.load_state(learner.state() | wrong)
