"""Ablation on a family of small tasks that learns in seconds: drive a point to a goal by an MLP.

Run `python results/adaptive/family.py --seeds 1,2,3,4 [--variants both,stl]`. The point moves by
x' = 0.8 x + 0.2 tanh(u), the reward is -|x' - goal|; goals lie on a circle, eight tasks, three
columns, small KL steps as on Meta-World. Prints the mean return over all iterations of the tasks
after the third (area), when tuned, at the end, and each against STL with the same seed.
"""

import argparse
import json
from pathlib import Path
import sys

from lpgftw_ros.learning.registry import make_learner

# isort: split
import numpy as np

from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.learning.randomness import derive_seed, ExplorationNoise, Purpose

SPEC = PolicySpec(obs_dim=2, act_dim=2, hidden=(16, 16))
HORIZON, N_TASKS, K, ITERATIONS, TRAJECTORIES = 30, 8, 3, 40, 20
COMMON = {'max_kl': 0.01, 'value_epochs': 2}
OFF = {'guard_tolerance': 0.0, 'inherit_margin': 0.0}
RESIDUAL = {'std_start': 'one', **OFF}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    'stl': ('stl', {}),
    'stl, damping 0.01': ('stl', {'cg_damping': 0.01}),
    'stl, relative 0.1': ('stl', {'relative_damping': 0.1}),
    'lpg-ftw': ('lpg-ftw', {}),
    'lpg-ftw, relative 0.1': ('lpg-ftw', {'relative_damping': 0.1}),
    'residual': ('lpg-ftw-adaptive', RESIDUAL),
    'damping 0.01': (
        'lpg-ftw-adaptive',
        RESIDUAL | {'residuals': 'columns', 'cg_damping': 0.01},
    ),
    'both': ('lpg-ftw-adaptive', RESIDUAL | {'cg_damping': 0.01}),
    'residual, relative 0.01': ('lpg-ftw-adaptive', RESIDUAL | {'relative_damping': 0.01}),
    'residual, relative 0.1': ('lpg-ftw-adaptive', RESIDUAL | {'relative_damping': 0.1}),
    'residual, relative 0.3': ('lpg-ftw-adaptive', RESIDUAL | {'relative_damping': 0.3}),
    'residual, relative 1': ('lpg-ftw-adaptive', RESIDUAL | {'relative_damping': 1.0}),
    'both, sigma mean': ('lpg-ftw-adaptive', OFF | {'std_start': 'mean', 'cg_damping': 0.01}),
    'both, sigma measured': (
        'lpg-ftw-adaptive',
        OFF | {'std_start': 'measured', 'cg_damping': 0.01},
    ),
    'both, latest': (
        'lpg-ftw-adaptive',
        RESIDUAL | {'cg_damping': 0.01, 'coefficient_start': 'latest'},
    ),
    'both, paying': (
        'lpg-ftw-adaptive',
        RESIDUAL | {'cg_damping': 0.01, 'columns': 'paying'},
    ),
    'both, guard': (
        'lpg-ftw-adaptive',
        RESIDUAL | {'cg_damping': 0.01, 'guard_tolerance': 0.03},
    ),
}


def collect(
    goal: np.ndarray, task: str, policy: PolicySnapshot, n: int, seed: int, explore: bool
) -> Batch:
    """Sample trajectories, all rows at once."""
    noise = ExplorationNoise(seed, n, 2)
    x = 0.5 * np.random.default_rng(seed).standard_normal((n, 2))
    obs, actions = np.empty((n, HORIZON, 2)), np.empty((n, HORIZON, 2))
    rewards = np.empty((n, HORIZON))
    for step in range(HORIZON):
        u = policy.act(x, noise.at(step) if explore else None)
        obs[:, step], actions[:, step] = x, u
        x = 0.8 * x + 0.2 * np.tanh(u)
        rewards[:, step] = -np.linalg.norm(x - goal, axis=1)
    no = np.zeros(n, dtype=bool)
    return Batch(
        task=task,
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


def goals(seed: int) -> dict[str, np.ndarray]:
    """Return the goals in random order on a circle."""
    angles = 2.0 * np.pi * np.random.default_rng(seed).permutation(N_TASKS) / N_TASKS
    return {f't{i}': 0.8 * np.array([np.cos(a), np.sin(a)]) for i, a in enumerate(angles)}


def answer_probes(learner: Learner, world: dict[str, np.ndarray], seed: int) -> int:
    """Answer what the learner asks for; return the trajectories it took."""
    count = 0
    while (probe := learner.wants()) is not None:
        policy = learner.knowledge().compose(probe.factors)
        own = derive_seed(seed, Purpose.PROBE, int(probe.task[1:]), int(probe.explore))
        n = probe.n_trajectories
        batch = collect(world[probe.task], probe.task, policy, n, own, probe.explore)
        learner.probed(batch)
        count += n
    return count


def lifetime(name: str, settings: dict[str, object], seed: int) -> dict[str, list[float]]:
    """Learn all tasks; return area, tune and final return of each."""
    columns = {} if name == 'stl' else {'max_columns': K}
    root = derive_seed(seed, Purpose.POLICY_INIT)
    learner = make_learner(name, SPEC, {**COMMON, **columns, **settings}, root)
    world, areas, tuned = goals(seed), [], []
    for visit, (task, goal) in enumerate(world.items()):
        learner.start_task(task, seed=derive_seed(seed, Purpose.POLICY_INIT, visit))
        answer_probes(learner, world, seed)
        curve = []
        for i in range(ITERATIONS):
            policy = learner.knowledge().compose(learner.factors())
            own = derive_seed(seed, Purpose.TRAIN, visit, i)
            batch = collect(goal, task, policy, TRAJECTORIES, own, True)
            curve.append(float(np.mean(batch.returns)))
            learner.improve(batch)
            learner.fit_values()
        policy = learner.knowledge().compose(learner.factors())
        areas.append(float(np.mean(curve)))
        tuned.append(evaluate(goal, task, policy))
        own = derive_seed(seed, Purpose.UPDATE, visit)
        learner.finish_task(collect(goal, task, policy, 10, own, True))
        answer_probes(learner, world, seed)
    knowledge = learner.knowledge()
    final = [evaluate(goal, task, knowledge.policy(task)) for task, goal in world.items()]
    return {'area': areas, 'tune': tuned, 'final': final}


def evaluate(goal: np.ndarray, task: str, policy: PolicySnapshot) -> float:
    """Return the mean return of the mean action."""
    return float(np.mean(collect(goal, task, policy, 20, 1, False).returns))


def main() -> None:
    """Run what is not in the log yet and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', default='1,2,3,4')
    parser.add_argument('--variants', default=';'.join(VARIANTS), help='separated by ;')
    parser.add_argument('--log', type=Path, default=Path(__file__).with_name('family.jsonl'))
    args = parser.parse_args()
    lines = args.log.read_text().splitlines() if args.log.exists() else []
    found = {(row['variant'], row['seed']): row for row in map(json.loads, lines)}
    for seed in (int(text) for text in args.seeds.split(',')):
        for variant in args.variants.split(';'):
            if (variant, seed) in found:
                continue
            row = {'variant': variant, 'seed': seed, **lifetime(*VARIANTS[variant], seed)}
            found[variant, seed] = row
            with args.log.open('a') as file:
                file.write(json.dumps(row) + '\n')
            print(f'{variant} {seed}', file=sys.stderr, flush=True)
    table(list(found.values()))


def table(rows: list[dict]) -> None:
    """Print means over seeds, tasks after the third."""
    print('| variant | seeds | area | area - STL | ahead of STL | tune | final | final - tune |')
    print('|---' * 8 + '|')
    stl = {row['seed']: np.array(row['area'][K:]) for row in rows if row['variant'] == 'stl'}
    for variant in dict.fromkeys(row['variant'] for row in rows):
        mine = [row for row in rows if row['variant'] == variant and row['seed'] in stl]
        area = np.array([row['area'][K:] for row in mine])
        gain = area - np.array([stl[row['seed']] for row in mine])
        tune = np.array([row['tune'] for row in mine])
        final = np.array([row['final'] for row in mine])
        error = gain.mean(axis=1).std(ddof=1) / np.sqrt(len(mine)) if len(mine) > 1 else np.nan
        print(
            f'| {variant} | {len(mine)} | {area.mean():.2f} | {gain.mean():+.2f} ± {error:.2f} '
            f'| {np.mean(gain > 0.0):.0%} | {tune[:, K:].mean():.2f} | {final[:, K:].mean():.2f} '
            f'| {(final - tune).mean():+.2f} |'
        )


if __name__ == '__main__':
    main()
