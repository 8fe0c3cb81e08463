r"""Trust region policy optimisation: the natural step, shortened until it pays.

The step starts as that of the natural gradient, :math:`\Delta = \eta F^{-1} g`, and shrinks until

.. math:: \mathrm{KL} \le \delta \quad\text{and}\quad
          E\Big[\big(\tfrac{\pi'(u|x)}{\pi(u|x)} - 1\big) \hat A\Big] + (g - g_J)^\top \Delta > 0

The first term is the gain of the surrogate return. The second is what a method adds to the
gradient :math:`g_J` of the return (a penalty, replayed trajectories), to first order. If no length
qualifies, the policy stays unchanged.
"""

import numpy as np

from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.learner import measure
from lpgftw_ros.learning.policies import log_likelihood
from lpgftw_ros.learning.steps import Move, Npg, PolicyStep, StepStart

GAIN = measure('surrogate_gain', 'gain of the surrogate return by the step')
SHRINK = 0.8
"""Factor on a step that is refused."""
MAX_SHRINKS = 25
"""The last step tried is 0.4 % of the first."""


class Trpo(Npg):
    """Natural gradient with a backtracking line search."""

    def step(self, start: StepStart, gradient: Move) -> PolicyStep:
        """Return the longest step tried that stays in the trust region and gains."""
        x, length = self.direction(start, gradient)
        added = gradient.flat() - self.gradient(start).flat()
        for refused in range(MAX_SHRINKS + 1):
            delta = length * x
            move = start.coordinates.split(delta)
            gain, kl = surrogate_gain(start, move)
            if kl <= self._config.max_kl and gain + float(added @ delta) > 0.0:
                return PolicyStep(move, kl, length, refused, {GAIN: gain})
            length *= SHRINK
        return PolicyStep(start.coordinates.split(0.0 * x), 0.0, 0.0, refused, {GAIN: 0.0})


def surrogate_gain(start: StepStart, move: Move) -> tuple[float, float]:
    """Return E[(ratio - 1) A] of a move, and its mean KL."""
    new, mean, kl = start.moved(move)
    before: Array = log_likelihood(start.policy, start.at.mean, start.actions)
    ratio = np.exp(log_likelihood(new, mean, start.actions) - before)
    return float(np.mean((ratio - 1.0) * start.advantages)), kl
