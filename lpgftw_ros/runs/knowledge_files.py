"""All policies of a run folder, readable without knowing the method that learned them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.runs.storage import read_arrays

NEWEST, BEFORE = 'iteration.safetensors', 'iteration.previous.safetensors'
_FACTORS = ('coefficients', 'residual', 'head', 'log_std')


def factor_arrays(prefix: str, factors: TaskFactors) -> dict[str, Array]:
    """Return the factors of one task as named arrays."""
    return {f'{prefix}/{name}': np.array(getattr(factors, name)) for name in _FACTORS}


def knowledge_arrays(knowledge: Knowledge) -> dict[str, Array]:
    """Return a knowledge base as named arrays; `knowledge_info` has the rest."""
    arrays = {'knowledge/basis': np.array(knowledge.basis)}
    for i, factors in enumerate(knowledge.tasks.values()):
        arrays |= factor_arrays(f'knowledge/{i}', factors)
    return arrays


def knowledge_info(knowledge: Knowledge) -> dict[str, Any]:
    """Return the plain values of a knowledge base."""
    spec = knowledge.spec
    return {
        'version': knowledge.version,
        'tasks': list(knowledge.tasks),
        'spec': [spec.obs_dim, spec.act_dim, list(spec.hidden), spec.min_log_std],
    }


def read_knowledge(arrays: dict[str, Array], info: dict[str, Any]) -> Knowledge:
    """Rebuild a knowledge base from its arrays and plain values."""
    obs_dim, act_dim, hidden, min_log_std = info['spec']
    tasks = {task: _factors(arrays, f'knowledge/{i}') for i, task in enumerate(info['tasks'])}
    spec = PolicySpec(obs_dim, act_dim, tuple(hidden), min_log_std)
    return Knowledge(info['version'], spec, arrays['knowledge/basis'], tasks)


def load_knowledge(run_folder: Path) -> Knowledge:
    """Return every policy of a run, the task in training included."""
    newest = _newest(run_folder)
    knowledge = read_knowledge(newest.arrays, newest.base)
    tasks = dict(knowledge.tasks)
    if (task := newest.info['running']) is not None:
        tasks[task] = _factors(newest.running, 'running')
    return Knowledge(knowledge.version, knowledge.spec, knowledge.basis, tasks)


def load_local_models(run_folder: Path) -> dict[str, LocalModel]:
    """Return the local model of each finished task of a run, as far as they were kept."""
    models = {}
    for task, number in _newest(run_folder).base['models'].items():
        arrays, _ = read_arrays(run_folder / 'checkpoints' / base_name(number))
        names = [f'models/{task}/{name}' for name in ('alpha', 'g', 'H')]
        if all(name in arrays for name in names):
            models[task] = LocalModel(*(arrays[name] for name in names))
    return models


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """Both files of a checkpoint: an iteration, and the knowledge it builds on."""

    running: dict[str, Array]
    info: dict[str, Any]
    arrays: dict[str, Array]
    base: dict[str, Any]


def _newest(run_folder: Path) -> _Checkpoint:
    """Return the newest checkpoint whose files are whole."""
    folder = run_folder / 'checkpoints'
    for name in (NEWEST, BEFORE):
        try:
            running, info = read_arrays(folder / name)
            return _Checkpoint(running, info, *read_arrays(folder / base_name(info['base'])))
        except StateMismatch:
            continue
    raise StateMismatch(
        f'{run_folder} has no finished iteration to read policies from; is it a run folder?'
    )


def base_name(number: int) -> str:
    """Return the name of the file that holds shared knowledge of this number."""
    return f'task-{number:03d}.safetensors'


def _factors(arrays: dict[str, Array], prefix: str) -> TaskFactors:
    return TaskFactors(*(arrays[f'{prefix}/{name}'] for name in _FACTORS))
