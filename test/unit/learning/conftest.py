"""Small policies and batches the tests of the learning library share."""

import numpy as np
import pytest

from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=[(), (5, 4)], ids=['linear', 'mlp'])
def spec(request):
    return PolicySpec(obs_dim=3, act_dim=2, hidden=request.param)


@pytest.fixture
def policy(spec, rng):
    return PolicySnapshot(
        spec,
        0.7 * rng.standard_normal(spec.n_parameters),
        0.7 * rng.standard_normal(spec.head_size),
        0.3 * rng.standard_normal(spec.act_dim),
    )


@pytest.fixture
def obs(rng):
    return rng.standard_normal((40, 3))


@pytest.fixture
def actions(rng):
    return rng.standard_normal((40, 2))


@pytest.fixture
def weights(rng):
    return rng.standard_normal(40)


def toy_batch(learner, n=8, horizon=10, seed=0):
    """Sample a toy task: the best action is a linear function of the observation."""
    task, spec = learner.running, learner.spec
    rng = np.random.default_rng((seed, learner.iteration, *task.encode()))
    wanted = np.random.default_rng(list(task.encode())).standard_normal((3, 2))
    obs = rng.standard_normal((n * horizon, 3))
    policy = learner.knowledge().compose(learner.factors())
    actions = policy.act(obs, rng.standard_normal((n * horizon, spec.act_dim)))
    flags = np.zeros(n, dtype=bool)
    return Batch(
        task=task,
        observations=obs,
        actions=actions,
        rewards=-np.sum((actions - obs @ wanted) ** 2, axis=1),
        lengths=np.full(n, horizon),
        terminated=flags,
        truncated=~flags,
        success=flags,
        failed=flags,
        final_observations=obs[:n],
    )


@pytest.fixture
def make_batch():
    return toy_batch


@pytest.fixture
def learn():
    """Return a function that learns tasks one after another."""

    def run(learner, *tasks, iterations=2):
        for task in tasks:
            learner.start_task(task, seed=sum(task.encode()))
            for _ in range(iterations):
                learner.improve(toy_batch(learner))
                learner.fit_values()
            learner.finish_task(toy_batch(learner, seed=1))

    return run
