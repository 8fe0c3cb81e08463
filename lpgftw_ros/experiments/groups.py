"""Runs of one suite, arranged by method and seed, and the numbers over them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
import math
import re

import numpy as np

from lpgftw_ros.experiments.metrics import stage_score, TaskTransfer, transfers
from lpgftw_ros.experiments.run_data import RunData
from lpgftw_ros.experiments.statistics import (
    Estimate,
    iqm_interval,
    probability_of_improvement,
    standard_error,
    Strata,
)

ALONE = 'stl'
ORDER = ('lpg-ftw', 'stl', 'ewc', 'ewc-h', 'er', 'pg-ella')
NAMES = {
    'lpg-ftw': 'LPG-FTW',
    'stl': 'STL',
    'ewc': 'EWC',
    'ewc-h': 'EWC-h',
    'er': 'ER',
    'pg-ella': 'PG-ELLA',
}


def display_name(label: str) -> str:
    """Return a method's name as it stands in figures.

    'ewc-1-3' is 'EWC 1,3', 'ewc-w1e-3' is 'EWC, weight 1e-3'.
    """
    if label in NAMES:
        return NAMES[label]
    base = max((name for name in NAMES if label.startswith(f'{name}-')), key=len, default='')
    variant = label[len(base) + 1 :]
    if base and re.fullmatch('w[0-9].*', variant):
        return f'{NAMES[base]}, weight {variant[1:]}'
    return f'{NAMES[base]} {variant.replace("-", ",")}' if base else label


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds with its standard error."""

    value: float
    error: float
    n: int

    def __str__(self) -> str:
        digits = ',.0f' if abs(self.value) >= 100.0 else '.3g'
        error = f' ± {self.error:{digits}}' if self.n > 1 else ''
        return f'{self.value:{digits}}{error}'


@dataclass(frozen=True, slots=True)
class SuiteRuns:
    """All runs of one suite."""

    suite: str
    methods: Mapping[str, tuple[RunData, ...]]
    """Label to its runs by seed, in the order of presentation."""

    @property
    def all_runs(self) -> tuple[RunData, ...]:
        """Return all runs."""
        return tuple(run for runs in self.methods.values() for run in runs)

    @property
    def columns(self) -> int:
        """Return k, the columns LPG-FTW ended with; 0 without such a run."""
        found = [run.columns for run in self.all_runs if run.learner == 'lpg-ftw']
        return max(found, default=0)

    def stage(self, label: str, stage: str) -> Mean | None:
        """Return the mean return over tasks, then over seeds."""
        scores = [stage_score(run, stage) for run in self.methods[label]]
        values = np.array([score.mean_return for score in scores if score is not None])
        if not len(values):
            return None
        return Mean(float(np.mean(values)), standard_error(values), len(values))

    def stage_success(self, label: str, stage: str) -> float | None:
        """Return the mean success over tasks and seeds."""
        scores = [stage_score(run, stage) for run in self.methods[label]]
        values = [s.success for s in scores if s is not None and s.success is not None]
        return float(np.mean(values)) if values else None

    def pairs(self, label: str) -> tuple[tuple[RunData, RunData], ...]:
        """Return each run of a method with the STL run of the same seed."""
        alone = {run.seed: run for run in self.methods.get(ALONE, ())}
        runs = self.methods.get(label, ())
        return tuple((run, alone[run.seed]) for run in runs if run.seed in alone)

    def transfers(self, label: str, after: int = 0) -> dict[str, list[TaskTransfer]]:
        """Return per task the comparison with STL for each seed, from a position on."""
        found: dict[str, list[TaskTransfer]] = {}
        for run, alone in self.pairs(label):
            for transfer in transfers(run, alone):
                if transfer.position >= after:
                    found.setdefault(transfer.task, []).append(transfer)
        return found

    def forward_transfer(self, label: str, after: int = 0) -> Estimate:
        """Return the IQM over tasks and seeds of the relative area gained over STL."""
        return iqm_interval(_strata(self.transfers(label, after), 'forward'))

    def improvement(self, label: str, after: int = 0) -> Estimate:
        """Return the probability that a task's area is above STL's."""
        found = self.transfers(label, after)
        return probability_of_improvement(_strata(found, 'area'), _strata(found, 'area_alone'))

    def speed_up(self, label: str, after: int = 0) -> float:
        """Return the median speed-up over tasks and seeds."""
        found = self.transfers(label, after).values()
        values = [t.speed_up for group in found for t in group if not math.isnan(t.speed_up)]
        return float(np.median(values)) if values else math.nan

    def tasks_above(self, label: str, after: int = 0) -> tuple[int, int]:
        """Return how many tasks have a mean area above STL's, and of how many."""
        found = self.transfers(label, after).values()
        wins = [sum(t.area - t.area_alone for t in group) > 0.0 for group in found]
        return sum(wins), len(wins)

    def tune_ratio(self, label: str) -> float | None:
        """Return tune over STL's tune, both summed over the tasks and seeds they share."""
        ours, theirs = 0.0, 0.0
        for run, alone in self.pairs(label):
            base = {r.task: r.scores['tune'] for r in alone.tasks if 'tune' in r.scores}
            for result in run.tasks:
                if 'tune' in result.scores and result.task in base:
                    ours += result.scores['tune'].mean_return
                    theirs += base[result.task].mean_return
        return ours / theirs if theirs > 0.0 else None


def _strata(found: Mapping[str, list[TaskTransfer]], name: str) -> Strata:
    return [np.array([getattr(t, name) for t in group]) for group in found.values()]


def group_runs(runs: Iterable[RunData]) -> tuple[SuiteRuns, ...]:
    """Arrange runs by suite, method and seed."""
    suites: dict[str, dict[str, list[RunData]]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        suites.setdefault(run.suite, {}).setdefault(run.label, []).append(run)
    return tuple(
        SuiteRuns(suite, {label: tuple(found[label]) for label in sorted(found, key=_rank)})
        for suite, found in sorted(suites.items())
    )


def _rank(label: str) -> tuple[int, str]:
    return (ORDER.index(label) if label in ORDER else len(ORDER), label)
