"""A method: single-task learning with a larger step by default."""

from dataclasses import dataclass

from lpgftw_ros.learning.config import setting
from lpgftw_ros.learning.methods.stl import Stl, StlConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class EagerConfig(StlConfig):
    """Settings of the method."""

    max_kl: float = setting(0.05, 'KL divergence allowed per step', min=1e-9, max=10.0)


class Eager(Stl):
    """Learn each task alone, in larger steps."""

    name = 'eager'
    config_type = EagerConfig
