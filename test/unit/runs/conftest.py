from collections.abc import Callable, Iterator
import json
from pathlib import Path
from typing import Any

import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.driver import drive, policy_spec
from lpgftw_ros.runs.session import Session

SUITE = """
description: four short HalfCheetah tasks for tests
kind: body
horizon: 20
hidden: []
defaults: {body: halfcheetah}
tasks:
  - {name: g-08, gravity: 0.8}
  - {name: g-12, gravity: 1.2}
  - {name: g-06, gravity: 0.6}
  - {name: g-10, gravity: 1.0}
sequence: [g-08, g-12, g-06, g-10]
"""
SMALL = {
    'seed': 7,
    'iterations': 3,
    'trajectories': 4,
    'update_trajectories': 3,
    'evaluation_episodes': 2,
    'stochastic_episodes': 2,
    'max_kl': 0.1,
}


@pytest.fixture
def tiny_suite(tmp_path: Path) -> str:
    path = tmp_path / 'tiny.yaml'
    path.write_text(SUITE)
    return str(path)


@pytest.fixture
def tiny_config(tiny_suite: str) -> Callable[..., RunConfig]:
    def make(learner: str = 'lpg-ftw', tasks: str | None = None, **settings: Any) -> RunConfig:
        overrides = SMALL | ({'max_columns': 2} if learner == 'lpg-ftw' else {}) | settings
        return resolve(tiny_suite, learner, overrides=overrides, tasks=tasks)

    return make


@pytest.fixture
def sampler(tiny_suite: str) -> Iterator[Sampler]:
    with Sampler(tiny_suite, 1) as made:
        yield made


@pytest.fixture
def train(sampler: Sampler) -> Callable[..., Path]:
    """Run a configuration to its end, or until `on_step` raises, and return its folder."""

    def run(config: RunConfig, out: Path, *, resume: bool = False, on_step: Any = None) -> Path:
        spec = policy_spec(config, sampler)
        with Session(config, out, spec=spec, resume=resume) as session:
            drive(session, sampler, on_step or (lambda s: None))
        return out

    return run


def metrics(out: Path) -> list[dict[str, Any]]:
    """Return the rows of a run without their wall-clock fields."""
    lines = (out / 'metrics.jsonl').read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != 'timing'} for line in lines]
