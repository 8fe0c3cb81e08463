"""The tasks: suites, vector environments and samplers. Importing it starts no simulator."""

from typing import Any

import gymnasium
import numpy as np

from lpgftw_ros.domains.rollout import collect, Rollout
from lpgftw_ros.domains.sampler import make_env, Sampler
from lpgftw_ros.domains.suites import load_suite, Suite, suite_names, TaskSpec
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import SimulationFailed
from lpgftw_ros.learning.arrays import Array

# Our tasks under `lpgftw/...` ids of Gymnasium.
#
# `lpgftw/<suite>/<task>-v0` is too deep for Gymnasium's names, so each suite is one id and the
# task a keyword: `gymnasium.make_vec('lpgftw/mt10-v0', num_envs=50, task='reach')`.


_VERSION = 0


def env_id(suite: str) -> str:
    """Return the Gymnasium id of a suite."""
    return f'lpgftw/{suite}-v{_VERSION}'


def register_all() -> tuple[str, ...]:
    """Register every suite that comes with the package; may be called again."""
    for suite in suite_names():
        if env_id(suite) not in gymnasium.registry:
            here = 'lpgftw_ros.domains'
            gymnasium.register(
                id=env_id(suite),
                entry_point=f'{here}:make_single',
                vector_entry_point=f'{here}:make_vector',
                kwargs={'suite': suite},
                disable_env_checker=True,
                order_enforce=False,
            )
    return tuple(env_id(suite) for suite in suite_names())


def make_vector(
    suite: str,
    num_envs: int = 1,
    task: str | None = None,
    workers: int = 0,
    render_mode: str | None = None,
) -> TaskVectorEnv:
    """Return rows of a task (the first of the suite if none is named) with their own workers."""
    from lpgftw_ros.domains.sampler import make_env
    from lpgftw_ros.domains.workers import Workers

    tasks, pool = load_suite(suite), Workers(workers)
    env = make_env(tasks.task(task) if task else tasks.tasks[0], num_envs, pool)
    env.render_mode = render_mode
    env.own(pool)
    return env


class SingleTaskEnv(gymnasium.Env[Array, Array]):  # type: ignore[misc]
    """One row as a plain Gymnasium environment."""

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 20}  # noqa: RUF012

    def __init__(self, rows: TaskVectorEnv, render_mode: str | None = None) -> None:
        self._rows, self.render_mode = rows, render_mode
        self.observation_space = rows.single_observation_space
        self.action_space = rows.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        observations, infos = self._rows.reset(seed=seed, options=options)
        return observations[0], {key: value[0] for key, value in infos.items()}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Advance by one control step."""
        observations, rewards, terminated, truncated, infos = self._rows.step(
            np.asarray(action)[None]
        )
        info = {key: bool(value[0]) for key, value in infos.items()}
        if info['failed']:
            raise SimulationFailed('the simulator became unstable; reset the environment')
        result = (observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]))
        return *result, info

    def render(self) -> Any:
        """Return a picture if `render_mode` is 'rgb_array'."""
        return None if self.render_mode is None else self._rows.render_frame(0)

    def close(self) -> None:
        """Close the row and its workers."""
        self._rows.close()


def make_single(
    suite: str, task: str | None = None, render_mode: str | None = None
) -> SingleTaskEnv:
    """Return one row of a task as a plain environment, simulated by the caller."""
    return SingleTaskEnv(make_vector(suite, 1, task, workers=1), render_mode)


__all__ = [
    'Rollout',
    'Sampler',
    'Suite',
    'TaskSpec',
    'TaskVectorEnv',
    'collect',
    'load_suite',
    'make_env',
    'register_all',
    'suite_names',
]

register_all()
