r"""Returns, advantages, and the value function of one task.

.. math::
    R_t = \sum_i \gamma^i r_{t+i}, \qquad
    \delta_t = r_t + \gamma V_{t+1} - V_t, \qquad
    \hat A_t = \sum_i (\gamma\lambda)^i \delta_{t+i}

The value function is a small network fitted to discounted returns: input [clip(obs, +-10)/10, tau,
tau^2, tau^3, tau^4, 1] with tau = step/1000, two layers of 128 ReLU units, mean squared error,
Adam with weight decay. It is written in float32 numpy. With 64 rows per minibatch a training
library spends most of its time on bookkeeping; here a minibatch takes five matrix products and one
fused Adam step on a flat vector. The products release the interpreter lock, so a fit runs while
the next trajectories are sampled.

Raw returns of a robot task may be 1e5, and inputs vary by 1e-2: then Adam needs dozens of fits
before V explains anything. With `value_scaling` it works on standardised inputs and targets,
:math:`\tilde x = (x - m)/c` and :math:`\tilde R = (R - \mu)/\varsigma` of the present batch; the
scales go into the first and last layer before and after, so V itself keeps its units.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import saxpy

from lpgftw_ros.learning.arrays import Array, Batch, Integers, require_finite
from lpgftw_ros.learning.config import TrainingConfig

Floats: TypeAlias = NDArray[np.float32]
WIDTH = 128
MINIBATCH = 64
BETA1, BETA2, ADAM_TINY = 0.9, 0.999, 1e-8
WEIGHT_DECAY = 1e-3


def value_features(obs: Array, step: Integers) -> Floats:
    """Return the network's input, the biases' constant last. Shape (n_steps, obs_dim + 5)."""
    features = np.ones((len(obs), obs.shape[1] + 5), dtype=np.float32)
    features[:, :-5] = np.clip(obs, -10.0, 10.0) / 10.0
    features[:, -5:-1] = (step[:, None] / 1000.0) ** np.arange(1, 5)
    return features


def n_value_parameters(obs_dim: int) -> int:
    """Return the number of weights and biases."""
    return (obs_dim + 5) * WIDTH + (WIDTH + 1) * WIDTH + WIDTH + 1


@dataclass(slots=True)
class ValueFunction:
    """Weights of the network and the state of its optimiser."""

    parameters: Floats
    """All layers flat, each (inputs + 1, outputs) with its biases in the last row."""
    first_moment: Floats
    second_moment: Floats
    n_updates: int = 0

    @classmethod
    def create(cls, obs_dim: int, rng: np.random.Generator) -> 'ValueFunction':
        """Draw all layers from U(+-1/sqrt(fan_in))."""
        layers = []
        for fan_in, width in ((obs_dim + 4, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)):
            bound = 1.0 / np.sqrt(fan_in)
            layers.append(rng.uniform(-bound, bound, (fan_in + 1) * width))
        flat = np.concatenate(layers).astype(np.float32)
        return cls(flat, np.zeros_like(flat), np.zeros_like(flat))

    def copy(self) -> 'ValueFunction':
        """Return an independent copy."""
        return ValueFunction(
            self.parameters.copy(),
            self.first_moment.copy(),
            self.second_moment.copy(),
            self.n_updates,
        )

    def layers(self, n_inputs: int) -> tuple[Floats, Floats, Floats]:
        """Return the weights (inputs + 1, outputs) of each layer, biases last, as views."""
        W1, W2, w3 = _layers(self.parameters, n_inputs)
        return W1, W2, w3[:, None]

    def predict(self, features: Floats) -> Array:
        """Return V of each row. Shape (n_steps,), float64."""
        W1, W2, w3 = _layers(self.parameters, features.shape[1])
        h1 = np.maximum(features @ W1, 0.0)
        h2 = np.maximum(h1 @ W2[:-1] + W2[-1], 0.0)
        return np.asarray(h2 @ w3[:-1] + w3[-1], dtype=np.float64)

    def fit(
        self,
        features: Floats,
        targets: Array,
        rng: np.random.Generator,
        *,
        epochs: int,
        learning_rate: float,
        scaled: bool = False,
    ) -> None:
        """Run Adam over shuffled minibatches; if it diverges, nothing changes.

        As published, each epoch leaves out the last full minibatch and the remainder. `scaled`
        works on standardised inputs and targets.
        """
        n_batches = max(1, len(targets) // MINIBATCH - 1)
        work, scaling = self.copy(), _Scaling.of(features, targets) if scaled else None
        if scaling is not None:
            features, targets = scaling.inputs(features), scaling.targets(targets)
            if self.n_updates:  # the first layers are drawn for standardised numbers
                scaling.enter(work.parameters)
        goal = targets.astype(np.float32)
        size = min(MINIBATCH, len(targets))
        trainer = _Trainer(work, features.shape[1], size, learning_rate)
        for _ in range(epochs):
            order = rng.permutation(len(targets))[: n_batches * size]
            x, y = features[order], goal[order]
            for start in range(0, n_batches * size, size):
                trainer.step(x[start : start + size], y[start : start + size])
        if scaling is not None:
            scaling.leave(work.parameters)
        require_finite('the fitted value function', work.parameters)
        self.parameters, self.n_updates = work.parameters, work.n_updates
        self.first_moment, self.second_moment = work.first_moment, work.second_moment


LEAST_SPREAD = 0.1
"""An input that hardly varies is scaled by this share of the mean spread of all inputs."""


@dataclass(frozen=True, slots=True)
class _Scaling:
    """Mean and spread of the inputs and targets of one fit."""

    m: Floats
    """Mean of each input but the constant one. Shape (n_inputs - 1,)."""
    c: Floats
    """Spread of each. Shape (n_inputs - 1,)."""
    mu: float
    spread: float
    """Mean and spread of the targets."""

    @classmethod
    def of(cls, features: Floats, targets: Array) -> '_Scaling':
        """Measure a batch."""
        x = features[:, :-1].astype(np.float64)
        spread, target = np.std(x, axis=0), float(np.std(targets))
        c = np.maximum(spread, LEAST_SPREAD * np.mean(spread))
        c = np.where(c > 0.0, c, 1.0)
        mean = np.mean(x, axis=0)
        return cls(
            mean.astype(np.float32),
            c.astype(np.float32),
            float(np.mean(targets)),
            target if target > 0.0 else 1.0,
        )

    def inputs(self, features: Floats) -> Floats:
        """Return standardised inputs, the constant one kept."""
        return np.column_stack(((features[:, :-1] - self.m) / self.c, features[:, -1]))

    def targets(self, targets: Array) -> Array:
        """Return standardised targets."""
        return (targets - self.mu) / self.spread

    def enter(self, parameters: Floats) -> None:
        """Let the network take standardised inputs and give standardised values."""
        W1, _, w3 = _layers(parameters, len(self.c) + 1)
        W1[-1] += self.m @ W1[:-1]
        W1[:-1] *= self.c[:, None]
        w3 /= np.float32(self.spread)
        w3[-1] -= np.float32(self.mu / self.spread)

    def leave(self, parameters: Floats) -> None:
        """Undo `enter`."""
        W1, _, w3 = _layers(parameters, len(self.c) + 1)
        W1[:-1] /= self.c[:, None]
        W1[-1] -= self.m @ W1[:-1]
        w3[-1] += np.float32(self.mu / self.spread)
        w3 *= np.float32(self.spread)


def _layers(flat: Floats, n_inputs: int) -> tuple[Floats, Floats, Floats]:
    """Return the layers as views of the flat vector."""
    first, second = n_inputs * WIDTH, (WIDTH + 1) * WIDTH
    W1, W2, w3 = np.split(flat, (first, first + second))
    return W1.reshape(n_inputs, WIDTH), W2.reshape(WIDTH + 1, WIDTH), w3


class _Trainer:
    """Buffers of one fit; `step` allocates nothing."""

    def __init__(self, values: ValueFunction, n_inputs: int, rows: int, rate: float) -> None:
        self._values, self._rate = values, rate
        self._gradient = np.empty_like(values.parameters)
        self._scratch = np.empty_like(values.parameters)
        self._weights = _layers(values.parameters, n_inputs)
        self._gradients = _layers(self._gradient, n_inputs)
        # last column: constant input of the next layer's biases
        self._h1: Floats = np.ones((rows, WIDTH + 1), np.float32)
        self._h2: Floats = np.ones((rows, WIDTH + 1), np.float32)
        self._z: Floats = np.empty((rows, WIDTH), np.float32)
        self._d: Floats = np.empty((rows, WIDTH), np.float32)
        self._on: NDArray[np.bool_] = np.empty((rows, WIDTH), np.bool_)
        self._error: Floats = np.empty(rows, np.float32)

    def step(self, x: Floats, y: Floats) -> None:
        """Do one minibatch: forward, backward, Adam."""
        W1, W2, w3 = self._weights
        G1, G2, g3 = self._gradients
        h1, h2, z, d, error = self._h1, self._h2, self._z, self._d, self._error
        np.matmul(x, W1, out=z)
        np.maximum(z, 0.0, out=h1[:, :-1])
        np.matmul(h1, W2, out=z)
        np.maximum(z, 0.0, out=h2[:, :-1])
        np.matmul(h2, w3, out=error)
        error -= y
        error *= 2.0 / len(y)
        np.matmul(error, h2, out=g3)
        np.multiply(error[:, None], w3[:-1], out=d)
        np.greater(z, 0.0, out=self._on)
        d *= self._on
        np.matmul(h1.T, d, out=G2)
        np.matmul(d, W2[:-1].T, out=z)
        np.greater(h1[:, :-1], 0.0, out=self._on)
        z *= self._on
        np.matmul(x.T, z, out=G1)
        self._adam()

    def _adam(self) -> None:
        r"""Move all parameters at once.

        The moments are kept without their factors (1 - beta), which go into two scalars:
        :math:`p \leftarrow p - c\, m / (\sqrt v + e)`.
        """
        values, g, scratch = self._values, self._gradient, self._scratch
        p, m, v = values.parameters, values.first_moment, values.second_moment
        values.n_updates += 1
        t = values.n_updates
        spread = np.sqrt((1.0 - BETA2) / (1.0 - BETA2**t))
        c = self._rate * (1.0 - BETA1) / (1.0 - BETA1**t) / spread
        saxpy(p, g, a=WEIGHT_DECAY)
        m *= np.float32(BETA1)
        m += g
        v *= np.float32(BETA2)
        np.multiply(g, g, out=scratch)
        v += scratch
        np.sqrt(v, out=scratch)
        scratch += np.float32(ADAM_TINY / spread)
        np.divide(m, scratch, out=scratch)
        saxpy(scratch, p, a=-c)


def relative_error(predicted: Array, targets: Array) -> float:
    """Return the mean squared error over the variance of the targets (or over 1 if constant)."""
    variance = float(np.var(targets))
    return float(np.mean((predicted - targets) ** 2)) / (variance if variance > 0.0 else 1.0)


# Returns and advantages.


def discounted_sums(values: Array, lengths: Integers, discount: float) -> Array:
    """Return the discounted sum from each step to the end of its trajectory. Shape (n_steps,)."""
    longest = int(np.max(lengths))
    inside = np.arange(longest) < np.asarray(lengths)[:, None]
    # one row per time step, all trajectories at once; the zeros after a short one add nothing
    sums = np.zeros((longest, len(lengths)))
    sums.T[inside] = values
    later, rows = np.zeros(len(lengths)), list(sums)
    for row in reversed(rows):  # scipy's filter gives the same bits, but takes a second to import
        later *= discount
        row += later
        later[:] = row
    return sums.T[inside]


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
    """Return generalised advantage estimates, one per step. Shape (n_steps,).

    Args:
        batch: The trajectories.
        values: V of each observation. Shape (n_steps,).
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


def whitened_advantages(
    values: ValueFunction, batch: Batch, config: TrainingConfig, gae_lambda: float
) -> Array:
    """Return whitened advantages of a batch under a value function. Shape (n_steps,)."""
    features = value_features(batch.observations, batch.step_in_trajectory)
    return advantages_from(values.predict(features), values, batch, config, gae_lambda)


def advantages_from(
    predicted: Array,
    values: ValueFunction,
    batch: Batch,
    config: TrainingConfig,
    gae_lambda: float,
) -> Array:
    """Return whitened advantages from values already predicted. Shape (n_steps,)."""
    final = None
    if config.bootstrap_timeouts:
        final = values.predict(value_features(batch.final_observations, batch.lengths))
    raw = advantages(batch, predicted, final, gamma=config.gamma, gae_lambda=gae_lambda)
    return whiten(raw)
