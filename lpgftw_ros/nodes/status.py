"""The `status` message from a session: flat scalars, NaN where nothing is known."""

from typing import Any

from lpgftw_interfaces.msg import LearningStatus
from lpgftw_ros.nodes.training_worker import TrainingWorker
from lpgftw_ros.runs.session import Session

NAN = float('nan')
FROM_ROW = (
    'return_mean',
    'return_std',
    'return_min',
    'return_max',
    'success',
    'kl',
    'step_length',
    'refused_steps',
    'gradient_norm',
    'value_error',
    'basis_change',
)


def number(value: Any) -> float:
    """Return a value as a float; NaN for what is not there."""
    return NAN if value is None else float(value)


def status_message(session: Session, worker: TrainingWorker, run_id: str) -> LearningStatus:
    """Return how learning stands."""
    row = session.last_row or {}
    timing = row.get('timing', {})
    visit, knowledge = session.lifelong.current, session.learner.knowledge()
    rate = row['steps'] / timing['sampling'] if timing.get('sampling') else NAN
    message = LearningStatus(
        run_id=run_id,
        learner=session.config.learner,
        suite=session.config.suite,
        task=worker.active,
        state=worker.state,
        message=worker.message,
        visit=NAN if visit is None else float(visit.number),
        visits=float(len(session.lifelong.visits) + len(session.lifelong.queue)),
        iteration=float(session.learner.iteration) if session.learner.running else NAN,
        iterations=float((visit or session.config.loop).iterations),
        columns=float(knowledge.basis.shape[1]),
        knowledge_version=float(knowledge.version),
        policy_version=float(worker.policy_version),
        total_steps=float(session.lifelong.total_steps),
        steps_per_second=rate,
        wall_seconds=session.wall,
    )
    for name in FROM_ROW:
        setattr(message, name, number(row.get(name)))
    for phase in ('sampling', 'policy', 'value', 'knowledge'):
        setattr(message, f'{phase}_seconds', number(timing.get(phase)))
    return message
