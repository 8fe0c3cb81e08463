"""The same policy on the mocap simulator and on the joint-level arm, with the same noise."""

from dataclasses import dataclass

import numpy as np

from lpgftw_ros.deploy.arm_plant import PlantSettings
from lpgftw_ros.deploy.observation import ControlSettings
from lpgftw_ros.deploy.rehearsal import RehearsalEnv
from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.rollout import collect
from lpgftw_ros.domains.sampler import make_env
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.learning.policies import PolicySnapshot

JOINT_NOISE_PER_METRE = 1.6
"""rad of joint noise that moves the hand by 1 m (root mean square per axis) at (0, 0.6, 0.2)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Success with the same noise in both worlds."""

    task: str
    episodes: int
    mocap: float
    """Share of episodes solved on the mocap simulator."""
    arm: float
    """Share solved on the joint-level arm."""
    stopped: int
    """Arm episodes the guard ended."""
    interventions: int
    """Everything the guard counted in all arm episodes."""
    arm_steps: int
    """Control steps per arm episode."""


def mocap_success(
    task: TaskSpec, policy: PolicySnapshot, episodes: int, noise: float, seed: int
) -> float:
    """Return the share of solved episodes on the mocap simulator, observations noisy (m)."""
    pool, random = WorkerPool(workers=1), np.random.default_rng(seed)
    env = make_env(task, episodes, pool)
    try:
        seen, _ = env.reset(seed=seed)
        solved = np.zeros(episodes, dtype=bool)
        for _ in range(env.horizon):
            actions = policy.act(seen + noise * random.standard_normal(seen.shape))
            seen, _, _, _, infos = env.step(actions)
            solved |= infos['success']
    finally:
        env.close()
        pool.close()
    return float(np.mean(solved))


def compare(
    task: TaskSpec,
    policy: PolicySnapshot,
    *,
    control: ControlSettings,
    episodes: int = 20,
    noise: float = 1e-3,
    latency: float = 0.02,
    seed: int = 0,
) -> Comparison:
    """Run a policy in both worlds."""
    links = PlantSettings(
        latency=latency, joint_noise=JOINT_NOISE_PER_METRE * noise, object_noise=noise
    )
    env = RehearsalEnv(task, control=control, plant=links)
    solved, stopped, interventions = [], 0, 0
    for episode in range(episodes):
        batch = collect(env, policy, 1, seed + episode, explore=False, task_name=task.name)
        solved.append(bool(batch.success[0]))
        stopped += int(batch.failed[0])
        interventions += env.safety.count
    return Comparison(
        task=task.name,
        episodes=episodes,
        mocap=mocap_success(task, policy, episodes, noise, seed),
        arm=float(np.mean(solved)),
        stopped=stopped,
        interventions=interventions,
        arm_steps=env.horizon,
    )
