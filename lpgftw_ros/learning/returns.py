r"""Discounted sums and advantages of ragged batches, without a loop over trajectories.

.. math::
    R_t = \sum_i \gamma^i r_{t+i}, \qquad
    \delta_t = r_t + \gamma V_{t+1} - V_t, \qquad
    \hat A_t = \sum_i (\gamma\lambda)^i \delta_{t+i}
"""

import numpy as np
from scipy.signal import lfilter

from lpgftw_ros.learning.arrays import Array, Integers
from lpgftw_ros.learning.batch import Batch


def discounted_sums(values: Array, lengths: Integers, discount: float) -> Array:
    """Return the discounted sum from each step to the end of its trajectory. Shape (M,)."""
    longest = int(np.max(lengths))
    # right-aligned and read backwards, the zeros of short rows come first and add nothing
    inside = np.arange(longest) < np.asarray(lengths)[:, None]
    padded = np.zeros((len(lengths), longest))
    padded[inside] = values
    summed = lfilter([1.0], [1.0, -discount], padded[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(summed[inside])


def discounted_returns(batch: Batch, gamma: float) -> Array:
    """Return the discounted reward still to come at each step; the value function's target."""
    return discounted_sums(batch.rewards, batch.lengths, gamma)


def advantages(
    batch: Batch,
    values: Array,
    final_values: Array | None,
    *,
    gamma: float,
    gae_lambda: float,
) -> Array:
    """Return generalised advantage estimates, one per step. Shape (M,).

    Args:
        batch: The trajectories.
        values: V of each observation. Shape (M,).
        final_values: V after the last step of each trajectory, used where the time limit alone
            ended it; None counts every end as worth nothing. Shape (n,).
        gamma: Discount per step.
        gae_lambda: Decay of the estimator.
    """
    ends = batch.starts + batch.lengths - 1
    following = np.append(values[1:], 0.0)
    following[ends] = 0.0
    if final_values is not None:
        timed_out = batch.truncated & ~batch.terminated & ~batch.failed
        following[ends] = np.where(timed_out, final_values, 0.0)
    td_errors = batch.rewards + gamma * following - values
    return discounted_sums(td_errors, batch.lengths, gamma * gae_lambda)


def whiten(values: Array) -> Array:
    """Shift and scale to mean 0 and standard deviation 1 over the whole batch."""
    return np.asarray((values - np.mean(values)) / (np.std(values) + 1e-6))
