"""Learn single tasks from saved knowledge, several draws each, and write down their curves.

    python results/adaptive/branch.py --knowledge RUN --variant both --tasks drawer-open,door-open

RUN is a run folder of `lpg-ftw`, or a knowledge file; every variant starts from what it knows of its
first --keep tasks, STL from nothing; without --knowledge all do. A variant may have further settings,
`stl+value_scaling=true+value_epochs=1`. One line per (variant, task, draw) is appended to --out;
lines that are there already are skipped.
"""

import argparse
from dataclasses import replace
import json
from pathlib import Path

from lpgftw_ros.domains.sampler import Sampler

# isort: split
import numpy as np
from zero_shot import shared_head

from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.learning.registry import make_learner
from lpgftw_ros.learning.serialise import pack_names, pack_text
from lpgftw_ros.runs.checkpoints import read_shared
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.options import key_value

SCALED: dict[str, object] = {'value_scaling': True, 'value_epochs': 2}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    'stl': ('stl', {}),
    'stl-damped': ('stl', {'cg_damping': 0.01}),
    'lpg-ftw': ('lpg-ftw', {}),
    'residual': ('lpg-ftw-adaptive', {'std_start': 'one'}),
    'damping': (
        'lpg-ftw-adaptive',
        {'std_start': 'one', 'residuals': 'columns', 'cg_damping': 0.01},
    ),
    'both': ('lpg-ftw-adaptive', {'std_start': 'one', 'cg_damping': 0.01}),
    'head': ('lpg-ftw-adaptive', {'std_start': 'one', 'cg_damping': 0.01}),
    'both-sigma': ('lpg-ftw-adaptive', {'std_start': 'mean', 'cg_damping': 0.01}),
    'both-latest': (
        'lpg-ftw-adaptive',
        {'std_start': 'one', 'cg_damping': 0.01, 'coefficient_start': 'latest'},
    ),
    'relative-0.01': ('lpg-ftw-adaptive', {'std_start': 'one', 'relative_damping': 0.01}),
    'relative-0.1': ('lpg-ftw-adaptive', {'std_start': 'one', 'relative_damping': 0.1}),
    'relative-0.3': ('lpg-ftw-adaptive', {'std_start': 'one', 'relative_damping': 0.3}),
    'stl-relative': ('stl', {'relative_damping': 0.1}),
    'stl-scaled': ('stl', SCALED),
    'lpg-ftw-scaled': ('lpg-ftw', SCALED),
    'residual-scaled': ('lpg-ftw-adaptive', {'std_start': 'one', **SCALED}),
    'both-scaled': ('lpg-ftw-adaptive', {'std_start': 'one', 'cg_damping': 0.01, **SCALED}),
}


def main() -> None:
    """Run what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--suite', default='mt10')
    parser.add_argument('--knowledge', type=Path)
    parser.add_argument('--keep', type=int, default=3, help='tasks whose knowledge is used')
    parser.add_argument('--variant', required=True, help=', '.join(VARIANTS))
    parser.add_argument('--tasks', required=True)
    parser.add_argument('--draws', default='1,2,3,4')
    parser.add_argument('--iterations', type=int, default=40)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--batches', type=Path, help='folder for every batch of a single task')
    args = parser.parse_args()
    there = set()
    if args.out.exists():
        rows = [json.loads(line) for line in args.out.read_text().splitlines()]
        there = {(row['variant'], row['task'], row['draw']) for row in rows}
    with Sampler(args.suite, 1) as sampler:
        for draw in (int(text) for text in args.draws.split(',')):
            for variant in args.variant.split(','):
                for task in args.tasks.split(','):
                    if (variant, task, draw) in there:
                        continue
                    learner = branch(args, variant, sampler, draw)
                    curve = learn(learner, sampler, task, draw, args, variant == 'head')
                    row = {'variant': variant, 'task': task, 'draw': draw, **curve}
                    with args.out.open('a') as file:
                        file.write(json.dumps(row) + '\n')


def branch(args: argparse.Namespace, variant: str, sampler: Sampler, draw: int) -> Learner:
    """Return a learner that has the saved knowledge."""
    start, *more = variant.split('+')
    name, settings = VARIANTS[start]
    config = resolve(args.suite, name, overrides=settings | dict(map(key_value, more)))
    first = sampler.suite.tasks[0]
    spec = PolicySpec(*first.dimensions, config.hidden)
    seed = derive_seed(draw, Purpose.POLICY_INIT)
    learner = make_learner(name, spec, config.method, seed=seed)
    if args.knowledge is not None and name != 'stl':
        shared = read_shared(args.knowledge)[0]
        if name == 'lpg-ftw-adaptive' and 'base/signatures' not in shared:
            nothing = pack_names([])
            shared['base/learner'] = pack_text(name)
            names = ('earned', 'best', 'present', 'signatures', 'pending')
            shared |= {f'base/{name}': nothing for name in names}
        learner.adopt(shared)
        for task in list(learner.knowledge().tasks)[args.keep :]:
            learner.forget_task(task)
    return learner


def learn(
    learner: Learner,
    sampler: Sampler,
    task: str,
    draw: int,
    args: argparse.Namespace,
    shared: bool,
) -> dict[str, list[float]]:
    """Learn one task, maybe from a shared head; return return and success of every batch."""
    config = resolve(str(sampler.suite.name), 'stl')
    learner.start_task(task, seed=derive_seed(draw, Purpose.POLICY_INIT, 0))
    if shared:
        knowledge, shown = learner.knowledge(), []
        for other, known in learner._memory.signatures.items():
            shown.append((known.observations, knowledge.policy(other).act(known.observations)))
        head = shared_head(learner._running_policy(), shown, 1.0)
        factors = replace(learner._run.factors, head=head)
        learner._run = replace(learner._run, factors=factors)
    returns, success = [], []
    for i in range(args.iterations):
        policy = learner.knowledge().compose(learner.factors())
        seed = derive_seed(draw, Purpose.TRAIN, 0, i)
        batch = sampler.collect(task, policy, config.loop.trajectories, seed, True)
        if args.batches is not None:
            write(args.batches / f'{task}-{draw}-{i:03d}.npz', batch, policy)
        returns.append(round(float(batch.returns.mean()), 3))
        success.append(round(float(batch.success.mean()), 3))
        learner.improve(batch)
        learner.fit_values()
    return {'returns': returns, 'success': success}


def write(path: Path, batch: Batch, policy: PolicySnapshot) -> None:
    """Keep a batch and the policy that made it, for `step_quality.py`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        obs=batch.observations,
        act=batch.actions,
        rew=batch.rewards,
        lengths=batch.lengths,
        success=batch.success,
        theta=policy.theta,
        head=policy.head,
        log_std=policy.log_std,
    )


if __name__ == '__main__':
    main()
