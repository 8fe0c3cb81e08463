"""One task in training: everything that changes from iteration to iteration."""

from dataclasses import dataclass, field

import numpy as np

from lpgftw_ros.errors import LearnerMisuse, StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.config import TrainingConfig
from lpgftw_ros.learning.learner import ValueReport
from lpgftw_ros.learning.policies import PolicySpec, TaskFactors
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.learning.returns import advantages, discounted_returns, whiten
from lpgftw_ros.learning.state import AnyArray, pack_number, prefixed, StateReader
from lpgftw_ros.learning.values import (
    Floats,
    n_value_parameters,
    relative_error,
    value_arrays,
    value_features,
    ValueFunction,
)


@dataclass(frozen=True, slots=True)
class ValueTask:
    """A value fit that is due: made by `improve`, done by `fit_values`."""

    features: Floats
    targets: Array
    iteration: int


@dataclass(slots=True)
class TaskRun:
    """The running (or parked) task."""

    task: str
    seed: int
    """Root of the task's own random numbers."""
    factors: TaskFactors
    values: ValueFunction
    iteration: int = 0
    extras: dict[str, Array] = field(default_factory=dict)
    """What a method keeps beside, by name; float64 vectors."""
    due: ValueTask | None = None

    def advantages(self, batch: Batch, config: TrainingConfig, gae_lambda: float) -> Array:
        """Return whitened advantages under the present value function."""
        return whitened_advantages(self.values, batch, config, gae_lambda)

    def begin_iteration(self, batch: Batch, config: TrainingConfig) -> tuple[Array, ValueTask]:
        """Return whitened advantages and the value fit that will follow the policy step."""
        if self.due is not None:
            raise LearnerMisuse('fit_values has to run before the next improve')
        features = value_features(batch.observations, batch.step_in_trajectory)
        predicted = self.values.predict(features)
        targets = discounted_returns(batch, config.gamma)
        due = ValueTask(features, targets, self.iteration)
        return _advantages(self.values, batch, predicted, config, config.gae_lambda), due

    def fit_values(self, config: TrainingConfig) -> ValueReport:
        """Fit the value function to the batch of the last policy step."""
        if self.due is None:
            raise LearnerMisuse('fit_values needs an improve before it')
        due = self.due
        self.values.fit(
            due.features,
            due.targets,
            generator(self.seed, Purpose.VALUE_FIT, due.iteration),
            epochs=config.value_epochs,
            learning_rate=config.value_learning_rate,
        )
        after = relative_error(self.values.predict(due.features), due.targets)
        self.due = None
        return ValueReport(after)

    def arrays(self) -> dict[str, AnyArray]:
        """Return everything a later continuation needs."""
        return {
            'seed': pack_number(self.seed),
            'iteration': pack_number(self.iteration),
            **factor_arrays(self.factors),
            **value_arrays(self.values),
            **{name: array.copy() for name, array in prefixed('extra', self.extras).items()},
        }


def whitened_advantages(
    values: ValueFunction, batch: Batch, config: TrainingConfig, gae_lambda: float
) -> Array:
    """Return whitened advantages of a batch under a value function. Shape (M,)."""
    features = value_features(batch.observations, batch.step_in_trajectory)
    return _advantages(values, batch, values.predict(features), config, gae_lambda)


def _advantages(
    values: ValueFunction,
    batch: Batch,
    predicted: Array,
    config: TrainingConfig,
    gae_lambda: float,
) -> Array:
    final = None
    if config.bootstrap_timeouts:
        final = values.predict(value_features(batch.final_observations, batch.lengths))
    raw = advantages(batch, predicted, final, gamma=config.gamma, gae_lambda=gae_lambda)
    return whiten(raw)


def factor_arrays(factors: TaskFactors) -> dict[str, AnyArray]:
    """Return the arrays a state keeps of a task's factors."""
    return {
        'coefficients': factors.coefficients.copy(),
        'residual': factors.residual.copy(),
        'head': factors.head.copy(),
        'log_std': factors.log_std.copy(),
    }


def read_factors(reader: StateReader, prefix: str, spec: PolicySpec, columns: int) -> TaskFactors:
    """Read factors whose coefficients fit a basis of so many columns."""
    s = reader.floats(f'{prefix}/coefficients', None)
    if len(s) > columns:
        raise StateMismatch(f'{prefix}/coefficients has {len(s)} numbers for {columns} columns')
    return TaskFactors(
        s,
        reader.floats(f'{prefix}/residual', spec.n_parameters),
        reader.floats(f'{prefix}/head', spec.head_size),
        reader.floats(f'{prefix}/log_std', spec.act_dim),
    )


def read_values(reader: StateReader, prefix: str, obs_dim: int) -> ValueFunction:
    """Read a value function."""
    shape = (n_value_parameters(obs_dim),)
    return ValueFunction(
        reader.array(f'{prefix}/value_parameters', shape, np.float32),
        reader.array(f'{prefix}/value_first_moment', shape, np.float32),
        reader.array(f'{prefix}/value_second_moment', shape, np.float32),
        reader.number(f'{prefix}/value_updates'),
    )


def read_run(
    reader: StateReader,
    prefix: str,
    task: str,
    spec: PolicySpec,
    columns: int,
    extras: dict[str, int],
) -> TaskRun:
    """Read a running or parked task; `extras` names the vectors beside it and their lengths."""
    return TaskRun(
        task,
        reader.number(f'{prefix}/seed'),
        read_factors(reader, prefix, spec, columns),
        read_values(reader, prefix, spec.obs_dim),
        reader.number(f'{prefix}/iteration'),
        {name: reader.floats(f'{prefix}/extra/{name}', n) for name, n in extras.items()},
    )
