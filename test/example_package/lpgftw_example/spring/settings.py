"""Settings of a spring: how stiff it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpgftw_ros.domains.suites import Traits
from lpgftw_ros.errors import InvalidConfig


def describe(settings: Mapping[str, Any], folder: Path | None = None) -> Traits:
    """Check the settings and return the traits of the task."""
    if not 0.0 < settings.get('stiffness', 0.0) < 100.0:
        raise InvalidConfig(f'stiffness must be between 0 and 100, got {settings!r}')
    return Traits(obs_dim=2, act_dim=1)
