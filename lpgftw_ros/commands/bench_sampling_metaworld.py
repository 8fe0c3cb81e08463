"""Contestants of `lpgftw bench sampling` for Meta-World's MT10.

Each of the ten tasks is measured; the rate of the suite is that of meeting all tasks equally
often: 10 / sum(1 / rate). A window is a whole rollout, so half as many do. Upstream's vector
environments hold one environment per task, as upstream itself builds MT10.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import envpool
import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
import mujoco
import numpy as np

from lpgftw_ros.commands.bench_rounds import best_rates, Contestant
from lpgftw_ros.domains.metaworld_engine import engine, STATE
from lpgftw_ros.domains.metaworld_settings import MetaWorldSettings
from lpgftw_ros.domains.rollout import collect
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

PYTHON_PEERS = ('gymnasium', 'sync', 'async')
_PER_TASK = ('ours', 'ours_10', 'limit', 'limit_10', 'gymnasium', 'envpool')
_HORIZON = 150
_SEED = 0
_PEER_STEPS = 20


def measure_mt10(rounds: int, workers: int) -> dict[str, float]:
    """Return control steps/s of ours, of the limit and of every peer, and their ratios."""
    vectors = [_vector('async', AsyncVectorEnv), _vector('sync', SyncVectorEnv)]
    try:
        rates = best_rates(vectors, rounds)
        with Sampler('mt10', workers) as sampler:
            windows = -(-rounds // 2)
            tasks = [_measure_task(sampler, name, windows) for name in sampler.suite.task_names]
    finally:
        for contestant in vectors:
            contestant.close()
    for name in _PER_TASK:
        rates[name] = len(tasks) / sum(1.0 / task[name] for task in tasks)
    ratios = {
        'ratio_limit': rates['ours'] / rates['limit'],
        'ratio_limit_10': rates['ours_10'] / rates['limit_10'],
        'ratio_upstream': rates['ours'] / rates['gymnasium'],
        'ratio_best_peer': rates['ours'] / max(rates[name] for name in PYTHON_PEERS),
        'ratio_envpool': rates['ours'] / rates['envpool'],
    }
    return {**rates, **ratios}


def _measure_task(sampler: Sampler, task: str, rounds: int) -> Mapping[str, float]:
    contestants = [_one(task), _envpool(task, sampler.workers)]
    for rows, suffix in ((50, ''), (10, '_10')):
        contestants.append(_ours(sampler, task, rows, f'ours{suffix}'))
        contestants.append(_limit(sampler, task, rows, f'limit{suffix}'))
    try:
        return best_rates(contestants, rounds)
    finally:
        for contestant in contestants:
            contestant.close()


def _policy(obs_dim: int) -> PolicySnapshot:
    """Return a policy of the paper's shape as a learner starts from: small mean, sigma 1."""
    spec = PolicySpec(obs_dim, 4, (32, 32))
    stream = np.random.default_rng(_SEED)
    theta = stream.uniform(-0.3, 0.3, spec.n_parameters)
    return PolicySnapshot(spec, theta, 0.01 * stream.uniform(-0.2, 0.2, 132), np.zeros(4))


def _ours(sampler: Sampler, task: str, rows: int, name: str) -> Contestant:
    env, policy = sampler.env(task, rows), _policy(6)
    return Contestant(name, lambda: collect(env, policy, rows, _SEED).n_steps)


def _limit(sampler: Sampler, task: str, rows: int, name: str) -> Contestant:
    """Return the physics alone, through the very states ours went through."""
    batch = collect(sampler.env(task, rows), _policy(6), rows, _SEED)
    actions = batch.actions.reshape(rows, _HORIZON, 4)
    settings = MetaWorldSettings.from_mapping(sampler.suite.task(task).settings)
    replay = PhysicsReplay(settings, actions, sampler.workers)
    replay.run()
    if not np.array_equal(replay.hands(), batch.final_observations[:, :3]):
        raise AssertionError(f'the limit of {task} went through other states')
    return Contestant(name, replay.run, replay.close)


class PhysicsReplay:
    """Bare `mj_step` and `mj_forward` of recorded actions, in threads."""

    def __init__(self, settings: MetaWorldSettings, actions: Array, workers: int) -> None:
        sim = engine(settings.task)
        scene = sim.build(settings.vectors()[0], settings.reward)
        self._model, self._state, self._skip = sim.model, scene.state, sim.env.frame_skip
        self._rows, self._horizon = actions.shape[:2]
        self._datas = [mujoco.MjData(sim.model) for _ in range(self._rows)]
        self._hand = sim.model.body('hand').id
        self._load()
        self._controls = np.stack([actions[..., 3], -actions[..., 3]], axis=-1)
        self._targets = np.empty((self._rows, self._horizon, 3))
        target = self._datas[0].mocap_pos[0]
        for t in range(self._horizon):
            target = target + np.clip(actions[:, t, :3], -1, 1) * sim.env.action_scale
            target = np.clip(target, sim.env.mocap_low, sim.env.mocap_high)
            self._targets[:, t] = target
        self._threads = ThreadPoolExecutor(workers)
        self._shares = np.array_split(np.arange(self._rows), workers)

    def _load(self) -> None:
        for data in self._datas:
            mujoco.mj_setState(self._model, data, self._state, STATE)

    def _work(self, rows: Array) -> None:
        model, skip = self._model, self._skip
        for row in rows.tolist():
            data, targets, controls = self._datas[row], self._targets[row], self._controls[row]
            target, control = data.mocap_pos[0], data.ctrl
            for t in range(self._horizon):
                target[:], control[:] = targets[t], controls[t]
                mujoco.mj_step(model, data, skip)
                mujoco.mj_forward(model, data)

    def run(self) -> int:
        """Replay everything and return the number of control steps."""
        self._load()
        list(self._threads.map(self._work, self._shares))
        return int(self._rows * self._horizon)

    def hands(self) -> Array:
        """Return where the hands ended. Shape (rows, 3)."""
        return np.array([data.xpos[self._hand] for data in self._datas])

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _upstream(task: str) -> Any:
    """Return upstream's own environment with reward v1 and a fixed goal."""
    env = ALL_V3_ENVIRONMENTS[f'{task}-v3'](reward_function_version='v1')
    env._set_task_called, env._partially_observable = True, False
    env._freeze_rand_vec = True
    env._last_rand_vec = np.array(MetaWorldSettings(task=task).vectors()[0])
    env.__dict__.pop('sawyer_observation_space', None)
    return gymnasium.wrappers.TimeLimit(env, _HORIZON)


def _one(task: str) -> Contestant:
    """Return a single upstream environment, reset by hand; one call is one episode."""
    env, policy, stream = _upstream(task), _policy(39), np.random.default_rng(_SEED)

    def run() -> int:
        seen, _ = env.reset()
        for _ in range(_HORIZON):
            seen, *_ = env.step(policy.act(seen[None], stream.standard_normal((1, 4)))[0])
        return _HORIZON

    return Contestant('gymnasium', run, env.close)


def _vector(name: str, kind: Any) -> Contestant:
    tasks = ['reach', 'push', 'pick-place', 'door-open', 'drawer-open', 'drawer-close']
    tasks += ['button-press-topdown', 'peg-insert-side', 'window-open', 'window-close']
    env = kind(
        [lambda task=task: _upstream(task) for task in tasks],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    seen, _ = env.reset()
    return Contestant(name, _stepping(env, seen, _HORIZON), env.close)


def _envpool(task: str, workers: int) -> Contestant:
    """Return envpool's version of the task, which has reward v2 only."""
    name = ''.join(word.capitalize() for word in task.split('-'))
    env = envpool.make_gymnasium(
        f'MetaWorld/{name}-v3',
        num_envs=50,
        num_threads=workers,
        seed=_SEED,
        max_episode_steps=_HORIZON,
    )
    seen, _ = env.reset()
    return Contestant('envpool', _stepping(env, seen, _PEER_STEPS), env.close)


def _stepping(env: Any, seen: Array, steps: int) -> Callable[[], int]:
    """Return a function that steps a vector environment with policy and noise."""
    policy, stream = _policy(seen.shape[1]), np.random.default_rng(_SEED)

    def run() -> int:
        nonlocal seen
        for _ in range(steps):
            seen, *_ = env.step(policy.act(seen, stream.standard_normal((len(seen), 4))))
        return int(steps * len(seen))

    return run
