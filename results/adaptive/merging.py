"""Columns over a long lifetime with a small budget, and what old tasks lose when columns merge.

Run `python results/adaptive/merging.py [--tasks 20] [--columns 3] [--seed 1]`. The tasks are those
of `family.py`, with other goals on the circle. One line per task: columns before and after, what a
merge changed in theta, and the largest loss of an old task by the whole end of the task (merge,
update of L, guard), by the mean action as a share of its return.
"""

import argparse

import family
from family import answer_probes, collect, COMMON, evaluate, SPEC

from lpgftw_ros.learning.adaptive import learner as adaptive

# isort: split
import numpy as np

from lpgftw_ros.learning.policies import compose
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.learning.registry import make_learner


def main() -> None:
    """Learn the tasks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--tasks', type=int, default=20)
    parser.add_argument('--columns', type=int, default=3)
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    family.N_TASKS = args.tasks
    moved: list[float] = []
    watch_merges(moved)
    settings = {'columns': 'paying', 'max_columns': args.columns, 'cg_damping': 0.01}
    root = derive_seed(args.seed, Purpose.POLICY_INIT)
    learner = make_learner('lpg-ftw-adaptive', SPEC, {**COMMON, **settings}, root)
    world = family.goals(args.seed)
    print('| task | columns | change of theta by growing or merging | largest loss | tune |')
    print('|---' * 5 + '|')
    for visit, (task, goal) in enumerate(world.items()):
        learner.start_task(task, seed=derive_seed(args.seed, Purpose.POLICY_INIT, visit))
        answer_probes(learner, world, args.seed)
        for i in range(family.ITERATIONS):
            policy = learner.knowledge().compose(learner.factors())
            own = derive_seed(args.seed, Purpose.TRAIN, visit, i)
            learner.improve(collect(goal, task, policy, family.TRAJECTORIES, own, True))
            learner.fit_values()
        policy = learner.knowledge().compose(learner.factors())
        before = {**scores(learner, world), task: evaluate(goal, task, policy)}
        columns, moved[:] = learner.knowledge().basis.shape[1], []
        own = derive_seed(args.seed, Purpose.UPDATE, visit)
        learner.finish_task(collect(goal, task, policy, 10, own, True))
        answer_probes(learner, world, args.seed)
        after = scores(learner, world)
        loss = max((before[t] - after[t]) / abs(before[t]) for t in before)
        change = f'{moved[0]:.1e}' if moved else '-'
        now = learner.knowledge().basis.shape[1]
        print(
            f'| {visit + 1} | {columns} to {now} | {change} | {loss:+.3f} | {before[task]:.2f} |'
        )
    final = scores(learner, world)
    print(f'\nmean return at the end {np.mean(list(final.values())):.2f}')


def scores(learner: adaptive.AdaptiveLpgFtw, world: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the return of every finished task by its mean action."""
    knowledge = learner.knowledge()
    done = [task for task in knowledge.tasks if task != learner.running]
    return {task: evaluate(world[task], task, knowledge.policy(task)) for task in done}


def watch_merges(moved: list[float]) -> None:
    """Note how far each regrouping moves any theta, relative to its length."""
    regroup = adaptive.regrouped

    def watched(basis, factors, task, H, **budget):
        new = regroup(basis, factors, task, H, **budget)
        if new is not None:
            steps = []
            for t, f in factors.items():
                old = compose(basis, f)
                theta = new.basis @ new.coefficients[t] + new.residuals[t]
                steps.append(np.linalg.norm(theta - old) / np.linalg.norm(old))
            moved.append(float(max(steps)))
        return new

    adaptive.regrouped = watched


if __name__ == '__main__':
    main()
