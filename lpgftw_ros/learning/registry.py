"""All learners by name."""

from collections.abc import Mapping
from typing import Any

from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.base_learner import BaseLearner
from lpgftw_ros.learning.baselines.ewc import Ewc, EwcConfig
from lpgftw_ros.learning.baselines.pg_ella import PgElla, PgEllaConfig
from lpgftw_ros.learning.baselines.replay import Replay, ReplayConfig
from lpgftw_ros.learning.baselines.stl import Stl, StlConfig
from lpgftw_ros.learning.config import configure, TrainingConfig
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.learning.lpg_ftw import LpgFtw
from lpgftw_ros.learning.lpg_ftw_config import LpgFtwConfig
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

LEARNERS: dict[str, tuple[type[TrainingConfig], type[BaseLearner]]] = {
    'lpg-ftw': (LpgFtwConfig, LpgFtw),
    'stl': (StlConfig, Stl),
    'ewc': (EwcConfig, Ewc),
    'er': (ReplayConfig, Replay),
    'pg-ella': (PgEllaConfig, PgElla),
}
"""Name of each method: the dataclass of its settings and its class."""


def make_learner(
    name: str,
    spec: PolicySpec,
    config: TrainingConfig | Mapping[str, Any] | None = None,
    seed: int = 0,
    *,
    source: Mapping[str, PolicySnapshot] | None = None,
) -> Learner:
    """Return a learner that has seen no task yet.

    Args:
        name: One of `LEARNERS`.
        spec: Shape of its policies.
        config: Its settings, or overrides of their defaults.
        seed: Root of the random numbers that belong to no single task.
        source: Finished STL policies by task; `pg-ella` needs them, no other method takes them.
    """
    if name not in LEARNERS:
        raise UnknownName('learner', name, LEARNERS)
    config_type, learner_type = LEARNERS[name]
    if not isinstance(config, TrainingConfig):
        config = configure(config_type, config or {})
    if not isinstance(config, config_type):
        raise InvalidConfig(f'{name} takes {config_type.__name__}, got {type(config).__name__}')
    if (source is not None) != (learner_type is PgElla):
        raise InvalidConfig('finished STL policies belong to pg-ella, which cannot do without')
    if source is not None:
        return learner_type(spec, config, seed, source)  # type: ignore[call-arg]
    return learner_type(spec, config, seed)
