"""The evaluations of a task, as one table; nothing else, so that it imports quickly.

To add an evaluation, add an entry. Loop, summary, reports, node and docs read the table.
"""

from dataclasses import dataclass
from typing import Literal

START, START_AFTER_UPDATE, TUNE, TUNE_STOCHASTIC, UPDATE, MATRIX, FINAL, FINAL_STOCHASTIC = (
    'start',
    'start_after_update',
    'tune',
    'tune_stochastic',
    'update',
    'matrix',
    'final',
    'final_stochastic',
)
Moment = Literal['begin', 'first_step', 'tuned', 'folded', 'end']
"""When: before the first policy step, after it, after the last one, after the task was folded
into the shared knowledge, or after the last task."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: its name in summary.json, when it takes place, and how."""

    name: str
    moment: Moment
    help: str
    explore: bool = False
    """Act with exploration noise; such an evaluation takes `stochastic_episodes` episodes."""
    every_task: bool = False
    """Evaluate all tasks met so far (setting `matrix`), not only the visit's own."""
    shown: bool = False
    """Whether the tables of a run show it."""
    published: str = ''
    """Name of the published figure measured this way."""

    @property
    def running(self) -> bool:
        """Whether the policy in training acts, instead of the one composed from the knowledge."""
        return self.moment in ('begin', 'first_step', 'tuned')


EVALUATIONS = (
    Evaluation(START, 'begin', 'before the first policy step', shown=True),
    Evaluation(START_AFTER_UPDATE, 'first_step', 'after the first policy step', published='start'),
    Evaluation(TUNE, 'tuned', 'after the last policy step', shown=True, published='tune'),
    Evaluation(
        TUNE_STOCHASTIC, 'tuned', 'after the last policy step, with exploration', explore=True
    ),
    Evaluation(
        UPDATE,
        'folded',
        'after the task was folded into the knowledge',
        shown=True,
        published='update',
    ),
    Evaluation(MATRIX, 'folded', 'all tasks met so far, after each task', every_task=True),
    Evaluation(FINAL, 'end', 'after the last task', shown=True, published='final'),
    Evaluation(FINAL_STOCHASTIC, 'end', 'after the last task, with exploration', explore=True),
)
STAGES = tuple(one.name for one in EVALUATIONS if not one.every_task)
"""Evaluations of a task itself, in order; the names in summary.json."""
SHOWN = tuple(one.name for one in EVALUATIONS if one.shown)
"""Columns of the tables of a run."""


def evaluations(moment: Moment) -> tuple[Evaluation, ...]:
    """Return the evaluations that take place at one moment."""
    return tuple(one for one in EVALUATIONS if one.moment == moment)


N_BEGIN, N_FIRST_STEP = len(evaluations('begin')), len(evaluations('first_step'))
assert not any(
    one.explore or one.every_task for one in EVALUATIONS if one.moment in ('begin', 'first_step')
), 'the place of an iteration in a visit may not depend on settings'
