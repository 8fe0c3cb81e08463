"""Aggregates over tasks and seeds that outliers do not rule, with their uncertainty.

Interquartile mean, stratified bootstrap and probability of improvement as recommended for few
seeds by Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(NeurIPS 2021). A stratum is a task; its scores are the seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math

import numpy as np

from lpgftw_ros.learning.arrays import Array

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
    """Return resamples with replacement. Shape (resamples, len(scores))."""
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
