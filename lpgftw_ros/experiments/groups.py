r"""Runs of one suite by method and seed, and numbers over them that outliers do not rule.

Interquartile mean and probability of improvement follow Agarwal et al., "Deep Reinforcement
Learning at the Edge of the Statistical Precipice" (NeurIPS 2021). Their bootstrap draws the runs
of each task by themselves; the tasks of a lifetime depend on each other, so here a whole run is
the unit. With n runs, :math:`\theta` of all their scores and :math:`\theta_{-i}` of all but run i,

.. math:: \theta \pm t_{n-1} \sqrt{\tfrac{n-1}{n} \sum_i (\theta_{-i} - \bar\theta_-)^2},

the jackknife's standard error with Student's t. A percentile bootstrap of three runs would cover
the truth in three cases of four only.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
import math
import re

import numpy as np
from scipy.special import stdtrit

from lpgftw_ros.experiments.metrics import (
    ahead_for_good,
    lifetime_area,
    stage_score,
    TaskTransfer,
    transfers,
)
from lpgftw_ros.experiments.run_data import RunData, Score
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.stages import FINAL, TUNE

RESAMPLES = 2000
CONFIDENCE = 0.95

Lives = Sequence[Array]
"""One array per run, a score per task in its rows; lengths may differ (unfinished runs)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval."""

    value: float
    low: float
    high: float
    runs: int = 0
    """Runs that had a score."""

    def __str__(self) -> str:
        return f'{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]'


def iqm(scores: Array) -> float:
    """Return the mean without the lowest and highest quarter (rounded down) of the scores."""
    ordered = np.sort(np.asarray(scores, dtype=float).ravel())
    cut = len(ordered) // 4
    return float(np.mean(ordered[cut : len(ordered) - cut])) if len(ordered) else math.nan


def standard_error(values: Array) -> float:
    """Return std / sqrt(n) with the population std, as the published tables do."""
    return float(np.std(values) / math.sqrt(len(values))) if len(values) else math.nan


def estimate(lives: Lives, of: Callable[[Array], float]) -> Estimate:
    """Return a number of all scores with its 95 % interval over runs.

    With one run its tasks are drawn with replacement, and the interval says nothing about seeds.
    """
    known = [np.asarray(life, dtype=float) for life in lives if len(life)]
    n, edge = len(known), (1.0 - CONFIDENCE) / 2.0
    if not known:
        return Estimate(math.nan, math.nan, math.nan)
    value = of(np.concatenate(known))
    if n == 1:
        (life,) = known
        draws = np.random.default_rng(0).integers(len(life), size=(RESAMPLES, len(life)))
        low, high = np.quantile([of(life[draw]) for draw in draws], [edge, 1.0 - edge])
        return Estimate(value, float(low), float(high), 1)
    without = np.array([of(np.concatenate(known[:i] + known[i + 1 :])) for i in range(n)])
    error = math.sqrt((n - 1) / n * float(np.sum((without - np.mean(without)) ** 2)))
    reach = float(stdtrit(n - 1, 1.0 - edge)) * error
    return Estimate(value, value - reach, value + reach, n)


def ratio_of_sums(pairs: Array) -> float:
    """Return the ratio of two sums; pairs have the shape (n, 2).

    NaN where the denominators do not add up to something positive.
    """
    above, below = pairs.sum(axis=0)
    return float(above / below) if below > 0.0 else math.nan


def mean_difference(pairs: Array) -> float:
    """Return the mean difference of pairs, shape (n, 2)."""
    return float(np.mean(pairs[:, 0] - pairs[:, 1]))


def share_above(pairs: Array) -> float:
    """Return the share of pairs whose first number is above the second, ties half."""
    difference = pairs[:, 0] - pairs[:, 1]
    return float(np.mean((difference > 0.0) + 0.5 * (difference == 0.0)))


ALONE = 'stl'
DEVELOPED, DEVELOPMENT_SEEDS = ('lpg-ftw-adaptive',), (50, 60)
"""Methods whose settings were chosen here, and the seeds they were chosen on; others confirm."""
ORDER = ('lpg-ftw-adaptive', 'lpg-ftw', 'stl', 'ewc', 'ewc-h', 'er', 'pg-ella')
NAMES = {
    'lpg-ftw-adaptive': 'LPG-FTW adaptive',
    'lpg-ftw': 'LPG-FTW',
    'stl': 'STL',
    'ewc': 'EWC',
    'ewc-h': 'EWC-h',
    'er': 'ER',
    'pg-ella': 'PG-ELLA',
}


def display_name(label: str) -> str:
    """Return a method's name for figures.

    'ewc-1-3' is 'EWC 1,3', 'ewc-w1e-3' 'EWC, weight 1e-3', 'stl-small-steps' 'STL (small steps)'.
    """
    if label in NAMES:
        return NAMES[label]
    base = max((name for name in NAMES if label.startswith(f'{name}-')), key=len, default='')
    variant = label[len(base) + 1 :]
    if base and re.fullmatch('w[0-9].*', variant):
        return f'{NAMES[base]}, weight {variant[1:]}'
    if base and re.fullmatch('[0-9](-[0-9])*', variant):
        return f'{NAMES[base]} {variant.replace("-", ",")}'
    return f'{NAMES[base]} ({variant.replace("-", " ")})' if base else label


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
        found = [run.columns for run in self.all_runs if run.learner.startswith('lpg-ftw')]
        return max(found, default=0)

    def confirming(self, label: str) -> 'SuiteRuns':
        """Return these runs without the seeds a method's settings were chosen on."""
        chosen = DEVELOPMENT_SEEDS if label in DEVELOPED else ()
        return SuiteRuns(
            self.suite,
            {
                name: tuple(run for run in runs if run.seed not in chosen)
                for name, runs in self.methods.items()
            },
        )

    def stage(self, label: str, stage: str, seeds: Collection[int] | None = None) -> Mean | None:
        """Return the mean return over tasks, then over seeds: all, or those named."""
        scores = [stage_score(run, stage) for run in self._with(label, seeds)]
        values = np.array([score.mean_return for score in scores if score is not None])
        if not len(values):
            return None
        return Mean(float(np.mean(values)), standard_error(values), len(values))

    def stage_success(
        self, label: str, stage: str, seeds: Collection[int] | None = None
    ) -> float | None:
        """Return the mean success over tasks and seeds."""
        scores = [stage_score(run, stage) for run in self._with(label, seeds)]
        values = [s.success for s in scores if s is not None and s.success is not None]
        return float(np.mean(values)) if values else None

    def _with(self, label: str, seeds: Collection[int] | None) -> list[RunData]:
        return [run for run in self.methods[label] if seeds is None or run.seed in seeds]

    def paired_seeds(self, label: str) -> tuple[int, ...]:
        """Return the seeds that a method and STL have in common."""
        return tuple(run.seed for run, _ in self.pairs(label))

    def pairs(self, label: str) -> tuple[tuple[RunData, RunData], ...]:
        """Return each run of a method with the STL run of the same seed."""
        alone = {run.seed: run for run in self.methods.get(ALONE, ())}
        runs = self.methods.get(label, ())
        return tuple((run, alone[run.seed]) for run in runs if run.seed in alone)

    def transfers(
        self, label: str, after: int = 0, first: int | None = None
    ) -> tuple[tuple[TaskTransfer, ...], ...]:
        """Return per run the comparison with STL task by task, from a position on."""
        return tuple(
            tuple(t for t in transfers(run, alone, first) if t.position >= after)
            for run, alone in self.pairs(label)
        )

    def forward_transfer(self, label: str, after: int = 0, first: int | None = None) -> Estimate:
        """Return the IQM over tasks and seeds of the relative area gained over STL."""
        lives = [[t.forward for t in life] for life in self.transfers(label, after, first)]
        return estimate([_known(life) for life in lives], iqm)

    def area_ratio(self, label: str, after: int = 0, first: int | None = None) -> Estimate:
        """Return the areas over STL's, both summed over tasks and seeds."""
        lives = self.transfers(label, after, first)
        pairs = [np.array([(t.area, t.area_alone) for t in life]) for life in lives]
        return estimate(pairs, ratio_of_sums)

    def improvement(self, label: str, after: int = 0) -> Estimate:
        """Return the probability that a task's area is above STL's with the same seed."""
        lives = self.transfers(label, after)
        pairs = [np.array([(t.area, t.area_alone) for t in life]) for life in lives]
        found = estimate(pairs, share_above)
        return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))

    def speed_up(self, label: str, after: int = 0) -> float:
        """Return the median speed-up over tasks and seeds."""
        values = _known([t.speed_up for life in self.transfers(label, after) for t in life])
        return float(np.median(values)) if len(values) else math.nan

    def tasks_above(self, label: str, after: int = 0) -> tuple[int, int]:
        """Return how many tasks have a mean area above STL's, and of how many."""
        gained: dict[str, float] = {}
        for life in self.transfers(label, after):
            for t in life:
                gained[t.task] = gained.get(t.task, 0.0) + t.area - t.area_alone
        return sum(gain > 0.0 for gain in gained.values()), len(gained)

    def tune_ratio(self, label: str) -> Estimate:
        """Return tune over STL's tune, both summed over the tasks and seeds they share."""
        return estimate(self._beside_stl(label, lambda score: score.mean_return), ratio_of_sums)

    def success_difference(self, label: str) -> Estimate:
        """Return the success at tune minus STL's, over the tasks and seeds they share."""
        return estimate(self._beside_stl(label, lambda score: score.success), mean_difference)

    def _beside_stl(self, label: str, of: Callable[[Score], float | None]) -> Lives:
        """Return per run the pairs (ours, STL's) of a number of the tune score."""
        found = []
        for run, alone in self.pairs(label):
            base = {r.task: of(r.scores[TUNE]) for r in alone.tasks if TUNE in r.scores}
            pairs = [
                (ours, theirs)
                for result in run.tasks
                if TUNE in result.scores
                and (ours := of(result.scores[TUNE])) is not None
                and (theirs := base.get(result.task)) is not None
            ]
            found.append(np.array(pairs))
        return found

    def retention(self, label: str) -> Estimate:
        """Return final over tune, both summed over tasks and seeds."""
        lives = []
        for run in self.methods[label]:
            scores = [r.scores for r in run.tasks if FINAL in r.scores and TUNE in r.scores]
            lives.append(
                np.array([(one[FINAL].mean_return, one[TUNE].mean_return) for one in scores])
            )
        return estimate(lives, ratio_of_sums)

    def lifetimes(self, label: str) -> tuple[tuple[RunData, RunData], ...]:
        """Return the pairs with STL with nothing but the tasks that both have finished."""
        found = []
        for run, alone in self.pairs(label):
            ended = [{r.task for r in one.tasks if TUNE in r.scores} for one in (run, alone)]
            both = ended[0] & ended[1]
            if both:
                found.append((run.only(both), alone.only(both)))
        return tuple(found)

    def lifetime_ratio(self, label: str) -> float:
        """Return the area of whole runs over that of STL's, over STL's steps, seeds together."""
        pairs = self.lifetimes(label)
        ours = sum(lifetime_area(run, alone.steps) for run, alone in pairs)
        theirs = sum(lifetime_area(alone, alone.steps) for _, alone in pairs)
        return ours / theirs if theirs > 0.0 else math.nan

    def step_ratio(self, label: str) -> float:
        """Return the steps of whole runs over those of STL for the same tasks."""
        pairs = self.lifetimes(label)
        theirs = sum(alone.steps for _, alone in pairs)
        return sum(run.steps for run, _ in pairs) / theirs if theirs else math.nan

    def ahead_for_good(self, label: str) -> float:
        """Return the median over seeds of the steps after which a run stays ahead of STL."""
        found = [ahead_for_good(run, alone) for run, alone in self.pairs(label)]
        return float(np.median(found)) if found else math.nan

    def half_success(self, label: str, after: int = 0) -> tuple[float, float]:
        """Return the median iteration of half success over tasks and seeds, and STL's."""
        found = [t for life in self.transfers(label, after) for t in life]
        ours, alone = [t.half for t in found], [t.half_alone for t in found]
        return (float(np.median(ours)), float(np.median(alone))) if found else (math.nan, math.nan)


def _known(values: Sequence[float]) -> Array:
    """Return the values that are numbers."""
    return np.array([value for value in values if math.isfinite(value)])


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
