"""A hash of what a task's physics does, stored with every run.

Two machines or two library versions with the same fingerprint move a task in the same way, bit by
bit. A run that is resumed under another one can say so.
"""

import hashlib

import numpy as np

from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.sampler import make_env
from lpgftw_ros.domains.suites import Suite
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.learning.randomness import generator, Purpose

_SEED = 0
_STEPS = 20


def task_fingerprint(suite: Suite, task: str) -> str:
    """Return the hash of a short scripted rollout of one task."""
    spec, pool = suite.task(task), WorkerPool(workers=1)
    try:
        env = make_env(spec, 1, pool)
        try:
            return rollout_hash(env)
        finally:
            env.close()
    finally:
        pool.close()


def rollout_hash(env: TaskVectorEnv) -> str:
    """Return the SHA-256 of observations, rewards and ends under a fixed script of actions."""
    script = generator(_SEED, Purpose.NOISE).uniform(-1.0, 1.0, (_STEPS, 1, env.act_dim))
    digest = hashlib.sha256()
    observations, _ = env.reset(seed=_SEED)
    digest.update(np.ascontiguousarray(observations[:1]).tobytes())
    for actions in script:
        everyone = np.repeat(actions, env.num_envs, axis=0)
        observations, rewards, terminated, _, infos = env.step(everyone)
        for array in (observations, rewards, terminated, infos['success']):
            digest.update(np.ascontiguousarray(array[:1]).tobytes())
    return digest.hexdigest()
