"""Runs of one suite by method and seed, and numbers over them that outliers do not rule.

Interquartile mean, stratified bootstrap and probability of improvement follow Agarwal et al.,
"Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021), who
recommend them for few seeds. A stratum is a task; its scores are the seeds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
import math
import re

import numpy as np

from lpgftw_ros.experiments.metrics import lifetime_area, stage_score, TaskTransfer, transfers
from lpgftw_ros.experiments.run_data import RunData, Score
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.stages import FINAL, TUNE

RESAMPLES = 2000
CONFIDENCE = 0.95

Strata = Sequence[Array]
"""One array of scores per task; lengths may differ (unfinished seeds)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f'{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]'


def iqm(scores: Array) -> float:
    """Return the mean without the lowest and highest quarter (rounded down) of the scores."""
    values = np.asarray(scores, dtype=float).ravel()
    return float(_iqm_rows(values[None, :])[0]) if len(values) else math.nan


def _iqm_rows(scores: Array) -> Array:
    """Return the IQM of each row."""
    ordered = np.sort(scores, axis=1)
    cut = ordered.shape[1] // 4
    return np.asarray(ordered[:, cut : ordered.shape[1] - cut].mean(axis=1))


def standard_error(values: Array) -> float:
    """Return std / sqrt(n) with the population std, as the published tables do."""
    return float(np.std(values) / math.sqrt(len(values))) if len(values) else math.nan


def iqm_interval(strata: Strata, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """Return the IQM over all scores with its bootstrap interval.

    Seeds are resampled within each task. Where no task has two seeds there is nothing to
    resample within: then tasks themselves are resampled.
    """
    clean = [row for row in _keep(strata) if len(row)]
    if not clean:
        return Estimate(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    if any(len(row) > 1 for row in clean):
        drawn = np.concatenate([_draw(row, rng, resamples) for row in clean], axis=1)
    else:
        drawn = _draw(np.concatenate(clean), rng, resamples)
    return _estimate(iqm(np.concatenate(clean)), _iqm_rows(drawn))


def ratio_interval(strata: Strata, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """Return the ratio of two sums over all scores with its bootstrap interval.

    A score is a pair, so each array has the shape (seeds, 2): numerator and denominator are drawn
    together. NaN where the denominators do not add up to something positive.
    """
    return _paired(
        strata, seed, resamples, lambda sums: _positive_ratio(sums[..., 0], sums[..., 1])
    )


def difference_interval(strata: Strata, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """Return the mean difference of pairs, shape (seeds, 2) each, with its bootstrap interval."""
    count = sum(len(row) for row in strata)
    return _paired(strata, seed, resamples, lambda sums: (sums[..., 0] - sums[..., 1]) / count)


def _paired(
    strata: Strata, seed: int, resamples: int, of_sums: Callable[[Array], Array]
) -> Estimate:
    """Return a function of the sums of pairs, with its interval over seeds (or tasks)."""
    clean = [np.asarray(row, dtype=float) for row in strata if len(row)]
    if not clean:
        return Estimate(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    pools = clean if any(len(row) > 1 for row in clean) else [np.concatenate(clean)]
    drawn = np.sum([_draw(pool, rng, resamples).sum(axis=1) for pool in pools], axis=0)
    value = of_sums(np.concatenate(clean).sum(axis=0))
    return _estimate(float(value), np.asarray(of_sums(drawn)))


def _positive_ratio(numerator: Array, denominator: Array) -> Array:
    safe = np.where(denominator > 0.0, denominator, np.nan)
    return np.asarray(numerator / safe)


def probability_of_improvement(
    ours: Strata, others: Strata, *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """Return P(a score of ours is above one of theirs on the same task), averaged over tasks.

    Ties count one half.
    """
    pairs = [(a, b) for a, b in zip(_keep(ours), _keep(others), strict=True) if len(a) and len(b)]
    if not pairs:
        return Estimate(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    wins = np.array([float(_wins(a[None], b[None])[0]) for a, b in pairs])
    if any(max(len(a), len(b)) > 1 for a, b in pairs):
        rows = [_wins(_draw(a, rng, resamples), _draw(b, rng, resamples)) for a, b in pairs]
        samples = np.mean(rows, axis=0)
    else:
        samples = _draw(wins, rng, resamples).mean(axis=1)
    return _estimate(float(wins.mean()), samples)


def _draw(scores: Array, rng: np.random.Generator, resamples: int) -> Array:
    """Return resamples with replacement. Shape (resamples, *scores.shape)."""
    return scores[rng.integers(len(scores), size=(resamples, len(scores)))]


def _wins(a: Array, b: Array) -> Array:
    """Return the share of pairs of each row in which a is above b, ties half."""
    difference = a[:, :, None] - b[:, None, :]
    return np.asarray(((difference > 0.0) + 0.5 * (difference == 0.0)).mean(axis=(1, 2)))


def _keep(strata: Strata) -> list[Array]:
    return [np.asarray(row, dtype=float)[np.isfinite(row)] for row in strata]


def _estimate(value: float, samples: Array) -> Estimate:
    edge = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(samples, [edge, 1.0 - edge])
    return Estimate(value, float(low), float(high))


ALONE = 'stl'
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
        found = [run.columns for run in self.all_runs if run.learner.startswith('lpg-ftw')]
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

    def transfers(
        self, label: str, after: int = 0, first: int | None = None
    ) -> dict[str, list[TaskTransfer]]:
        """Return per task the comparison with STL for each seed, from a position on."""
        found: dict[str, list[TaskTransfer]] = {}
        for run, alone in self.pairs(label):
            for transfer in transfers(run, alone, first):
                if transfer.position >= after:
                    found.setdefault(transfer.task, []).append(transfer)
        return found

    def forward_transfer(self, label: str, after: int = 0, first: int | None = None) -> Estimate:
        """Return the IQM over tasks and seeds of the relative area gained over STL."""
        return iqm_interval(_strata(self.transfers(label, after, first), 'forward'))

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

    def tune_ratio(self, label: str) -> Estimate:
        """Return tune over STL's tune, both summed over the tasks and seeds they share."""
        return ratio_interval(self._beside_stl(label, lambda score: score.mean_return))

    def success_difference(self, label: str) -> Estimate:
        """Return the success at tune minus STL's, over the tasks and seeds they share."""
        return difference_interval(self._beside_stl(label, lambda score: score.success))

    def _beside_stl(self, label: str, of: Callable[[Score], float | None]) -> Strata:
        """Return per task the pairs (ours, STL's) of a number of the tune score."""
        found: dict[str, list[tuple[float, float]]] = {}
        for run, alone in self.pairs(label):
            base = {r.task: of(r.scores[TUNE]) for r in alone.tasks if TUNE in r.scores}
            for result in run.tasks:
                if TUNE not in result.scores:
                    continue
                ours, theirs = of(result.scores[TUNE]), base.get(result.task)
                if ours is not None and theirs is not None:
                    found.setdefault(result.task, []).append((ours, theirs))
        return [np.array(pairs) for pairs in found.values()]

    def retention(self, label: str) -> Estimate:
        """Return final over tune, both summed over tasks and seeds."""
        found: dict[str, list[tuple[float, float]]] = {}
        for run in self.methods[label]:
            for result in run.tasks:
                if FINAL in result.scores and TUNE in result.scores:
                    final, tune = (result.scores[s].mean_return for s in (FINAL, TUNE))
                    found.setdefault(result.task, []).append((final, tune))
        return ratio_interval([np.array(pairs) for pairs in found.values()])

    def lifetime_ratio(self, label: str) -> float:
        """Return the area of whole runs over that of STL's, over STL's steps, seeds together."""
        pairs = self.pairs(label)
        ours = sum(lifetime_area(run, alone.steps) for run, alone in pairs)
        theirs = sum(lifetime_area(alone, alone.steps) for _, alone in pairs)
        return ours / theirs if theirs > 0.0 else math.nan

    def half_success(self, label: str, after: int = 0) -> tuple[float, float]:
        """Return the median iteration of half success over tasks and seeds, and STL's."""
        found = [t for group in self.transfers(label, after).values() for t in group]
        ours, alone = [t.half for t in found], [t.half_alone for t in found]
        return (float(np.median(ours)), float(np.median(alone))) if found else (math.nan, math.nan)


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
