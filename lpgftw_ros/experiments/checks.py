"""The paper's claims as checks on our own runs."""

from dataclasses import dataclass
import math

from lpgftw_ros.experiments.groups import SuiteRuns
from lpgftw_ros.experiments.metrics import retention

OURS = 'lpg-ftw'
MANIPULATION_SUITES = ('mt', 'cw', 'demo')
RETENTION_BAR = 0.97
RETENTION_BAR_MANIPULATION = 0.90
"""Lower where the paper itself reports a loss (MT10: 0.965)."""
SUCCESS_MARGIN = 0.1


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, what was measured, and whether it holds here."""

    claim: str
    measured: str
    holds: bool | None
    """None: not measured (yet)."""

    @property
    def verdict(self) -> str:
        """Say it in words."""
        if self.holds is None:
            return 'not measured'
        return 'holds' if self.holds else 'does not hold'


def checks(group: SuiteRuns) -> tuple[Check, ...]:
    """Return every claim of the paper that these runs can test."""
    if OURS not in group.methods:
        return ()
    found = [_faster(group), _better(group), _keeps(group)]
    if group.suite.startswith(MANIPULATION_SUITES):
        found += [_most_tasks(group), _succeeds(group)]
    return tuple(found)


def _faster(group: SuiteRuns) -> Check:
    estimate = group.forward_transfer(OURS, after=group.columns)
    claim = f'learns faster than STL after the first {group.columns} tasks (area > STL)'
    if math.isnan(estimate.value):
        return Check(claim, '', None)
    measured = (
        f'IQM of area gained {estimate.value:+.1%} '
        f'(95 % interval {estimate.low:+.1%} to {estimate.high:+.1%})'
    )
    return Check(claim, measured, estimate.value > 0.0)


def _better(group: SuiteRuns) -> Check:
    ratio = group.tune_ratio(OURS)
    claim = 'tuned policies at least as good as STL (tune / STL ≥ 1)'
    return _bar(claim, ratio, 1.0)


def _keeps(group: SuiteRuns) -> Check:
    values = [v for run in group.methods[OURS] if (v := retention(run)) is not None]
    manipulation = group.suite.startswith(MANIPULATION_SUITES)
    bar = RETENTION_BAR_MANIPULATION if manipulation else RETENTION_BAR
    claim = f'does not forget (final / tune ≥ {bar:.2f})'
    if not values:
        return Check(claim, '', None)
    mean = sum(values) / len(values)
    measured = f'{mean:.3f}'
    final, tune = (group.stage(OURS, stage) for stage in ('final', 'tune'))
    if len(values) > 1 and final is not None and tune is not None:
        seeds = ', '.join(f'{value:.3f}' for value in values)
        measured += f' (seed by seed {seeds}; of the mean returns {final.value / tune.value:.3f})'
    return Check(claim, measured, mean >= bar)


def _bar(claim: str, value: float | None, bar: float) -> Check:
    if value is None:
        return Check(claim, '', None)
    return Check(claim, f'{value:.3f}', value >= bar)


def _most_tasks(group: SuiteRuns) -> Check:
    wins, n = group.tasks_above(OURS, after=group.columns)
    needed = math.ceil(6 / 7 * n)
    claim = f'area above STL on at least {needed} of {n} tasks after the first {group.columns}'
    return Check(claim, f'{wins} of {n}', wins >= needed) if n else Check(claim, '', None)


def _succeeds(group: SuiteRuns) -> Check:
    claim = f'success within {SUCCESS_MARGIN} of STL or above, at tune'
    if 'stl' not in group.methods:
        return Check(claim, '', None)
    ours, alone = (group.stage_success(label, 'tune') for label in (OURS, 'stl'))
    if ours is None or alone is None:
        return Check(claim, '', None)
    return Check(claim, f'{ours:.2f} against {alone:.2f}', ours >= alone - SUCCESS_MARGIN)
