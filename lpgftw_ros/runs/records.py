"""What a run records: metrics rows, scores and the summary."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import FinishReport, Probe, StepReport, VALUE_ERROR
from lpgftw_ros.learning.policies import Knowledge
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.stages import STAGES
from lpgftw_ros.runs.storage import FORMAT
from lpgftw_ros.runs.visits import Stage, Visit


def score(batch: Batch) -> dict[str, float]:
    """Return mean return and success rate of a batch."""
    return {'return': float(np.mean(batch.returns)), 'success': float(np.mean(batch.success))}


def _batch_row(
    kind: str, visit: Visit, iteration: int, batch: Batch, total: int
) -> dict[str, Any]:
    returns = batch.returns
    return {
        'kind': kind,
        'visit': visit.number,
        'task': visit.task,
        'iteration': iteration,
        'return_mean': float(np.mean(returns)),
        'return_std': float(np.std(returns)),
        'return_min': float(np.min(returns)),
        'return_max': float(np.max(returns)),
        'success': float(np.mean(batch.success)),
        'failed': int(np.sum(batch.failed)),
        'steps': batch.n_steps,
        'total_steps': total,
    }


def iteration_row(
    visit: Visit, stage: Stage, batch: Batch, report: StepReport, total_steps: int
) -> dict[str, Any]:
    """Return the metrics of one policy step; the value fit adds its part later."""
    return {
        **_batch_row('iteration', visit, stage.iteration, batch, total_steps),
        **report.measures,
        VALUE_ERROR: None,
        'timing': {
            'sampling': 0.0,
            'policy': report.seconds,
            'value': 0.0,
            'knowledge': report.knowledge_seconds,
        },
    }


def update_row(visit: Visit, batch: Batch, report: FinishReport, total: int) -> dict[str, Any]:
    """Return the metrics of folding a task into the shared knowledge."""
    return {
        **_batch_row('update', visit, visit.iterations, batch, total),
        **report.measures,
        'timing': {
            'sampling': 0.0,
            'policy': 0.0,
            'value': 0.0,
            'knowledge': report.seconds,
        },
    }


def probe_row(
    visit: Visit, probe: Probe, batch: Batch, found: Mapping[str, float], total: int
) -> dict[str, Any]:
    """Return the metrics of trajectories a learner asked for; `task` is theirs."""
    return {
        **_batch_row('probe', visit, visit.finished_iterations, batch, total),
        'task': probe.task,
        'purpose': probe.purpose,
        **found,
        'timing': {'sampling': 0.0, 'policy': 0.0, 'value': 0.0, 'knowledge': 0.0},
    }


def summary(
    config: RunConfig,
    visits: Sequence[Visit],
    *,
    finished: bool,
    steps: int,
    parameters: int,
    seconds: dict[str, float],
    versions: dict[str, str],
) -> dict[str, Any]:
    """Return the content of summary.json; stages not reached yet are null."""
    visits = [visit for visit in visits if visit.state != 'cancelled']
    tasks: list[dict[str, Any]] = [
        {
            'task': visit.task,
            'visit': visit.number,
            'state': visit.state,
            'iterations': visit.finished_iterations,
            'steps': visit.steps,
            **{name: visit.scores.get(name) for name in STAGES},
        }
        for visit in visits
    ]
    met = list(dict.fromkeys(visit.task for visit in visits))
    matrix = [[(visit.matrix.get(task) or {}).get('return') for task in met] for visit in visits]
    return {
        'format': FORMAT,
        'suite': config.suite,
        'learner': config.learner,
        'seed': config.loop.seed,
        'state': 'finished' if finished else 'running',
        'tasks': tasks,
        'mean': {name: _mean([task[name] for task in tasks]) for name in STAGES},
        'matrix': matrix if config.loop.matrix else None,
        'steps': steps,
        'columns': max((visit.columns for visit in visits), default=0),
        'parameters': parameters,
        'seconds': {name: round(value, 3) for name, value in seconds.items()},
        'versions': versions,
    }


def count_parameters(knowledge: Knowledge) -> int:
    """Return how many numbers all policies need together.

    A shared sigma counts once; an s that is always one does not count.
    """
    tasks = knowledge.tasks.values()
    count = knowledge.basis.size + sum(factors.head.size for factors in tasks)
    count += sum(factors.residual.size for factors in tasks if factors.residual.any())
    if any(not np.array_equal(factors.coefficients, [1.0]) for factors in tasks):
        count += sum(factors.coefficients.size for factors in tasks)
    sigmas = {factors.log_std.tobytes(): factors.log_std.size for factors in tasks}
    return int(count + sum(sigmas.values()))


def _mean(scores: Sequence[dict[str, float] | None]) -> dict[str, float] | None:
    present = [s for s in scores if s is not None]
    if not present:
        return None
    return {key: float(np.mean([s[key] for s in present])) for key in ('return', 'success')}
