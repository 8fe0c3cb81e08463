"""How much of a step is signal: its gain on trajectories it has not seen, per root of KL.

Run `python results/adaptive/step_quality.py FOLDER --iterations 1,4,8 [--out FILE]`. FOLDER has
the batches that `branch.py --keep FOLDER` wrote. Value functions are fitted to the batches in
order, each in its own way. At the iterations asked for the trajectories are halved at random. One
half gives the direction x = (F + c I)^-1 g, with the advantages of a value function; the other
gives the gradient m of the Monte Carlo return, which needs none. The gain is m'x / sqrt(x'Fx).
"""

import argparse
import json
from pathlib import Path
import sys

from lpgftw_ros.learning.registry import make_learner as make_learner

# isort: split
import numpy as np

from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.policies import forward, PolicySnapshot, PolicySpec, surrogate_gradient
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.steps import conjugate_gradient, Coordinates, curvature_along, Fisher
from lpgftw_ros.learning.values import (
    advantages,
    discounted_returns,
    relative_error,
    value_features,
    ValueFunction,
    whiten,
)

FITS: dict[str, dict[str, float]] = {
    'published': {'epochs': 10, 'learning_rate': 1e-3},
    'scaled, 2 epochs': {'epochs': 2, 'learning_rate': 1e-3, 'scaled': True},
    'scaled, 1 epoch': {'epochs': 1, 'learning_rate': 3e-4, 'scaled': True},
}
DAMPINGS = ('0.0001', '0.01', '0.1 relative', '1 relative')
SPLITS, GAMMA, GAE = 3, 0.995, 0.97


def main() -> None:
    """Print one line per iteration and value fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--iterations', default='1,4,8,12,16,20')
    parser.add_argument('--hidden', default='32,32')
    parser.add_argument('--out', type=Path)
    args = parser.parse_args()
    wanted = {int(text) for text in args.iterations.split(',')}
    files = sorted(args.folder.glob('*.npz'))[: max(wanted) + 1]
    hidden = tuple(int(width) for width in args.hidden.split(','))
    values: dict[str, ValueFunction] = {}
    for i, file in enumerate(files):
        batch, policy = load(file, hidden)
        features = value_features(batch.observations, batch.step_in_trajectory)
        targets = discounted_returns(batch, GAMMA)
        for name, fit in FITS.items():
            start = generator(1, Purpose.VALUE_INIT)
            one = values.setdefault(name, ValueFunction.create(policy.spec.obs_dim, start))
            if i in wanted:
                predicted = one.predict(features)
                row = {
                    'iteration': i,
                    'return': round(float(np.mean(batch.returns)), 1),
                    'fit': name,
                    'unexplained': round(relative_error(predicted, targets), 3),
                    'gain': gains(batch, policy, predicted, targets),
                }
                line = json.dumps(row)
                sys.stdout.write(line + '\n')
                if args.out is not None:
                    with args.out.open('a') as out:
                        out.write(line + '\n')
            one.fit(features, targets, generator(1, Purpose.VALUE_FIT, i), **fit)


def load(file: Path, hidden: tuple[int, ...]) -> tuple[Batch, PolicySnapshot]:
    """Return a kept batch and the policy that made it."""
    kept = np.load(file)
    n = len(kept['lengths'])
    no = np.zeros(n, bool)
    batch = Batch(
        task='kept',
        observations=kept['obs'],
        actions=kept['act'],
        rewards=kept['rew'],
        lengths=kept['lengths'],
        terminated=no,
        truncated=~no,
        success=kept['success'],
        failed=no,
        final_observations=np.zeros((n, kept['obs'].shape[1])),
    )
    spec = PolicySpec(kept['obs'].shape[1], kept['act'].shape[1], hidden)
    return batch, PolicySnapshot(spec, kept['theta'], kept['head'], kept['log_std'])


def gains(
    batch: Batch, policy: PolicySnapshot, predicted: Array, targets: Array
) -> dict[str, float]:
    """Return the gain of a step for each damping, mean over halves."""
    at = forward(policy, batch.observations)
    spec, n = policy.spec, batch.n_trajectories
    coordinates = Coordinates(spec, np.zeros((spec.n_parameters, 0)), free=True)
    product = coordinates.fisher(Fisher(policy, at))
    estimated = whiten(advantages(batch, predicted, None, gamma=GAMMA, gae_lambda=GAE))
    by_step = targets.reshape(n, -1)
    monte_carlo = ((by_step - by_step.mean(axis=0)) / (by_step.std() + 1e-6)).ravel()

    def per_trajectory(weights: Array) -> Array:
        rows = []
        for start, length in zip(batch.starts, batch.lengths, strict=True):
            part = slice(int(start), int(start + length))
            g = surrogate_gradient(policy, at.rows(part), batch.actions[part], weights[part])
            rows.append(np.concatenate((g.log_std, g.theta, g.head)))
        return np.array(rows)

    own, held_out = per_trajectory(estimated), per_trajectory(monte_carlo)
    relative = curvature_along(product, own.mean(axis=0))
    found = {}
    sizes = (1e-4, 1e-2, 0.1 * relative, relative)
    for name, damping in zip(DAMPINGS, sizes, strict=True):
        measured = []
        for split in range(SPLITS):
            halves = np.array_split(np.random.default_rng(split).permutation(n), 2)
            for one, other in (halves, halves[::-1]):
                g = own[one].mean(axis=0)
                x = conjugate_gradient(product, g, iterations=10, damping=damping)
                measured.append(held_out[other].mean(axis=0) @ x / np.sqrt(x @ product(x)))
        found[name] = round(float(np.mean(measured)), 4)
    return found


if __name__ == '__main__':
    main()
