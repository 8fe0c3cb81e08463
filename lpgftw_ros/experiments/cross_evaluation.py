"""Run every policy of a run on every task of it."""

from pathlib import Path

import numpy as np

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.experiments.diversity import CrossReturns, write_cross_returns
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.knowledge_files import load_knowledge
from lpgftw_ros.runs.visits import evaluation_seed


def measure_cross_returns(run: Path, *, episodes: int = 3, workers: int = 0) -> CrossReturns:
    """Run every policy of a run on every task and keep the result in the run folder."""
    config, knowledge = read_config(run), load_knowledge(run)
    tasks = tuple(knowledge.tasks)
    returns = np.empty((len(tasks), len(tasks)))
    with Sampler(config.suite, workers) as sampler:
        for j, task in enumerate(tasks):
            n = 1 if sampler.suite.task(task).deterministic_resets else episodes
            seed = evaluation_seed(config.loop.seed, task)
            for i, owner in enumerate(tasks):
                policy = knowledge.policy(owner)
                batch = sampler.collect(task, policy, n, seed, explore=False)
                returns[i, j] = float(np.mean(batch.returns))
    found = CrossReturns(tasks, returns)
    write_cross_returns(run, found)
    return found
