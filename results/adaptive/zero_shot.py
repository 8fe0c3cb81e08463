"""How near a head that earlier tasks agree on brings the hand to the object, before any learning.

Run `python results/adaptive/zero_shot.py results/knowledge/mt10.safetensors`. For the first 3, 5, 7
and 9 tasks of the file and each task after them: mean return and nearest distance of hand and
object with a fresh head and with `shared_head`, six trajectories with sigma one each.
"""

import argparse
from pathlib import Path

from lpgftw_ros.domains.sampler import Sampler

# isort: split
import numpy as np

from lpgftw_ros.learning.adaptive.recognise import STEPS
from lpgftw_ros.learning.policies import (
    forward,
    initial_head,
    initial_theta,
    pad,
    PolicySnapshot,
    with_one,
)
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.runs.checkpoints import knowledge_of, read_shared

TRAJECTORIES, SEED = 6, 3


def main() -> None:
    """Print the table and what it comes to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('knowledge', type=Path)
    parser.add_argument('--suite', default='mt10')
    parser.add_argument('--steps', type=int, default=STEPS, help='observations of each task')
    args = parser.parse_args()
    knowledge = knowledge_of(read_shared(args.knowledge)[0])
    tasks, spec, k = list(knowledge.tasks), knowledge.spec, knowledge.basis.shape[1]
    ratios = []
    print('| tasks known | task | return, fresh | shared | nearest, fresh | shared |')
    print('|---' * 6 + '|')
    with Sampler(args.suite, 1) as sampler:

        def run(theta, head, task):
            policy = PolicySnapshot(spec, theta, head, np.zeros(spec.act_dim))
            batch = sampler.collect(task, policy, TRAJECTORIES, SEED, True)
            seen = batch.observations.reshape(TRAJECTORIES, -1, spec.obs_dim)
            gap = np.linalg.norm(seen[..., :3] - seen[..., 3:6], axis=2)
            return float(batch.returns.mean()), float(gap.min(axis=1).mean())

        own = {}
        for task in tasks:
            policy = knowledge.policy(task)
            seen = sampler.collect(task, policy, 1, SEED, False).observations[: args.steps]
            own[task] = seen, policy.act(seen)
        for known in (3, 5, 7, 9):
            coefficients = [pad(knowledge.tasks[t].coefficients, k) for t in tasks[:known]]
            theta = knowledge.basis @ np.mean(coefficients, axis=0)
            rng = generator(1, Purpose.POLICY_INIT)
            initial_theta(spec, rng)
            fresh = initial_head(spec, rng)
            at = PolicySnapshot(spec, theta, fresh, np.zeros(spec.act_dim))
            head = shared_head(at, [own[t] for t in tasks[:known]], 1.0)
            for task in tasks[known:]:
                before, after = run(theta, fresh, task), run(theta, head, task)
                ratios.append(after[1] / before[1])
                print(
                    f'| {known} | {task} | {before[0]:,.0f} | {after[0]:,.0f} '
                    f'| {before[1]:.3f} | {after[1]:.3f} |'
                )
    print(f'\nnearer in {sum(r < 1.0 for r in ratios)} of {len(ratios)}, ', end='')
    print(f'distance times {np.exp(np.mean(np.log(ratios))):.2f} on average')


def shared_head(policy, shown, lam):
    """Return the head on a policy's features that acts most like other policies.

    `shown` has their observations x and mean actions mu. The least squares with a penalty,
    min_h sum |h phi(x) - mu(x)|^2 + lam |h|^2, actions cut at one sigma, so that a few iterations
    can unlearn it.
    """
    obs, actions = (np.concatenate(each) for each in zip(*shown, strict=True))
    phi = with_one(forward(policy, obs).hidden[-1])
    reach = np.exp(policy.log_std)
    W = np.linalg.solve(
        phi.T @ phi + lam * np.eye(phi.shape[1]), phi.T @ np.clip(actions, -reach, reach)
    )
    return np.concatenate((W[:-1].T.ravel(), W[-1]))


if __name__ == '__main__':
    main()
