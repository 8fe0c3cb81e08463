"""`lpgftw bench sampling`: how close sampling comes to the speed of the physics.

Ours takes turns with the bare physics on the same actions (`limit`) and with the vector
environments others use (the peers). MT10 is measured task by task; its rate is the harmonic mean,
10 / sum(1 / rate). A window is a whole rollout there, so half as many suffice.

`lpgftw bench ray`: workers of a Ray cluster on this machine take turns with as many local ones.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
import importlib
import json
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
import mujoco
from mujoco.rollout import Rollout as PhysicsThreads
import numpy as np

from lpgftw_ros import arguments
from lpgftw_ros.bench import best_rates, Contestant
from lpgftw_ros.domains.bodies.env import compile_body, RULES
from lpgftw_ros.domains.bodies.settings import BodySettings
from lpgftw_ros.domains.cluster import ClusterSampler, LOCAL, PATIENCE
from lpgftw_ros.domains.metaworld.settings import MetaWorldSettings
from lpgftw_ros.domains.rollout import collect
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite, Suite, TaskSpec
from lpgftw_ros.errors import LpgftwError, UnknownName
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import (
    ACTING_BLOCK,
    initial_head,
    initial_theta,
    PolicySnapshot,
    PolicySpec,
)

BODIES = {'halfcheetah': 'HalfCheetah-v5', 'hopper': 'Hopper-v5', 'walker2d': 'Walker2d-v5'}
"""Bodies and their environments in Gymnasium and envpool."""
DOMAINS = (*BODIES, 'mt10')
PYTHON_PEERS = ('gymnasium', 'sync', 'async')
_PER_TASK = ('ours', 'ours_10', 'limit', 'limit_10', 'gymnasium', 'envpool')
_BODY_HORIZON = 1000
_MT10_HORIZON = 150
_MT10_LAYERS = (32, 32)
_SEED = 0
_PEER_STEPS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--only', type=arguments.names, help=f'comma list of {", ".join(DOMAINS)}')
    parser.add_argument('--rounds', type=arguments.count, default=5, help='windows per contestant')
    parser.add_argument('--workers', type=arguments.workers, default=0, help='0: all cores')


def run(args: argparse.Namespace) -> int:
    """Measure and print control steps per second and their ratios."""
    through_ray = args.bench == 'ray'
    names = args.only or (('halfcheetah', 'mt10') if through_ray else DOMAINS)
    for name in names:
        if name not in DOMAINS:
            raise UnknownName('domain', name, DOMAINS)
    measure = measure_ray if through_ray else measure_physics
    results = {name: measure(name, args.rounds, args.workers) for name in names}
    print(json.dumps(results, indent=2) if args.json else _text(results))
    return 0


def _text(results: Mapping[str, Mapping[str, float]]) -> str:
    lines = []
    for name, values in results.items():
        lines.append(f'{name} (control steps/s, then ratios)')
        for key, value in values.items():
            digits = 2 if key.startswith(('ratio', 'empty')) else 0
            lines.append(f'  {key:<18}{value:>12.{digits}f}')
    return '\n'.join(lines)


def measure_physics(name: str, rounds: int, workers: int) -> dict[str, float]:
    """Return control steps/s of ours, of the limit and of every peer, and their ratios."""
    if name in BODIES:
        return measure_body(name, rounds, workers)
    return measure_mt10(rounds, workers)


def measure_ray(name: str, rounds: int, workers: int) -> dict[str, float]:
    """Return control steps/s of local and of Ray workers, their ratio, and what travels.

    `empty_ms` is what a rollout of one control step costs through Ray, one block per worker: all
    that is not simulation. Bytes are those of one rollout of the suite's published size.
    """
    body = TaskSpec('task', 'body', {'body': name}, _BODY_HORIZON) if name in BODIES else None
    suite = load_suite(name) if body is None else Suite('bench', (body,))
    hidden, rows = (_MT10_LAYERS, 50) if body is None else ((), 10)
    empty = TaskSpec('empty', 'body', {'body': 'hopper'}, 1)
    measured = [task.name for task in suite.tasks]
    suite = replace(suite, tasks=(*suite.tasks, empty))
    with Sampler(suite, workers) as local, ClusterSampler(suite, LOCAL, local.workers) as ray:
        ray.gather(ACTING_BLOCK * local.workers, PATIENCE)
        tasks = [_against_ray(local, ray, task, rows, hidden, rounds) for task in measured]
        n = ACTING_BLOCK * local.workers
        rate = best_rates([_ours(ray, 'empty', n, 'empty')], rounds)['empty']
        policy = _policy(*suite.tasks[0].dimensions, hidden)
        batch = ray.collect(measured[0], policy, rows, _SEED)
        workers = len(ray.nodes)
    rates = {k: len(tasks) / sum(1.0 / task[k] for task in tasks) for k in ('local', 'ray')}
    arrays = (getattr(batch, item.name) for item in fields(batch) if item.name != 'task')
    return {
        **rates,
        'ratio': rates['ray'] / rates['local'],
        'workers': workers,
        'rows': rows,
        'empty_ms': 1e3 * n / rate,
        'bytes_of_policy': policy.theta.nbytes + policy.head.nbytes + policy.log_std.nbytes,
        'bytes_of_trajectories': sum(array.nbytes for array in arrays),
    }


def _against_ray(
    local: Sampler,
    ray: ClusterSampler,
    task: str,
    rows: int,
    hidden: tuple[int, ...],
    rounds: int,
) -> dict[str, float]:
    """Measure one task, after a look at whether both ways give the same bytes."""
    policy = _policy(*local.suite.task(task).dimensions, hidden)
    rewards = [way.collect(task, policy, rows, _SEED).rewards.tobytes() for way in (local, ray)]
    if rewards[0] != rewards[1]:
        raise AssertionError(f'{task}: Ray workers gave other rewards than local ones')
    contestants = [
        _ours(local, task, rows, 'local', hidden),
        _ours(ray, task, rows, 'ray', hidden),
    ]
    return best_rates(contestants, rounds, window=0.6)


def measure_body(body: str, rounds: int, workers: int) -> dict[str, float]:
    """Return control steps/s of ours, of the limit and of every peer, and their ratios."""
    make = [lambda: gymnasium.make(BODIES[body])] * 50
    # Processes are forked before any thread is started.
    contestants = [_vector('async', AsyncVectorEnv, make)]
    tasks = [
        TaskSpec('task', 'body', {'body': body}, _BODY_HORIZON),
        TaskSpec('endless', 'body', {'body': body, 'terminate': False}, _BODY_HORIZON),
    ]
    with Sampler(Suite('bench', tuple(tasks)), workers) as sampler:
        for rows, suffix in ((50, ''), (10, '_10')):
            contestants.append(_ours(sampler, 'task', rows, f'ours{suffix}'))
            contestants.append(_body_limit(sampler, body, rows, f'limit{suffix}'))
        contestants += [
            _one(gymnasium.make(BODIES[body]), _PEER_STEPS),
            _vector('sync', SyncVectorEnv, make),
            _envpool(BODIES[body], sampler.workers),
        ]
        rates = _rates(contestants, rounds)
    peer = max(rates[name] for name in (*PYTHON_PEERS, 'envpool'))
    return {**rates, **_limit_ratios(rates), 'ratio_best_peer': rates['ours'] / peer}


def measure_mt10(rounds: int, workers: int) -> dict[str, float]:
    """Return control steps/s of ours, of the limit and of every peer, and their ratios."""
    names = load_suite('mt10').task_names
    # As upstream builds MT10: one environment per task.
    make = [lambda task=task: _upstream(task) for task in names]
    kinds = (('async', AsyncVectorEnv), ('sync', SyncVectorEnv))
    vectors = [_vector(name, kind, make, _MT10_HORIZON, _MT10_LAYERS) for name, kind in kinds]
    rates = _rates(vectors, rounds)
    with Sampler('mt10', workers) as sampler:
        tasks = [_measure_task(sampler, task, -(-rounds // 2)) for task in names]
    for name in _PER_TASK:
        rates[name] = len(tasks) / sum(1.0 / task[name] for task in tasks)
    ratios = {
        'ratio_upstream': rates['ours'] / rates['gymnasium'],
        'ratio_best_peer': rates['ours'] / max(rates[name] for name in PYTHON_PEERS),
        'ratio_envpool': rates['ours'] / rates['envpool'],
    }
    return {**rates, **_limit_ratios(rates), **ratios}


def _measure_task(sampler: Sampler, task: str, rounds: int) -> Mapping[str, float]:
    name = ''.join(word.capitalize() for word in task.split('-'))
    contestants = [
        _one(_upstream(task), _MT10_HORIZON, _MT10_LAYERS),
        # envpool's version of the task has reward v2 only
        _envpool(f'MetaWorld/{name}-v3', sampler.workers, _MT10_LAYERS, _MT10_HORIZON),
    ]
    for rows, suffix in ((50, ''), (10, '_10')):
        contestants.append(_ours(sampler, task, rows, f'ours{suffix}', _MT10_LAYERS))
        contestants.append(_mt10_limit(sampler, task, rows, f'limit{suffix}'))
    return _rates(contestants, rounds)


def _rates(contestants: list[Contestant], rounds: int) -> dict[str, float]:
    try:
        return best_rates(contestants, rounds)
    finally:
        for contestant in contestants:
            contestant.close()


def _limit_ratios(rates: Mapping[str, float]) -> dict[str, float]:
    return {f'ratio_limit{s}': rates[f'ours{s}'] / rates[f'limit{s}'] for s in ('', '_10')}


# -- ours, and the physics alone -----------------------------------------------------------


def _policy(obs_dim: int, act_dim: int, hidden: tuple[int, ...] = ()) -> PolicySnapshot:
    """Return a policy as a learner starts from: small mean, sigma 1."""
    spec, stream = PolicySpec(obs_dim, act_dim, hidden), np.random.default_rng(_SEED)
    theta, head = initial_theta(spec, stream), initial_head(spec, stream)
    return PolicySnapshot(spec, theta, head, np.zeros(act_dim))


def _ours(
    sampler: Sampler | ClusterSampler,
    task: str,
    rows: int,
    name: str,
    hidden: tuple[int, ...] = (),
) -> Contestant:
    policy = _policy(*sampler.suite.task(task).dimensions, hidden)
    return Contestant(name, lambda: sampler.collect(task, policy, rows, _SEED).n_steps)


def _body_limit(sampler: Sampler, body: str, rows: int, name: str) -> Contestant:
    """Return the physics alone: recorded actions, whole horizon, no policy, no end."""
    env = sampler.env('endless', rows)
    batch = collect(env, _policy(env.obs_dim, env.act_dim), rows, _SEED)
    env.reset(seed=_SEED)
    moved = [np.concatenate(env.joint_state(row)[1:]) for row in range(rows)]
    starts = np.insert(moved, 0, 0.0, axis=1)  # time, positions, velocities
    actions = batch.actions.reshape(rows, -1, env.act_dim)
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
    datas = [mujoco.MjData(model) for _ in range(workers)]

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


def _mt10_limit(sampler: Sampler, task: str, rows: int, name: str) -> Contestant:
    """Return the physics alone, through exactly the same states."""
    batch = collect(sampler.env(task, rows), _policy(6, 4, _MT10_LAYERS), rows, _SEED)
    settings = MetaWorldSettings.from_mapping(sampler.suite.task(task).settings)
    actions = batch.actions.reshape(rows, _MT10_HORIZON, 4)
    replay = PhysicsReplay(settings, actions, sampler.workers)
    replay.run()
    if not np.array_equal(replay.hands(), batch.final_observations[:, :3]):
        raise AssertionError(f'the limit of {task} went through other states')
    return Contestant(name, replay.run, replay.close)


class PhysicsReplay:
    """Bare `mj_step` and `mj_forward` of recorded actions, in threads."""

    def __init__(self, settings: MetaWorldSettings, actions: Array, workers: int) -> None:
        from lpgftw_ros.domains.metaworld import engine  # needs Meta-World

        sim = engine.engine(settings.task)
        scene = sim.build(settings.vectors()[0], settings.reward)
        self._kept = engine.STATE
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
            mujoco.mj_setState(self._model, data, self._state, self._kept)

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


# -- peers -----------------------------------------------------------------------------------


def _one(env: Any, steps: int, hidden: tuple[int, ...] = ()) -> Contestant:
    """Return a single environment of a peer, reset by hand."""
    seen, _ = env.reset(seed=_SEED)
    policy = _policy(len(seen), env.action_space.shape[0], hidden)
    stream = np.random.default_rng(_SEED)

    def run() -> int:
        nonlocal seen
        for _ in range(steps):
            noise = stream.standard_normal((1, policy.spec.act_dim))
            seen, _, terminated, truncated, _ = env.step(policy.act(seen[None], noise)[0])
            if terminated or truncated:
                seen, _ = env.reset()
        return steps

    return Contestant('gymnasium', run, env.close)


def _vector(
    name: str,
    kind: Any,
    make: Sequence[Callable[..., Any]],
    steps: int = _PEER_STEPS,
    hidden: tuple[int, ...] = (),
) -> Contestant:
    env = kind(make, autoreset_mode=AutoresetMode.SAME_STEP)
    seen, _ = env.reset(seed=_SEED)
    return Contestant(name, _stepping(env, seen, steps, hidden), env.close)


def _envpool(
    name: str, workers: int, hidden: tuple[int, ...] = (), horizon: int = _BODY_HORIZON
) -> Contestant:
    env = _peer('envpool').make_gymnasium(
        name, num_envs=50, num_threads=workers, seed=_SEED, max_episode_steps=horizon
    )
    seen, _ = env.reset()
    return Contestant('envpool', _stepping(env, seen, _PEER_STEPS, hidden), env.close)


def _upstream(task: str) -> Any:
    """Return Meta-World's own environment with reward v1 and a fixed goal."""
    upstream = _peer('metaworld.env_dict').ALL_V3_ENVIRONMENTS
    env = upstream[f'{task}-v3'](reward_function_version='v1')
    env._set_task_called, env._partially_observable = True, False
    env._freeze_rand_vec = True
    env._last_rand_vec = np.array(MetaWorldSettings(task=task).vectors()[0])
    env.__dict__.pop('sawyer_observation_space', None)
    return gymnasium.wrappers.TimeLimit(env, _MT10_HORIZON)


def _peer(module: str) -> Any:
    """Return a module that only this bench needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LpgftwError(f'a peer is not installed: {error} (see requirements-dev.txt)') from None


def _stepping(env: Any, seen: Array, steps: int, hidden: tuple[int, ...]) -> Callable[[], int]:
    """Return a function that steps a vector environment with policy and noise."""
    rows, act_dim = len(seen), env.action_space.shape[-1]
    policy, stream = _policy(seen.shape[1], act_dim, hidden), np.random.default_rng(_SEED)

    def run() -> int:
        nonlocal seen
        for _ in range(steps):
            seen, *_ = env.step(policy.act(seen, stream.standard_normal((rows, act_dim))))
        return int(steps * rows)

    return run
