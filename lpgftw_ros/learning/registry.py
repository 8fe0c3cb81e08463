"""All learners by name."""

from collections.abc import Mapping
from importlib import metadata
import logging
from typing import Any

from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.adaptive.config import AdaptiveConfig
from lpgftw_ros.learning.adaptive.learner import AdaptiveLpgFtw
from lpgftw_ros.learning.config import configure, TrainingConfig
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.learning.lifetime import LifelongLearner
from lpgftw_ros.learning.lpg_ftw import LpgFtw, LpgFtwConfig
from lpgftw_ros.learning.methods.ewc import Ewc, EwcConfig
from lpgftw_ros.learning.methods.pg_ella import PgElla, PgEllaConfig
from lpgftw_ros.learning.methods.replay import Replay, ReplayConfig
from lpgftw_ros.learning.methods.stl import Stl, StlConfig
from lpgftw_ros.learning.moments import Normalised
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

log = logging.getLogger(__name__)
LEARNERS: dict[str, tuple[type[TrainingConfig], type[LifelongLearner]]] = {
    'lpg-ftw': (LpgFtwConfig, LpgFtw),
    'lpg-ftw-adaptive': (AdaptiveConfig, AdaptiveLpgFtw),
    'stl': (StlConfig, Stl),
    'ewc': (EwcConfig, Ewc),
    'er': (ReplayConfig, Replay),
    'pg-ella': (PgEllaConfig, PgElla),
}
"""Name of each method: the dataclass of its settings and its class."""
ENTRY_POINTS = 'lpgftw.methods'
"""Group in which other installed packages name theirs: `name = "module:Class"`."""
_OWN = frozenset(LEARNERS)


def register_method(method: type, config: type[TrainingConfig] | None = None) -> str:
    """Make a method of your own known by its `name` and return it.

    `config` is the dataclass of its settings; default the class attribute `config_type`.
    """
    settings, name = config or getattr(method, 'config_type', None), getattr(method, 'name', '')
    if not name or settings is None:
        raise InvalidConfig(
            f'{method.__name__} needs a class attribute name, and config_type with its settings'
        )
    if name in _OWN:
        raise InvalidConfig(f"there is a method '{name}' already; choose another name")
    LEARNERS[name] = (settings, method)
    return str(name)


def _register_installed() -> None:
    """Register the methods of other packages; warn about one that cannot be loaded."""
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            register_method(point.load())
        except Exception as error:  # whatever another package raises
            log.warning('method %s of another package is left out: %s', point.name, error)


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
        raise InvalidConfig('pg-ella needs finished STL policies, and no other method takes them')
    if source is not None:
        return learner_type(spec, config, seed, source)  # type: ignore[call-arg]
    learner = learner_type(spec, config, seed)
    return Normalised(learner) if config.normalise else learner


_register_installed()
