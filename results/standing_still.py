"""Where the mean action of HalfCheetah policies loses its return: episodes that stand still.

Runs the evaluation episodes of a run again, with exploration for the first steps and the mean
action from then on:

    python results/standing_still.py runs/lpg-ftw
"""

from pathlib import Path
import sys

import numpy as np

from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.learning.randomness import ExplorationNoise
from lpgftw_ros.runs.checkpoints import load_knowledge
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.visits import evaluation_seed

NOISY_STEPS = (0, 20, 100)
LAST = 200
"""Control steps at the end of an episode that say how it moves."""
STILL = 0.05
"""m/s; slower is standing."""
PITCH, SPEED = 1, 8
"""Columns of the observation."""


def main(run: Path) -> None:
    """Print a row per task and noisy start, then how often the body lies on its back."""
    config, knowledge = read_config(run), load_knowledge(run)
    gaits = {'standing': [], 'on the back': [], 'upright': []}
    with Sampler(config.suite, 1) as sampler:
        for task in knowledge.tasks:
            policy = knowledge.policy(task)
            seed = evaluation_seed(config.loop.seed, task)
            words = []
            for noisy in NOISY_STEPS:
                n = config.loop.evaluation_episodes
                rollout = Rollout(sampler.env(task, n), n, seed, task)
                noise = ExplorationNoise(seed, n, policy.spec.act_dim)
                while not rollout.done:
                    sample = noise.at(rollout.step) if rollout.step < noisy else None
                    rollout.advance(policy.act(rollout.observations, sample))
                batch = rollout.batch()
                ends = batch.observations.reshape(n, -1, policy.spec.obs_dim)[:, -LAST:]
                still = np.abs(ends[:, :, SPEED].mean(axis=1)) < STILL
                back = np.cos(ends[:, :, PITCH]).mean(axis=1) < -0.5
                words.append(f'{batch.returns.mean():6.0f} ({still.sum()} still)')
                if noisy == 0:
                    gaits['standing'] += batch.returns[still].tolist()
                    gaits['on the back'] += batch.returns[~still & back].tolist()
                    gaits['upright'] += batch.returns[~still & ~back].tolist()
            print(f'{task:15s}', *words)
    for gait, returns in gaits.items():
        mean = f'{np.mean(returns):.0f}' if returns else '-'
        print(f'{gait}: {len(returns)} episodes, mean return {mean}')


if __name__ == '__main__':
    main(Path(sys.argv[1]))
