"""`lpgftw bench update`: what learning costs, against the bare work it cannot do without.

`lpgftw bench growth`: does the dense update of the basis get slower with every task?

Both contestants of a ratio take turns in one process on the same BLAS threads; each one's time is
its shortest of several rounds, the one least disturbed.
"""

import argparse
from collections.abc import Callable
import json
import time

import numpy as np
from scipy.linalg.lapack import dpotrf
from threadpoolctl import threadpool_limits

from lpgftw_ros import arguments
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning import Batch, Learner, make_learner, PolicySpec
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.knowledge_base import BasisRules, KnowledgeBase
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.solvers import make_solver, TaskTerm, with_form
from lpgftw_ros.learning.values import Floats, relative_error, value_features, ValueFunction

SPEC = PolicySpec(obs_dim=6, act_dim=4, hidden=(32, 32))
COLUMNS, TRAJECTORIES, HORIZON = 3, 10, 150
EARLY, LATE = 5, 50
"""Tasks whose updates `growth` compares."""
FIT_TRAJECTORIES, EPOCHS, MINIBATCH, RATE, DECAY = 50, 10, 64, 1e-3, 1e-3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    parser.add_argument(
        '--rounds', type=arguments.count, default=5, help='turns of each contestant'
    )
    parser.add_argument(
        '--threads', type=arguments.threads, default=1, help='BLAS and torch threads'
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print the ratios and the times behind them."""
    with threadpool_limits(limits=args.threads):
        if args.bench == 'growth':
            results = growth(args.rounds)
        else:
            results = {**knowledge(args.rounds), **value_fit(args.rounds, args.threads)}
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        print('\n'.join(f'{name:<24}{value:>10.3f}' for name, value in results.items()))
    return 0


def knowledge(rounds: int) -> dict[str, float]:
    """Time gradient + Fisher + L update (d = 1280, k = 3) against one dpotrf and one J'J."""
    rng = np.random.default_rng(0)
    learner = make_learner('lpg-ftw', SPEC, {'max_columns': COLUMNS}, seed=0)
    for number in range(COLUMNS):
        _finish(learner, f'column-{number}', rng)
    size = COLUMNS * SPEC.n_parameters
    matrix = np.asfortranarray(np.eye(size) + 1e-4 * rng.standard_normal((size, size)))
    jacobian = rng.standard_normal((TRAJECTORIES * HORIZON * SPEC.act_dim, SPEC.n_parameters))
    ours, potrf, jtj = [], [], []
    for number in range(rounds):
        ours.append(_finish(learner, f'task-{number}', rng))
        potrf.append(_seconds(lambda: dpotrf(matrix, lower=1)))
        jtj.append(_seconds(lambda: jacobian.T @ jacobian))
    return {
        'knowledge_ratio': min(ours) / (min(potrf) + min(jtj)),
        'knowledge_seconds': min(ours),
        'dpotrf_seconds': min(potrf),
        'jtj_seconds': min(jtj),
    }


def _finish(learner: Learner, task: str, rng: np.random.Generator) -> float:
    """Fold in a task from its extra trajectories; return the seconds that took."""
    learner.start_task(task, seed=0)
    policy = learner.knowledge().compose(learner.factors())
    n_steps = TRAJECTORIES * HORIZON
    obs = rng.standard_normal((n_steps, SPEC.obs_dim))
    actions = policy.act(obs, rng.standard_normal((n_steps, SPEC.act_dim)))
    no = np.zeros(TRAJECTORIES, dtype=bool)
    batch = Batch(
        task=task,
        observations=obs,
        actions=actions,
        rewards=-np.sum(actions**2, axis=1),
        lengths=np.full(TRAJECTORIES, HORIZON),
        terminated=no,
        truncated=~no,
        success=no,
        failed=no,
        final_observations=obs[:TRAJECTORIES],
    )
    return _seconds(lambda: learner.finish_task(batch))


class _Update:
    """A knowledge base that folds in the same task again and again, from the same place."""

    def __init__(self, number: int, model: LocalModel) -> None:
        rng, d = np.random.default_rng(number), SPEC.n_parameters
        self._model, self._s = model, rng.standard_normal(COLUMNS)
        solver = make_solver('dense')
        self._coefficients = {f'task {t}': rng.standard_normal(COLUMNS) for t in range(1, number)}
        for s in self._coefficients.values():
            solver.add(TaskTerm(s, with_form(model, 'dense', SPEC)))
        self._sums, self._basis = solver.sums(), rng.standard_normal((d, COLUMNS))
        rules = BasisRules(max_columns=COLUMNS, keep_local_models=False)
        self._knowledge = KnowledgeBase(SPEC, solver, rules)

    def seconds(self) -> float:
        """Fold the task in and return how long that took."""
        sums = {name: array.copy() for name, array in self._sums.items()}
        self._knowledge.restore(self._basis, self._coefficients, {}, sums, None)
        began = time.perf_counter()
        self._knowledge.add('the next task', self._s, self._model)
        return time.perf_counter() - began


def growth(rounds: int) -> dict[str, float]:
    """Time the dense update of task 50 against that of task 5 (d = 1280, k = 3)."""
    rng, d = np.random.default_rng(0), SPEC.n_parameters
    rows = rng.standard_normal((2 * d, d))
    curvature = -(rows.T @ rows) / len(rows)
    model = LocalModel(rng.standard_normal(d), rng.standard_normal(d), curvature)
    early, late = _Update(EARLY, model), _Update(LATE, model)
    times = [(early.seconds(), late.seconds()) for _ in range(rounds)]
    first, second = (min(column) for column in zip(*times, strict=True))
    return {'ratio': second / first, 'seconds_task_5': first, 'seconds_task_50': second}


def value_fit(rounds: int, threads: int) -> dict[str, float]:
    """Time one value fit against the plain torch loop with optim.Adam, from the same weights."""
    ours, torchs, errors = [], [], []
    for number in range(rounds):
        rng = np.random.default_rng(number)
        features, targets = _value_data(rng)
        start = ValueFunction.create(SPEC.obs_dim, rng)
        fitted, seconds = _our_fit(start, features, targets, number)
        wanted, torch_seconds = _torch_fit(start, features, targets, number, threads)
        ours.append(seconds)
        torchs.append(torch_seconds)
        errors.append((relative_error(fitted, targets), relative_error(wanted, targets)))
    error, torch_error = np.mean(errors, axis=0)
    return {
        'value_fit_ratio': min(torchs) / min(ours),
        'value_error_ratio': float(error / torch_error),
        'value_fit_seconds': min(ours),
        'torch_fit_seconds': min(torchs),
        'value_error': float(error),
        'torch_error': float(torch_error),
    }


def _value_data(rng: np.random.Generator) -> tuple[Floats, Array]:
    """Return 7500 samples that look like discounted returns of a reaching task."""
    step = np.tile(np.arange(HORIZON), FIT_TRAJECTORIES)
    obs = rng.standard_normal((len(step), SPEC.obs_dim))
    near = np.exp(-0.5 * np.sum(obs[:, :3] ** 2, axis=1))
    targets = 10.0 * near + 5.0 * np.tanh(obs[:, 3]) + 0.05 * (HORIZON - step)
    return value_features(obs, step), targets + rng.standard_normal(len(step))


def _our_fit(
    start: ValueFunction, features: Floats, targets: Array, seed: int
) -> tuple[Array, float]:
    values, rng = start.copy(), np.random.default_rng(seed)
    seconds = _seconds(
        lambda: values.fit(features, targets, rng, epochs=EPOCHS, learning_rate=RATE)
    )
    return values.predict(features), seconds


def _torch_fit(
    start: ValueFunction, features: Floats, targets: Array, seed: int, threads: int
) -> tuple[Array, float]:
    """Train the same network on the same minibatches as one would by the book."""
    try:
        import torch
    except ImportError as error:
        raise LpgftwError(f'the peer is not installed: {error}') from None
    torch.set_num_threads(threads)
    network = torch.nn.Sequential()
    for weights in start.layers(features.shape[1]):
        layer = torch.nn.Linear(len(weights) - 1, weights.shape[1])
        layer.weight.data = torch.from_numpy(weights[:-1].T.copy())
        layer.bias.data = torch.from_numpy(weights[-1].copy())
        network.extend([layer, torch.nn.ReLU()])
    network.pop(-1)
    x = torch.from_numpy(features[:, :-1].copy())
    y = torch.from_numpy(targets.astype(np.float32))[:, None]
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE, weight_decay=DECAY)
    rng = np.random.default_rng(seed)

    def loop() -> None:
        for _ in range(EPOCHS):
            order = torch.from_numpy(rng.permutation(len(y)))
            for first in range(0, (len(y) // MINIBATCH - 1) * MINIBATCH, MINIBATCH):
                rows = order[first : first + MINIBATCH]
                loss = torch.nn.functional.mse_loss(network(x[rows]), y[rows])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    seconds = _seconds(loop)
    with torch.no_grad():
        return network(x)[:, 0].double().numpy(), seconds


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
