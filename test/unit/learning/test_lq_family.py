"""Lifelong learning on a family of linear-quadratic tasks whose optima are known.

A point in the plane is driven to a goal: x' = 0.8 x + 0.2 u, reward -(|x' - goal|^2 + 0.5 |u|^2).
Goals lie on a quarter of a circle, so the best linear policies of all tasks lie near a space of
three dimensions: one gain and an offset in the plane. The first three goals are apart from each
other: what they span is what the basis can express. Returns are normalised per task: 0 is no
action, 1 the best linear policy; they are exact, from the moments of the closed loop.
"""

import numpy as np
import pytest
from scipy.optimize import minimize

from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.learning.registry import make_learner

SPEC = PolicySpec(obs_dim=2, act_dim=2, min_log_std=-1.5)
HORIZON, DECAY, GAIN, EFFORT, SPREAD = 20, 0.8, 0.2, 0.5, 0.5
N_TASKS, K, ITERATIONS, TRAJECTORIES, SEED = 20, 3, 40, 50, 0
REWARD_SCALE = 0.05
SETTINGS = {
    'max_kl': 0.03,
    'gae_lambda': 0.99,
    'value_learning_rate': 1e-2,
    'value_epochs': 2,
}


class LqTask:
    """Drive a point to a goal."""

    def __init__(self, name, goal, best=None):
        self.name, self.goal, self.best = name, goal, best
        self.idle = self.expected_return(np.zeros(6))

    def expected_return(self, theta):
        """Return the return of the mean action, from mean and covariance of the state."""
        W, b = theta.reshape(2, 3)[:, :2], theta.reshape(2, 3)[:, 2]
        closed = DECAY * np.eye(2) + GAIN * W
        mean, covariance, total = np.zeros(2), SPREAD**2 * np.eye(2), 0.0
        for _ in range(HORIZON):
            u = W @ mean + b
            total -= EFFORT * (u @ u + np.trace(W @ covariance @ W.T))
            mean, covariance = closed @ mean + GAIN * b, closed @ covariance @ closed.T
            total -= np.sum((mean - self.goal) ** 2) + np.trace(covariance)
        return total

    def score(self, policy):
        """Return the normalised return of a policy's mean action."""
        gained = self.expected_return(policy.theta) - self.idle
        return gained / (self.best - self.idle)

    def collect(self, policy, n, seed):
        """Sample trajectories, all rows at once."""
        rng = np.random.default_rng(seed)
        x = SPREAD * rng.standard_normal((n, 2))
        obs, actions = np.empty((n, HORIZON, 2)), np.empty((n, HORIZON, 2))
        rewards = np.empty((n, HORIZON))
        for step in range(HORIZON):
            u = policy.act(x, rng.standard_normal((n, 2)))
            obs[:, step], actions[:, step] = x, u
            x = DECAY * x + GAIN * u
            cost = np.sum((x - self.goal) ** 2, axis=1) + EFFORT * np.sum(u * u, axis=1)
            rewards[:, step] = -REWARD_SCALE * cost
        no = np.zeros(n, dtype=bool)
        return Batch(
            task=self.name,
            observations=obs.reshape(-1, 2),
            actions=actions.reshape(-1, 2),
            rewards=rewards.ravel(),
            lengths=np.full(n, HORIZON),
            terminated=no,
            truncated=~no,
            success=no,
            failed=no,
            final_observations=x,
        )


def goal_at(angle):
    return 3.0 * np.array([np.cos(angle), np.sin(angle)])


def best_parameters(task):
    """Return the best linear policy, by numerical optimisation."""
    return minimize(lambda theta: -task.expected_return(theta), np.zeros(6)).x


def turned(theta, angle):
    """Return a policy in turned coordinates."""
    R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    W, b = theta.reshape(2, 3)[:, :2], theta.reshape(2, 3)[:, 2]
    return np.column_stack((R @ W @ R.T, R @ b)).ravel()


@pytest.fixture(scope='module')
def tasks():
    """Return tasks in random order after the first three; the last is at one end of the arc."""
    angles = np.linspace(-np.pi / 4, np.pi / 4, N_TASKS)
    first, last = [1, 10, 17], [N_TASKS - 1]
    rest = [i for i in range(N_TASKS) if i not in first + last]
    order = [*first, *np.random.default_rng(SEED).permutation(rest), *last]
    # the plant looks the same from everywhere, so the best return is the same for all goals
    reference = LqTask('reference', goal_at(0.0))
    best = reference.expected_return(best_parameters(reference))
    return [LqTask(f'goal {i}', goal_at(angles[i]), best) for i in order]


def lifetime(name, tasks, *, stop_at=np.inf, iterations=ITERATIONS, **settings):
    """Learn all tasks; return iterations until 0.9, scores when learned and at the end."""
    learner = make_learner(name, SPEC, SETTINGS | settings, SEED)
    needed, tuned = [], []
    for visit, task in enumerate(tasks):
        learner.start_task(task.name, seed=derive_seed(SEED, Purpose.POLICY_INIT, visit))
        scores = []
        for i in range(iterations):
            policy = learner.knowledge().compose(learner.factors())
            scores.append(task.score(policy))
            if scores[-1] >= stop_at:
                break
            seed = derive_seed(SEED, Purpose.TRAIN, visit, i)
            learner.improve(task.collect(policy, TRAJECTORIES, seed))
            learner.fit_values()
        policy = learner.knowledge().compose(learner.factors())
        tuned.append(task.score(policy))
        needed.append(next((i for i, score in enumerate(scores) if score >= 0.9), iterations))
        learner.finish_task(task.collect(policy, 10, derive_seed(SEED, Purpose.UPDATE, visit)))
    knowledge = learner.knowledge()
    final = [task.score(knowledge.policy(task.name)) for task in tasks]
    return np.array(needed), np.array(tuned), np.array(final)


@pytest.fixture(scope='module')
def lpg_ftw(tasks):
    return lifetime('lpg-ftw', tasks, max_columns=K)


def test_the_family_needs_three_columns():
    best = best_parameters(LqTask('reference', goal_at(0.0)))
    family = [turned(best, angle) for angle in np.linspace(-np.pi / 4, np.pi / 4, 6)]
    sizes = np.linalg.svd(np.array(family), compute_uv=False)
    assert sizes[2] > 0.02 * sizes[0]
    assert sizes[3] < 0.01 * sizes[0]


def test_the_best_policy_of_another_goal_is_the_same_turned(tasks):
    best = best_parameters(LqTask('reference', goal_at(0.0)))
    angle = np.arctan2(*tasks[5].goal[::-1])
    value = tasks[5].expected_return(turned(best, angle))
    assert value == pytest.approx(tasks[5].best, rel=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(10):
        near = turned(best, angle) + 0.1 * rng.standard_normal(6)
        assert tasks[5].expected_return(near) < tasks[5].best


def test_sampled_returns_have_the_expected_mean(tasks):
    learner = make_learner('stl', SPEC, SETTINGS, SEED)
    learner.start_task(tasks[0].name, seed=1)
    policy = learner.knowledge().compose(learner.factors())
    quiet = tasks[0].collect(
        type(policy)(SPEC, policy.theta, policy.head, np.full(2, -20.0)), 4000, 1
    )
    expected = REWARD_SCALE * tasks[0].expected_return(policy.theta)
    assert np.mean(quiet.returns) == pytest.approx(expected, rel=0.01)


def test_known_columns_halve_the_iterations_of_single_task_learning(tasks, lpg_ftw):
    single, _, _ = lifetime('stl', tasks, stop_at=0.9)
    assert single.max() < ITERATIONS
    assert np.mean(lpg_ftw[0][K:]) <= 0.5 * np.mean(single[K:])


def test_every_task_is_kept_to_the_end(lpg_ftw):
    assert lpg_ftw[2].min() >= 0.99


def test_fine_tuning_forgets_most_of_it(tasks):
    _, tuned, final = lifetime('ewc', tasks, ewc_weight=0.0, shared_std=False)
    assert tuned.mean() >= 0.9
    assert np.mean((tuned - final)[:-1]) > 0.5
