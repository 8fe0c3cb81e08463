"""Running the policies of a run folder again."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.learning.randomness import ExplorationNoise
from lpgftw_ros.runs.config import LoopConfig
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.knowledge_files import load_knowledge
from lpgftw_ros.runs.visits import evaluation_seed


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a policy did on its task."""

    task: str
    episodes: int
    return_mean: float
    return_std: float
    success: float
    steps: int


def evaluate_run(
    run: Path,
    *,
    tasks: tuple[str, ...] = (),
    episodes: int | None = None,
    stochastic: bool = False,
    seed: int | None = None,
    workers: int = 0,
) -> Iterator[Evaluation]:
    """Evaluate the policies of a run, by default as the run itself did at its end."""
    config, knowledge = read_config(run), load_knowledge(run)
    if episodes is not None and episodes < 1:
        raise InvalidConfig(f'episodes must be at least 1, got {episodes}')
    policies = [(task, knowledge.policy(task)) for task in tasks or tuple(knowledge.tasks)]
    with Sampler(config.suite, workers) as sampler:
        for task, policy in policies:
            fixed = sampler.suite.task(task).deterministic_resets
            n = episodes or _usual_episodes(config.loop, fixed, stochastic)
            rollout_seed = evaluation_seed(config.loop.seed if seed is None else seed, task)
            batch = sampler.collect(task, policy, n, rollout_seed, explore=stochastic)
            yield Evaluation(
                task=task,
                episodes=n,
                return_mean=float(np.mean(batch.returns)),
                return_std=float(np.std(batch.returns)),
                success=float(np.mean(batch.success)),
                steps=batch.n_steps,
            )


def _usual_episodes(loop: LoopConfig, fixed: bool, stochastic: bool) -> int:
    """Return how many episodes the run itself took; `fixed` says that all begin alike."""
    if stochastic and loop.stochastic_episodes:
        return loop.stochastic_episodes
    return 1 if fixed and not stochastic else loop.evaluation_episodes


def record_video(
    env: TaskVectorEnv, policy: PolicySnapshot, path: Path, *, seed: int, stochastic: bool
) -> None:
    """Write one episode as a video."""
    import imageio.v2 as imageio

    rollout = Rollout(env, 1, seed, path.stem)
    noise = ExplorationNoise(seed, 1, policy.spec.act_dim) if stochastic else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        video: Any
        with imageio.get_writer(path, fps=40, macro_block_size=None) as video:
            while not rollout.done:
                if rollout.step % 2 == 0:
                    video.append_data(env.render_frame())
                sample = None if noise is None else noise.at(rollout.step)
                rollout.advance(policy.act(rollout.observations, sample))
    except (OSError, ValueError) as error:
        raise LpgftwError(f'cannot write the video {path}: {error}') from error
