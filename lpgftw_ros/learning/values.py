r"""The value function of one task: a small network fitted to discounted returns.

Input [clip(obs, +-10)/10, tau, tau^2, tau^3, tau^4, 1] with tau = step/1000, two layers of 128
ReLU units, mean squared error, Adam with weight decay. Written out in float32 numpy: at 64 rows
per minibatch a training library spends most of its time on bookkeeping, here a minibatch is five
matrix products and a fused Adam step on one flat vector. The products release the interpreter,
so a fit runs beside sampling.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import saxpy

from lpgftw_ros.learning.arrays import Array, Integers, require_finite

Floats: TypeAlias = NDArray[np.float32]
WIDTH = 128
MINIBATCH = 64
BETA1, BETA2, ADAM_TINY = 0.9, 0.999, 1e-8
WEIGHT_DECAY = 1e-3


def value_features(obs: Array, step: Integers) -> Floats:
    """Return the network's input, the constant of the biases last. Shape (M, obs_dim + 5)."""
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
        """Return V of each row. Shape (M,), float64."""
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
    ) -> None:
        """Run Adam over shuffled minibatches; if it diverges nothing is changed.

        As published, each epoch leaves out the last full minibatch and the remainder.
        """
        n_batches = max(1, len(targets) // MINIBATCH - 1)
        goal = targets.astype(np.float32)
        work = self.copy()
        size = min(MINIBATCH, len(targets))
        trainer = _Trainer(work, features.shape[1], size, learning_rate)
        for _ in range(epochs):
            order = rng.permutation(len(targets))[: n_batches * size]
            x, y = features[order], goal[order]
            for start in range(0, n_batches * size, size):
                trainer.step(x[start : start + size], y[start : start + size])
        require_finite('the fitted value function', work.parameters)
        self.parameters, self.n_updates = work.parameters, work.n_updates
        self.first_moment, self.second_moment = work.first_moment, work.second_moment


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
        :math:`p \leftarrow p - c\, M / (\sqrt V + e)`.
        """
        values, g, scratch = self._values, self._gradient, self._scratch
        p, M, V = values.parameters, values.first_moment, values.second_moment
        values.n_updates += 1
        t = values.n_updates
        spread = np.sqrt((1.0 - BETA2) / (1.0 - BETA2**t))
        c = self._rate * (1.0 - BETA1) / (1.0 - BETA1**t) / spread
        saxpy(p, g, a=WEIGHT_DECAY)
        M *= np.float32(BETA1)
        M += g
        V *= np.float32(BETA2)
        np.multiply(g, g, out=scratch)
        V += scratch
        np.sqrt(V, out=scratch)
        scratch += np.float32(ADAM_TINY / spread)
        np.divide(M, scratch, out=scratch)
        saxpy(scratch, p, a=-c)


def relative_error(predicted: Array, targets: Array) -> float:
    """Return the mean squared error over the variance of the targets (or over 1 if constant)."""
    variance = float(np.var(targets))
    return float(np.mean((predicted - targets) ** 2)) / (variance if variance > 0.0 else 1.0)


def value_arrays(values: ValueFunction) -> dict[str, NDArray[Any]]:
    """Return the arrays a state keeps of a value function."""
    return {
        'value_parameters': values.parameters.copy(),
        'value_first_moment': values.first_moment.copy(),
        'value_second_moment': values.second_moment.copy(),
        'value_updates': np.array([values.n_updates], dtype=np.uint64),
    }
