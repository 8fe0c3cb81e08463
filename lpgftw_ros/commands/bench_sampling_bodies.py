"""Contestants of `lpgftw bench sampling` for the MuJoCo bodies."""

from collections.abc import Callable
from typing import Any

import envpool
import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from mujoco import MjData
from mujoco.rollout import Rollout as PhysicsThreads
import numpy as np

from lpgftw_ros.commands.bench_rounds import best_rates, Contestant
from lpgftw_ros.domains.body_models import compile_body, RULES
from lpgftw_ros.domains.body_settings import BodySettings
from lpgftw_ros.domains.rollout import collect
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import Suite, TaskSpec
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

GYMNASIUM_IDS = {
    'halfcheetah': 'HalfCheetah-v5',
    'hopper': 'Hopper-v5',
    'walker2d': 'Walker2d-v5',
}
PEERS = ('gymnasium', 'sync', 'async', 'envpool')
_HORIZON = 1000
_SEED = 0
_PEER_STEPS = 20


def measure_body(body: str, rounds: int, workers: int) -> dict[str, float]:
    """Return control steps/s of ours, of the limit and of every peer, and their ratios."""
    # Processes are forked before any thread is started.
    contestants = [_asynchronous(body, 50)]
    tasks = [
        TaskSpec('task', 'body', {'body': body}, _HORIZON),
        TaskSpec('endless', 'body', {'body': body, 'terminate': False}, _HORIZON),
    ]
    with Sampler(Suite('bench', tuple(tasks)), workers) as sampler:
        for rows, suffix in ((50, ''), (10, '_10')):
            contestants.append(_ours(sampler, rows, f'ours{suffix}'))
            contestants.append(_limit(sampler, body, rows, f'limit{suffix}'))
        contestants += [
            _one(body),
            _synchronous(body, 50),
            _envpool(body, 50, sampler.workers),
        ]
        try:
            rates = best_rates(contestants, rounds)
        finally:
            for contestant in contestants:
                contestant.close()
    peer = max(rates[name] for name in PEERS)
    ratios = {
        'ratio_limit': rates['ours'] / rates['limit'],
        'ratio_limit_10': rates['ours_10'] / rates['limit_10'],
        'ratio_best_peer': rates['ours'] / peer,
    }
    return {**rates, **ratios}


def _policy(obs_dim: int, act_dim: int) -> PolicySnapshot:
    """Return the policy a learner starts from: nearly zero mean, sigma 1."""
    spec = PolicySpec(obs_dim, act_dim)
    theta = np.random.default_rng(_SEED).uniform(-1.0, 1.0, spec.n_parameters)
    return PolicySnapshot(spec, 0.01 * theta / np.sqrt(obs_dim), np.zeros(0), np.zeros(act_dim))


def _ours(sampler: Sampler, rows: int, name: str) -> Contestant:
    env = sampler.env('task', rows)
    policy = _policy(env.obs_dim, env.act_dim)
    return Contestant(name, lambda: sampler.collect('task', policy, rows, _SEED).n_steps)


def _limit(sampler: Sampler, body: str, rows: int, name: str) -> Contestant:
    """Return the physics alone: recorded actions, whole horizon, no policy, no end."""
    env = sampler.env('endless', rows)
    batch = collect(env, _policy(env.obs_dim, env.act_dim), rows, _SEED)
    env.reset(seed=_SEED)
    moved = [np.concatenate(env.joint_state(row)[1:]) for row in range(rows)]
    starts = np.insert(moved, 0, 0.0, axis=1)  # time, positions, velocities
    actions = batch.actions.reshape(rows, _HORIZON, env.act_dim)
    return Contestant(name, *_open_loop(body, starts, actions, sampler.workers))


def _open_loop(
    body: str, starts: Array, actions: Array, workers: int
) -> tuple[Callable[[], int], Callable[[], None]]:
    """Return a function that rolls the actions out in one call, and one that ends its threads."""
    model, skip = compile_body(BodySettings(body=body)), RULES[body].frame_skip
    rows, horizon = actions.shape[:2]
    controls = np.repeat(actions, skip, axis=1)
    states = np.empty((rows, horizon * skip, starts.shape[1]))
    threads = PhysicsThreads(nthread=workers if workers > 1 else 0)
    datas = [MjData(model) for _ in range(workers)]

    def run() -> int:
        threads.rollout(
            [model] * rows,
            datas,
            starts,
            controls,
            skip_checks=True,
            nstep=horizon * skip,
            state=states,
        )
        return int(rows * horizon)

    return run, threads.close


def _one(body: str) -> Contestant:
    """Return a single Gymnasium environment, reset by hand."""
    env = gymnasium.make(GYMNASIUM_IDS[body])
    policy = _policy(env.observation_space.shape[0], env.action_space.shape[0])
    stream = np.random.default_rng(_SEED)
    seen, _ = env.reset(seed=_SEED)

    def run() -> int:
        nonlocal seen
        for _ in range(_PEER_STEPS):
            noise = stream.standard_normal((1, policy.spec.act_dim))
            seen, _, terminated, truncated, _ = env.step(policy.act(seen[None], noise)[0])
            if terminated or truncated:
                seen, _ = env.reset()
        return _PEER_STEPS

    return Contestant('gymnasium', run, env.close)


def _synchronous(body: str, rows: int) -> Contestant:
    return _vector('sync', SyncVectorEnv, body, rows)


def _asynchronous(body: str, rows: int) -> Contestant:
    return _vector('async', AsyncVectorEnv, body, rows)


def _vector(name: str, kind: Any, body: str, rows: int) -> Contestant:
    env = kind(
        [lambda: gymnasium.make(GYMNASIUM_IDS[body])] * rows,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    seen, _ = env.reset(seed=_SEED)
    return Contestant(name, _stepping(env, seen), env.close)


def _envpool(body: str, rows: int, workers: int) -> Contestant:
    env = envpool.make_gymnasium(
        GYMNASIUM_IDS[body], num_envs=rows, num_threads=workers, seed=_SEED
    )
    seen, _ = env.reset()
    return Contestant('envpool', _stepping(env, seen), env.close)


def _stepping(env: Any, seen: Array) -> Callable[[], int]:
    """Return a function that steps a vector environment with policy and noise."""
    rows, obs_dim = seen.shape
    act_dim = env.action_space.shape[-1]
    policy, stream = _policy(obs_dim, act_dim), np.random.default_rng(_SEED)

    def run() -> int:
        nonlocal seen
        for _ in range(_PEER_STEPS):
            seen, *_ = env.step(policy.act(seen, stream.standard_normal((rows, act_dim))))
        return int(_PEER_STEPS * rows)

    return run
