"""All policies of a run folder, readable without knowing the method that learned them."""

from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.runs.storage import read_arrays, read_info

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
    folder = run_folder / 'checkpoints'
    for name in ('iteration.safetensors', 'iteration.previous.safetensors'):
        try:
            running, info = read_arrays(folder / name)
            arrays, base = read_arrays(folder / f'task-{info["base"]:03d}.safetensors')
        except StateMismatch:
            continue
        knowledge = read_knowledge(arrays, base)
        tasks = dict(knowledge.tasks)
        if info['running'] is not None:
            tasks[info['running']] = _factors(running, 'running')
        return Knowledge(knowledge.version, knowledge.spec, knowledge.basis, tasks)
    raise StateMismatch(
        f'{run_folder} has no finished iteration to read policies from; is it a run folder?'
    )


def load_local_models(run_folder: Path) -> dict[str, LocalModel]:
    """Return the local model of each finished task of a run, as far as they were kept."""
    folder = run_folder / 'checkpoints'
    base = read_info(folder / 'iteration.safetensors').get('base')
    models = {}
    for task, number in read_info(folder / f'task-{base:03d}.safetensors')['models'].items():
        arrays, _ = read_arrays(folder / f'task-{number:03d}.safetensors')
        names = [f'models/{task}/{name}' for name in ('alpha', 'g', 'H')]
        if all(name in arrays for name in names):
            models[task] = LocalModel(*(arrays[name] for name in names))
    return models


def _factors(arrays: dict[str, Array], prefix: str) -> TaskFactors:
    return TaskFactors(*(arrays[f'{prefix}/{name}'] for name in _FACTORS))
