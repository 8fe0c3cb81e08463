"""`lpgftw bench growth`: does the dense update of the basis get slower with every task?

Two knowledge bases, one about to fold in its task 5, one its task 50, take turns in one process;
each one's time is its shortest of several rounds, the one least disturbed.
"""

import argparse
import json
import time

import numpy as np
from threadpoolctl import threadpool_limits

from lpgftw_ros import arguments
from lpgftw_ros.learning.basis import BasisRules
from lpgftw_ros.learning.knowledge_base import KnowledgeBase
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.learning.solvers import make_solver, TaskTerm, with_form

SPEC = PolicySpec(obs_dim=6, act_dim=4, hidden=(32, 32))
COLUMNS, EARLY, LATE = 3, 5, 50


class _Update:
    """A knowledge base that folds in the same task again and again, from the same place."""

    def __init__(self, number: int, model: LocalModel) -> None:
        rng, d = np.random.default_rng(number), SPEC.n_parameters
        self._model, self._s = model, rng.standard_normal(COLUMNS)
        solver = make_solver('dense')
        self._coefficients = {f'task {t}': rng.standard_normal(COLUMNS) for t in range(1, number)}
        for s in self._coefficients.values():
            solver.add(TaskTerm(s, with_form(model, 'dense', SPEC)))
        self._sums, self._basis = solver.sums(), rng.standard_normal((d, COLUMNS))
        rules = BasisRules(max_columns=COLUMNS, keep_local_models=False)
        self._knowledge = KnowledgeBase(SPEC, solver, rules)

    def seconds(self) -> float:
        """Fold the task in and return how long that took."""
        sums = {name: array.copy() for name, array in self._sums.items()}
        self._knowledge.restore(self._basis, self._coefficients, {}, sums, None)
        began = time.perf_counter()
        self._knowledge.add('the next task', self._s, self._model)
        return time.perf_counter() - began


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    parser.add_argument(
        '--rounds', type=arguments.count, default=5, help='turns of each contestant'
    )
    parser.add_argument('--threads', type=arguments.threads, default=1, help='BLAS threads')


def run(args: argparse.Namespace) -> int:
    """Measure and print the ratio and the times behind it."""
    with threadpool_limits(limits=args.threads):
        results = growth(args.rounds)
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        print('\n'.join(f'{name:<24}{value:>10.3f}' for name, value in results.items()))
    return 0


def growth(rounds: int) -> dict[str, float]:
    """Time the dense update of task 50 against that of task 5 (d = 1280, k = 3)."""
    rng, d = np.random.default_rng(0), SPEC.n_parameters
    rows = rng.standard_normal((2 * d, d))
    curvature = -(rows.T @ rows) / len(rows)
    model = LocalModel(rng.standard_normal(d), rng.standard_normal(d), curvature)
    early, late = _Update(EARLY, model), _Update(LATE, model)
    times = [(early.seconds(), late.seconds()) for _ in range(rounds)]
    first, second = (min(column) for column in zip(*times, strict=True))
    return {'ratio': second / first, 'seconds_task_5': first, 'seconds_task_50': second}
