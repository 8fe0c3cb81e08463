"""Which run the learner's parameters ask for; no ROS in here, so bring-up can check it first."""

from collections.abc import Container
from dataclasses import fields
from pathlib import Path
from typing import Any

from lpgftw_ros.nodes.parameters import AS_PRESET, LearnerConfig
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.options import default_out, key_value, RunOptions


def run_settings(
    config: LearnerConfig, given: Container[str] | None = None
) -> tuple[RunConfig, Path]:
    """Return the run's configuration and folder from the node's parameters.

    A run that is resumed keeps its configuration; parameters that were `given` may not differ
    from it. If it is not known which were, those are meant that do not have their default.
    """
    out = Path(config.out)
    if config.resume and config.out and (out / 'config.yaml').exists():
        known = _changed(config) if given is None else given
        return _options(config, known).continued(read_config(out)), out
    run_config = _options(config, [item.name for item in fields(config)]).new_run()
    return run_config, out if config.out else default_out(run_config)


def _changed(config: LearnerConfig) -> list[str]:
    return [item.name for item in fields(config) if getattr(config, item.name) != item.default]


def _options(config: LearnerConfig, given: Container[str]) -> RunOptions:
    """Return what the given parameters ask of a run."""
    settings: dict[str, Any] = {}
    if 'settings' in given:
        settings |= (key_value(text) for text in config.settings.split(';') if text.strip())
    for name in ('seed', 'iterations', 'trajectories'):
        if name in given and getattr(config, name) != AS_PRESET:
            settings[name] = getattr(config, name)
    return RunOptions(
        suite=config.suite if 'suite' in given else None,
        learner=config.learner if 'learner' in given else None,
        tasks=config.tasks or None if 'tasks' in given else None,
        preset=config.preset if 'preset' in given else None,
        settings=settings,
    )
