"""Hand-made run folders."""

from collections.abc import Callable, Sequence
import json
from pathlib import Path

import pytest
import yaml

from lpgftw_ros.experiments.run_data import read_run, RunData

STAGE_NAMES = ('start', 'start_after_update', 'tune', 'tune_stochastic', 'update', 'final')


def task_entry(task: str, visit: int, **stages: float | tuple[float, float]) -> dict:
    entry = {'task': task, 'visit': visit, 'iterations': 2, 'steps': 200}
    for stage in (*STAGE_NAMES, 'final_stochastic'):
        value = stages.get(stage)
        if value is None:
            entry[stage] = None
        else:
            mean, success = value if isinstance(value, tuple) else (value, 0.0)
            entry[stage] = {'return': mean, 'success': success}
    return entry


def metric_row(task: str, visit: int, iteration: int, value: float, **other) -> dict:
    return {
        'kind': 'iteration',
        'visit': visit,
        'task': task,
        'iteration': iteration,
        'return_mean': value,
        'return_std': 1.0,
        'return_min': value - 1.0,
        'return_max': value + 1.0,
        'success': 0.0,
        'kl': 0.01,
        'step_length': 0.1,
        'refused_steps': 0,
        'steps': 100,
        'total_steps': 100 * (iteration + 1),
        'value_error': 0.5,
        'timing': {'sampling': 1.0, 'policy': 0.1, 'value': 0.5, 'knowledge': 0.0, 'wall': 1.2},
        **other,
    }


def write_run(
    folder: Path,
    *,
    learner: str = 'lpg-ftw',
    suite: str = 'halfcheetah-gravity',
    seed: int = 50,
    tasks: Sequence[dict] = (),
    curves: Sequence[Sequence[float]] = (),
    successes: Sequence[Sequence[float]] = (),
    matrix: list | None = None,
    state: str = 'finished',
    columns: int = 1,
    update: float = 1e9,
    steps: int = 1000,
    extra: Sequence[dict] = (),
) -> Path:
    """Write a run; `extra` are further rows, before all others."""
    folder.mkdir(parents=True)
    rows = list(extra)
    for visit, curve in enumerate(curves):
        name = tasks[visit]['task']
        for i, value in enumerate(curve):
            success = successes[visit][i] if successes else 0.0
            rows.append(metric_row(name, visit, i, value, success=success))
        rows.append(metric_row(name, visit, len(curve), update) | {'kind': 'update'})
    summary = {
        'format': 1,
        'suite': suite,
        'learner': learner,
        'seed': seed,
        'state': state,
        'tasks': list(tasks),
        'mean': {},
        'matrix': matrix,
        'steps': steps,
        'seconds': {
            'sampling': 10.0,
            'policy': 2.0,
            'value': 4.0,
            'knowledge': 1.0,
            'evaluation': 2.0,
            'wall': 16.0,
        },
        'parameters': 600,
        'columns': columns,
        'versions': {'numpy': '2'},
    }
    (folder / 'summary.json').write_text(json.dumps(summary))
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    (folder / 'config.yaml').write_text(yaml.safe_dump({'suite': suite, 'learner': learner}))
    return folder


@pytest.fixture
def entry() -> Callable[..., dict]:
    return task_entry


@pytest.fixture
def probe() -> Callable[[str, str, float], dict]:
    """Return what makes the row of a probe on the first visit: task, purpose, return."""
    return lambda task, purpose, value: (
        metric_row(task, 0, 0, value) | {'kind': 'probe', 'purpose': purpose}
    )


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, **options) -> Path:
        return write_run(tmp_path / name, **options)

    return make


@pytest.fixture
def make_run(make_folder: Callable[..., Path]) -> Callable[..., RunData]:
    def make(name: str = 'run', **options) -> RunData:
        return read_run(make_folder(name, **options))

    return make
