"""The knowledge base as arrays: L and S in `base`, one local model per task in `models`.

A and b are not written: they are the sums of the local models in task order and come out with
the same bits. Only without local models they are kept themselves.
"""

from collections.abc import Collection

from lpgftw_ros.errors import NonFinite, StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.knowledge_base import KnowledgeBase
from lpgftw_ros.learning.learner import StatePart
from lpgftw_ros.learning.solvers import TaskModel
from lpgftw_ros.learning.solvers.forms import form_from_arrays, form_shapes
from lpgftw_ros.learning.state import AnyArray, pack_names, prefixed, StateReader

SUMS = 'models/sums'


def knowledge_state(kb: KnowledgeBase, parts: Collection[StatePart]) -> dict[str, AnyArray]:
    """Return the state of a knowledge base; the coefficients are saved with the tasks."""
    state: dict[str, AnyArray] = {}
    if 'base' in parts:
        tried, before = kb.provisional or ('', kb.basis[:, :0])
        state['base/basis'] = kb.basis.copy()
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
    models = {task: _read_model(reader, task, kb) for task in _kept(kb, finished)}
    sums = {} if kb.rules.keep_local_models else _read_sums(reader, kb, k)
    kb.restore(basis, coefficients, models, sums, (tried[0], before) if tried else None)


def _kept(kb: KnowledgeBase, finished: list[str]) -> list[str]:
    return finished if kb.rules.keep_local_models else []


def _read_model(reader: StateReader, task: str, kb: KnowledgeBase) -> TaskModel:
    prefix, d, form = f'models/{task}', kb.spec.n_parameters, kb.solver.form
    alpha, g = reader.floats(f'{prefix}/alpha', d), reader.floats(f'{prefix}/g', d)
    arrays: dict[str, Array] = {
        name: reader.floats(f'{prefix}/{name}', *shape)
        for name, shape in form_shapes(form, kb.spec).items()
    }
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
