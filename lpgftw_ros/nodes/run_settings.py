"""Which run the learner's parameters ask for; no ROS in here, so bring-up can check it first."""

from pathlib import Path

from lpgftw_ros.nodes.parameters import AS_PRESET, LearnerConfig
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.options import default_out, key_value


def run_settings(config: LearnerConfig) -> tuple[RunConfig, Path]:
    """Return the run's configuration and folder from the node's parameters."""
    overrides = dict(key_value(text) for text in config.settings.split(';') if text.strip())
    for name in ('seed', 'iterations', 'trajectories'):
        if getattr(config, name) != AS_PRESET:
            overrides[name] = getattr(config, name)
    if config.resume and config.out and (Path(config.out) / 'config.yaml').exists():
        return read_config(Path(config.out)), Path(config.out)
    run_config = resolve(
        config.suite,
        config.learner,
        overrides=overrides,
        tasks=config.tasks or None,
        preset=config.preset,
    )
    return run_config, Path(config.out) if config.out else default_out(run_config)
