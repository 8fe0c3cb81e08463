r"""Where a task starts.

A new task: :math:`\theta = L \bar s + r` with :math:`r = 0`, a fresh head, and

.. math:: \log\sigma = \log\sigma_0 \text{ or } \tfrac1T \sum_t \log\sigma_t,

the second only where it earns more. It may also start as the latest or the best earlier task, with
its s, r, head and sigma, where that earns more. Without a column theta would be a dead network:
the first task starts at random, as in STL. Everything later builds on it, so it is drawn D times:
every draw runs m iterations, the best :math:`\lceil \kappa D \rceil` go on for :math:`m/2` more,
and so on until one is left, which continues to the N iterations requested; no draw runs longer
than that:

.. math:: D\,m + \lceil \kappa D \rceil\, \tfrac m2 + \dots + (N - m_{last})
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
import math

import numpy as np

from lpgftw_ros.learning.adaptive.budget import recent_return
from lpgftw_ros.learning.adaptive.config import AdaptiveConfig
from lpgftw_ros.learning.adaptive.guard import Found, gains, Series, wins
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.learner import Probe
from lpgftw_ros.learning.lifetime import TaskRun
from lpgftw_ros.learning.policies import (
    initial_head,
    initial_theta,
    pad,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.serialise import AnyArray, pack_names, prefixed, read_run, StateReader
from lpgftw_ros.learning.values import ValueFunction


def random_factors(
    spec: PolicySpec, log_std: Array, seed: int, *path: int, columns: int = 0
) -> TaskFactors:
    """Return a random policy, as single-task learning starts; `path` tells draws apart."""
    rng = generator(seed, Purpose.POLICY_INIT, *path)
    theta, head = initial_theta(spec, rng), initial_head(spec, rng)
    return TaskFactors(np.zeros(columns), theta, head, log_std)


def transferred_factors(spec: PolicySpec, s: Array, log_std: Array, seed: int) -> TaskFactors:
    """Return theta = L s with a fresh head and a sigma."""
    rng = generator(seed, Purpose.POLICY_INIT)
    initial_theta(spec, rng)  # the head is the one LPG-FTW draws
    return TaskFactors(s, np.zeros(spec.n_parameters), initial_head(spec, rng), log_std)


# The start of a task is noted, so that the task can go back to it.


def start_sizes(spec: PolicySpec, max_columns: int) -> dict[str, int]:
    """Return the vectors a task keeps of its start."""
    return {
        'start_s': max_columns,
        'start_r': spec.n_parameters,
        'start_head': spec.head_size,
        'start_log_std': spec.act_dim,
    }


def note_start(factors: TaskFactors, max_columns: int) -> dict[str, Array]:
    """Return a start as vectors of fixed length."""
    return {
        'start_s': pad(factors.coefficients, max_columns),
        'start_r': factors.residual,
        'start_head': factors.head,
        'start_log_std': factors.log_std,
    }


def noted_start(extras: Mapping[str, Array], columns: int) -> TaskFactors:
    """Return the start `note_start` noted."""
    s, r = extras['start_s'][:columns], extras['start_r']
    return TaskFactors(s.copy(), r, extras['start_head'], extras['start_log_std'])


# Starts that are measured.


@dataclass(frozen=True, slots=True)
class Candidate:
    """A start besides the usual one."""

    factors: TaskFactors
    margin: float
    """Relative gain at which it is taken."""
    values: ValueFunction | None = None
    """Value function of the policy, if it is that of another task."""


def measured_start(
    run: TaskRun, candidates: Mapping[str, Candidate], config: AdaptiveConfig, found: Found
) -> Series[Candidate | None]:
    """Return the start that earns most, with common random numbers; none: the usual one."""
    own = yield Probe(run.task, run.factors, config.start_trajectories, True, 'start')
    returns: dict[str, Array] = {}
    for name, candidate in candidates.items():
        batch = yield Probe(run.task, candidate.factors, config.start_trajectories, True, 'start')
        returns[name] = batch.returns
    n = len(candidates)
    better = [
        name
        for name, candidate in candidates.items()
        if wins(returns[name], own.returns, candidate.margin, tests=n)
    ]
    best = max(better, key=lambda name: float(np.mean(returns[name])), default=None)
    found.update({name: float(name == best) for name in candidates})
    return None if best is None else candidates[best]


def kept_start(tuned: Probe, start: Probe, config: AdaptiveConfig, found: Found) -> Series[bool]:
    """Return whether a task earned more by its mean action where it started than tuned."""
    returns = []
    for probe in (tuned, start):
        batch = yield probe
        returns.append(batch.returns)
    kept = gains(returns[1], returns[0], config.inherit_margin)
    found['start_kept'] = float(kept)
    return kept


# Several random starts, by successive halving; and starts that came to nothing.


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of one task, without the running one."""

    waiting: tuple[TaskRun, ...] = ()
    """To be run in this round."""
    done: tuple[TaskRun, ...] = ()
    """Run in this round."""
    rung: int = 0
    """Finished rounds."""
    spent: int = 0
    """Iterations of the draws that were dropped."""
    failed: int = 0
    """Iterations of starts that were dropped; they count in the number requested."""

    @property
    def iterations(self) -> int:
        """Iterations of all draws but the one that runs."""
        others = sum(run.iteration for run in self.others)
        return self.spent + self.failed + others

    @property
    def others(self) -> tuple[TaskRun, ...]:
        """All draws that are left but the one that runs."""
        return (*self.waiting, *self.done)


def rung_end(rung: int, asked: int, config: AdaptiveConfig) -> int:
    """Return the iterations of a draw after which round `rung` ends."""
    m = config.draw_iterations
    return min(m + rung * max(1, m // 2), asked)


def kept(n: int, end: int, asked: int, config: AdaptiveConfig) -> int:
    """Return how many of n draws continue; one if they have all iterations requested."""
    return 1 if end == asked else min(n - 1, math.ceil(config.draw_keep * n))


def advance(
    draws: Draws, run: TaskRun, asked: int, config: AdaptiveConfig
) -> tuple[Draws, TaskRun]:
    """Return the draws and the run to continue with after an iteration of `run`."""
    end = rung_end(draws.rung, asked, config)
    if not draws.others or run.iteration < end:
        return draws, run
    done = (*draws.done, run)
    if draws.waiting:
        return replace(draws, waiting=draws.waiting[1:], done=done), draws.waiting[0]
    ranked = sorted(done, key=lambda other: -recent_return(other.extras))
    best = ranked[: kept(len(done), end, asked, config)]
    spent = draws.spent + sum(other.iteration for other in ranked[len(best) :])
    return Draws(tuple(best[1:]), (), draws.rung + 1, spent, draws.failed), best[0]


def total_iterations(n_draws: int, asked: int, config: AdaptiveConfig) -> int:
    """Return the iterations of the whole schedule, every draw counted."""
    total, before, n, rung = 0, 0, n_draws, 0
    while n > 1:
        end = rung_end(rung, asked, config)
        total, before = total + n * (end - before), end
        n, rung = kept(n, end, asked, config), rung + 1
    return total + max(0, asked - before)


def draws_arrays(draws: Mapping[str, Draws]) -> dict[str, AnyArray]:
    """Return the draws of all running and parked tasks as arrays."""
    state: dict[str, AnyArray] = {'run/draws': pack_names(draws)}
    for task, one in draws.items():
        prefix = f'run/draws/{task}'
        numbers = (len(one.waiting), len(one.done), one.rung, one.spent, one.failed)
        state[f'{prefix}/numbers'] = np.array(numbers, np.uint64)
        for i, run in enumerate(one.others):
            state |= prefixed(f'{prefix}/{i}', run.arrays())
    return state


def read_draws(
    reader: StateReader, spec: PolicySpec, columns: int, extras: dict[str, int]
) -> dict[str, Draws]:
    """Read what `draws_arrays` wrote."""
    draws = {}
    for task in reader.names('run/draws'):
        prefix = f'run/draws/{task}'
        numbers = reader.array(f'{prefix}/numbers', (5,), np.uint64)
        waiting, done, *rest = (int(n) for n in numbers)
        runs = tuple(
            TaskRun(task, *read_run(reader, f'{prefix}/{i}', spec, columns, extras))
            for i in range(waiting + done)
        )
        draws[task] = Draws(runs[:waiting], runs[waiting:], *rest)
    return draws
