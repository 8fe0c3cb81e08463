"""The moments of a task's life that are measured; nothing else, so that it is quick to import."""

STAGES = (
    'start',
    'start_after_update',
    'tune',
    'tune_stochastic',
    'update',
    'final',
    'final_stochastic',
)
"""When the policy of a task is evaluated, in order; the names in summary.json."""
