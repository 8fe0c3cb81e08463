"""Learner states as flat dictionaries of arrays: all writers and readers.

Text is stored as bytes, a number as an array of one element, so any array file format can hold a
state. Writers copy what may change later. Readers check everything and raise `StateMismatch`.

A and b of the knowledge base are not written: summing the local models in task order gives the
same bits. Only a knowledge base without local models writes them.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lpgftw_ros.errors import InvalidConfig, NonFinite, StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.knowledge_base import KnowledgeBase
from lpgftw_ros.learning.learner import StatePart
from lpgftw_ros.learning.local_model import LocalModel
from lpgftw_ros.learning.policies import PolicySpec, TaskFactors
from lpgftw_ros.learning.solvers import TaskModel
from lpgftw_ros.learning.solvers.forms import (
    DenseForm,
    DiagonalForm,
    KroneckerForm,
    layer_index,
    SymmetricForm,
)
from lpgftw_ros.learning.values import n_value_parameters, ValueFunction

FORMAT = 1
"""Version of the layout of all learner states."""
SUMS = 'models/sums'
COMPACT = 1e-3
"""Error of a compact curvature, as a share of its smallest eigenvalue."""

AnyArray = NDArray[Any]


# Plain values.


def check_task_name(task: str) -> None:
    """Raise `InvalidConfig` for a name that cannot be part of a state's keys."""
    if not task or '/' in task or '\n' in task:
        raise InvalidConfig(f"a task name needs at least one character and no '/': got '{task}'")


def pack_text(text: str) -> AnyArray:
    """Return a text as an array of bytes."""
    return np.frombuffer(text.encode(), dtype=np.uint8).copy()


def pack_number(number: int) -> AnyArray:
    """Return a non-negative whole number as an array."""
    return np.array([number], dtype=np.uint64)


def pack_names(names: Iterable[str]) -> AnyArray:
    """Return a list of task names as an array of bytes, each after a line break, never empty."""
    return pack_text('\n' + '\n'.join(names))


def prefixed(prefix: str, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Put a prefix before every key."""
    return {f'{prefix}/{key}': value for key, value in arrays.items()}


class StateReader:
    """A state being read; it tracks what was read, so that leftovers can be named."""

    def __init__(self, state: Mapping[str, AnyArray]) -> None:
        self._state = state
        self._read: set[str] = set()

    def array(self, key: str, shape: tuple[int | None, ...], dtype: DTypeLike) -> AnyArray:
        """Return a copy of an array of this shape (None: any length) and type, all finite."""
        found = self._raw(key)
        wanted = np.dtype(dtype)
        fits = len(shape) == found.ndim and all(
            size is None or size == have for size, have in zip(shape, found.shape, strict=False)
        )
        if not fits or found.dtype != wanted:
            expected = '(' + ', '.join('any' if n is None else str(n) for n in shape) + ')'
            raise StateMismatch(
                f'{key} is {found.dtype} {found.shape}, expected {wanted} {expected}'
            )
        if wanted.kind == 'f' and not np.isfinite(found).all():
            raise StateMismatch(f'{key} has elements that are not finite')
        return found.copy()

    def floats(self, key: str, *shape: int | None) -> AnyArray:
        """Return a float64 array."""
        return self.array(key, shape, np.float64)

    def number(self, key: str) -> int:
        """Return a whole number."""
        return int(self.array(key, (1,), np.uint64)[0])

    def text(self, key: str) -> str:
        """Return a text."""
        raw = self.array(key, (None,), np.uint8)
        try:
            return raw.tobytes().decode()
        except UnicodeDecodeError as error:
            raise StateMismatch(f'{key} is not a text: {error}') from error

    def names(self, key: str) -> list[str]:
        """Return a list of task names."""
        return [name for name in self.text(key).split('\n') if name]

    def has(self, prefix: str) -> bool:
        """Return whether any key begins with a prefix."""
        return any(key.startswith(prefix) for key in self._state)

    def finish(self) -> None:
        """Raise `StateMismatch` if the state holds anything that was not read."""
        left = sorted(set(self._state) - self._read)
        if left:
            raise StateMismatch(f'{len(left)} unknown entries, the first is {left[0]}')

    def _raw(self, key: str) -> AnyArray:
        if key not in self._state:
            raise StateMismatch(f'{key} is missing')
        self._read.add(key)
        return np.asarray(self._state[key])


# One task.


def factor_arrays(factors: TaskFactors) -> dict[str, AnyArray]:
    """Return the arrays of a task's factors."""
    return {
        'coefficients': factors.coefficients.copy(),
        'residual': factors.residual.copy(),
        'head': factors.head.copy(),
        'log_std': factors.log_std.copy(),
    }


def read_factors(reader: StateReader, prefix: str, spec: PolicySpec, columns: int) -> TaskFactors:
    """Read factors whose coefficients fit a basis of k columns."""
    s = reader.floats(f'{prefix}/coefficients', None)
    if len(s) > columns:
        raise StateMismatch(f'{prefix}/coefficients has {len(s)} numbers for {columns} columns')
    return TaskFactors(
        s,
        reader.floats(f'{prefix}/residual', spec.n_parameters),
        reader.floats(f'{prefix}/head', spec.head_size),
        reader.floats(f'{prefix}/log_std', spec.act_dim),
    )


def value_arrays(values: ValueFunction) -> dict[str, AnyArray]:
    """Return the arrays of a value function and its optimiser."""
    return {
        'value_parameters': values.parameters.copy(),
        'value_first_moment': values.first_moment.copy(),
        'value_second_moment': values.second_moment.copy(),
        'value_updates': pack_number(values.n_updates),
    }


def read_values(reader: StateReader, prefix: str, obs_dim: int) -> ValueFunction:
    """Read a value function."""
    shape = (n_value_parameters(obs_dim),)
    return ValueFunction(
        reader.array(f'{prefix}/value_parameters', shape, np.float32),
        reader.array(f'{prefix}/value_first_moment', shape, np.float32),
        reader.array(f'{prefix}/value_second_moment', shape, np.float32),
        reader.number(f'{prefix}/value_updates'),
    )


class RunParts(NamedTuple):
    """What a state keeps of a task in training, in the order `TaskRun` takes it."""

    seed: int
    factors: TaskFactors
    values: ValueFunction
    iteration: int
    extras: dict[str, Array]


def run_arrays(run: RunParts) -> dict[str, AnyArray]:
    """Return everything a task in training needs to continue later."""
    return {
        'seed': pack_number(run.seed),
        'iteration': pack_number(run.iteration),
        **factor_arrays(run.factors),
        **value_arrays(run.values),
        **{name: array.copy() for name, array in prefixed('extra', run.extras).items()},
    }


def read_run(
    reader: StateReader, prefix: str, spec: PolicySpec, columns: int, extras: dict[str, int]
) -> RunParts:
    """Read a task in training; `extras` maps names of extra vectors to their lengths."""
    return RunParts(
        reader.number(f'{prefix}/seed'),
        read_factors(reader, prefix, spec, columns),
        read_values(reader, prefix, spec.obs_dim),
        reader.number(f'{prefix}/iteration'),
        {name: reader.floats(f'{prefix}/extra/{name}', n) for name, n in extras.items()},
    )


# Local models.


def model_arrays(task: str, model: LocalModel) -> dict[str, AnyArray]:
    """Return the arrays of a task's model; models never change, so these are no copies."""
    return prefixed(f'models/{task}', {'alpha': model.alpha, 'g': model.g, 'H': model.H})


def read_model(reader: StateReader, task: str, d: int) -> LocalModel:
    """Read the model of a task with d parameters."""
    return LocalModel(
        reader.floats(f'models/{task}/alpha', d),
        reader.floats(f'models/{task}/g', d),
        read_matrix(reader, f'models/{task}', d),
    )


def compact(state: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return a state that holds each curvature by its eigenvectors, where that is shorter.

    H of a two-layer policy is a matrix of low rank plus a multiple of the identity, the floor of
    its Fisher matrix; `COMPACT` says how exactly.
    """
    result = dict(state)
    for name, H in state.items():
        if name.startswith('models/') and name.endswith('/H'):
            values, vectors = np.linalg.eigh(H)
            kept = np.abs(values - values[-1]) > COMPACT * np.abs(values[-1])
            if 2 * np.count_nonzero(kept) < len(values):
                del result[name]
                result[f'{name}_values'] = np.append(values[kept] - values[-1], values[-1])
                result[f'{name}_vectors'] = np.ascontiguousarray(vectors[:, kept])
    return result


def read_matrix(reader: StateReader, prefix: str, d: int) -> AnyArray:
    """Read H as it is, or from its eigenvectors. Shape (d, d)."""
    if not reader.has(f'{prefix}/H_vectors'):
        return reader.floats(f'{prefix}/H', d, d)
    U = reader.floats(f'{prefix}/H_vectors', d, None)
    values = reader.floats(f'{prefix}/H_values', U.shape[1] + 1)
    H = (U * values[:-1]) @ U.T
    H[np.diag_indices(d)] += values[-1]
    return np.asarray(0.5 * (H + H.T))


def form_shapes(form: str, spec: PolicySpec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays a form is made of."""
    d = spec.n_parameters
    if form == 'dense':
        return {'H': (d, d)}
    if form == 'diagonal':
        return {'H_diagonal': (d,)}
    shapes: dict[str, tuple[int, ...]] = {'H_shift': (1,)}
    for i, at in enumerate(layer_index(spec)):
        shapes |= {f'H_rows_{i}': (at.shape[0],) * 2, f'H_columns_{i}': (at.shape[1],) * 2}
    return shapes


def form_from_arrays(form: str, arrays: Mapping[str, Array], spec: PolicySpec) -> SymmetricForm:
    """Return the form whose `arrays` these are."""
    if form == 'dense':
        return DenseForm(arrays['H'])
    if form == 'diagonal':
        return DiagonalForm(arrays['H_diagonal'])
    index = layer_index(spec)
    rows = tuple(arrays[f'H_rows_{i}'] for i in range(len(index)))
    columns = tuple(arrays[f'H_columns_{i}'] for i in range(len(index)))
    return KroneckerForm(index, rows, columns, float(arrays['H_shift'][0]))


# The knowledge base: L in `base`, one local model per task in `models`.


def knowledge_state(kb: KnowledgeBase, parts: Collection[StatePart]) -> dict[str, AnyArray]:
    """Return the state of a knowledge base; the coefficients are saved with the tasks."""
    state: dict[str, AnyArray] = {}
    if 'base' in parts:
        tried, before = kb.provisional or ('', kb.basis[:, :0])
        state['base/tried_out'] = pack_names([tried] if tried else [])
        state['base/basis_before'] = before.copy()
    if 'models' in parts:
        for task, term in kb.terms.items():
            model = term.model  # never changed in place, so references are safe to keep
            arrays = {'alpha': model.alpha, 'g': model.g, **model.H.arrays()}
            state |= prefixed(f'models/{task}', arrays)
        if not kb.rules.keep_local_models:
            state |= prefixed(SUMS, kb.solver.sums())
    return state


def read_knowledge(reader: StateReader, finished: list[str], kb: KnowledgeBase) -> None:
    """Fill an empty knowledge base from a state."""
    d = kb.spec.n_parameters
    basis = reader.floats('base/basis', d, None)
    k = basis.shape[1]
    if k > kb.rules.max_columns:
        raise StateMismatch(f'the basis has {k} columns, at most {kb.rules.max_columns} allowed')
    coefficients = {
        task: reader.floats(f'base/task/{task}/coefficients', None) for task in finished
    }
    tried, before = reader.names('base/tried_out'), reader.floats('base/basis_before', d, None)
    kept = finished if kb.rules.keep_local_models else []
    models = {task: _read_task_model(reader, task, kb) for task in kept}
    sums = {} if kb.rules.keep_local_models else _read_sums(reader, kb, k)
    kb.restore(basis, coefficients, models, sums, (tried[0], before) if tried else None)


def _read_task_model(reader: StateReader, task: str, kb: KnowledgeBase) -> TaskModel:
    prefix, d, form = f'models/{task}', kb.spec.n_parameters, kb.solver.form
    alpha, g = reader.floats(f'{prefix}/alpha', d), reader.floats(f'{prefix}/g', d)
    if form == 'dense':
        arrays = {'H': read_matrix(reader, prefix, d)}
    else:
        shapes = form_shapes(form, kb.spec).items()
        arrays = {name: reader.floats(f'{prefix}/{name}', *shape) for name, shape in shapes}
    try:
        return TaskModel(alpha, g, form_from_arrays(form, arrays, kb.spec))
    except NonFinite as error:
        raise StateMismatch(f'{prefix}: {error}') from error


def _read_sums(reader: StateReader, kb: KnowledgeBase, k: int) -> dict[str, Array]:
    shapes = kb.solver.sum_shapes(kb.spec.n_parameters, k)
    return {
        name: reader.floats(f'{SUMS}/{name}', *shape)
        for name, shape in shapes.items()
        if reader.has(f'{SUMS}/{name}')
    }
