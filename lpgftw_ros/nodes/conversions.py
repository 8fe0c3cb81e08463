"""Messages to library objects and back; every array is checked on its way in."""

from array import array
import math
from typing import Any

import numpy as np

from lpgftw_interfaces import msg
from lpgftw_ros.errors import NonFinite, WrongShape
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors

LARGEST_POLICY = 10**7
"""Numbers of one policy; a message that asks for more is refused before memory is."""


def to_field(values: Array) -> 'array[float]':
    """Return numbers as the array type message fields take without copying item by item."""
    return array('d', np.ascontiguousarray(values, dtype=np.float64).tobytes())


def to_mask(values: Any) -> 'array[int]':
    """Return a mask as bytes."""
    return array('B', np.ascontiguousarray(values, dtype=np.uint8).tobytes())


def from_field(name: str, field: Any, shape: tuple[int, ...]) -> Array:
    """Return a message field as an array on its memory; raise `WrongShape` or `NonFinite`."""
    values: Array = np.frombuffer(field, dtype=np.float64)
    if values.size != math.prod(shape):
        raise WrongShape(f'{name} has {values.size} numbers, expected {shape}')
    if not np.isfinite(values).all():
        raise NonFinite(f'{name} has elements that are not finite')
    return values.reshape(shape)


def from_mask(name: str, field: Any, n: int) -> Any:
    """Return a mask field as booleans."""
    values = np.frombuffer(field, dtype=np.uint8).astype(bool)
    if values.shape != (n,):
        raise WrongShape(f'{name} has {values.size} elements, expected {n}')
    return values


def batch_to_msg(batch: Batch) -> msg.Trajectories:
    """Return the message of a batch; the rollout's own fields are the caller's."""
    return msg.Trajectories(
        task=batch.task,
        n=batch.n_trajectories,
        n_steps=batch.n_steps,
        obs_dim=batch.observations.shape[1],
        act_dim=batch.actions.shape[1],
        observations=to_field(batch.observations),
        actions=to_field(batch.actions),
        rewards=to_field(batch.rewards),
        lengths=array('q', batch.lengths.astype(np.int64).tobytes()),
        terminated=to_mask(batch.terminated),
        truncated=to_mask(batch.truncated),
        success=to_mask(batch.success),
        failed=to_mask(batch.failed),
        final_observations=to_field(batch.final_observations),
    )


def batch_from_msg(message: msg.Trajectories) -> Batch:
    """Return the batch of a message; a message that does not fit itself raises."""
    m, n, steps = message, message.n, message.n_steps
    return Batch(
        task=m.task,
        observations=from_field('observations', m.observations, (steps, m.obs_dim)),
        actions=from_field('actions', m.actions, (steps, m.act_dim)),
        rewards=from_field('rewards', m.rewards, (steps,)),
        lengths=np.array(np.frombuffer(m.lengths, dtype=np.int64)),
        terminated=from_mask('terminated', m.terminated, n),
        truncated=from_mask('truncated', m.truncated, n),
        success=from_mask('success', m.success, n),
        failed=from_mask('failed', m.failed, n),
        final_observations=from_field('final_observations', m.final_observations, (n, m.obs_dim)),
    )


def spec_to_msg(spec: PolicySpec) -> msg.PolicySpec:
    """Return the message of a policy's shape."""
    return msg.PolicySpec(
        obs_dim=spec.obs_dim,
        act_dim=spec.act_dim,
        hidden=list(spec.hidden),
        min_log_std=spec.min_log_std,
    )


def spec_from_msg(message: msg.PolicySpec) -> PolicySpec:
    """Return the policy's shape of a message."""
    hidden = tuple(int(width) for width in message.hidden)
    spec = PolicySpec(message.obs_dim, message.act_dim, hidden, message.min_log_std)
    if spec.n_parameters > LARGEST_POLICY:
        raise WrongShape(
            f'a policy of {spec.n_parameters} numbers is too large, at most {LARGEST_POLICY}'
        )
    return spec


def factors_to_msg(task: str, factors: TaskFactors) -> msg.TaskFactors:
    """Return the message of one task's factors; a zero residual is left out."""
    residual = factors.residual if factors.residual.any() else np.zeros(0)
    return msg.TaskFactors(
        task=task,
        coefficients=to_field(factors.coefficients),
        residual=to_field(residual),
        head=to_field(factors.head),
        log_std=to_field(factors.log_std),
    )


def factors_from_msg(message: msg.TaskFactors, spec: PolicySpec, n_columns: int) -> TaskFactors:
    """Return one task's factors, checked against the shape of its policy."""
    s, d = np.frombuffer(message.coefficients, dtype=np.float64), spec.n_parameters
    if s.size > n_columns:
        raise WrongShape(
            f'{message.task} has {s.size} coefficients, the basis {n_columns} columns'
        )
    zero = not len(message.residual)
    return TaskFactors(
        coefficients=from_field('coefficients', message.coefficients, (s.size,)),
        residual=np.zeros(d) if zero else from_field('residual', message.residual, (d,)),
        head=from_field('head', message.head, (spec.head_size,)),
        log_std=from_field('log_std', message.log_std, (spec.act_dim,)),
    )


def knowledge_to_msg(knowledge: Knowledge, run_id: str) -> msg.KnowledgeBase:
    """Return the message of all policies."""
    d, k = knowledge.basis.shape
    return msg.KnowledgeBase(
        run_id=run_id,
        version=knowledge.version,
        spec=spec_to_msg(knowledge.spec),
        n_parameters=d,
        n_columns=k,
        basis=to_field(knowledge.basis.T),
        tasks=[factors_to_msg(task, factors) for task, factors in knowledge.tasks.items()],
    )


def knowledge_from_msg(message: msg.KnowledgeBase) -> Knowledge:
    """Return all policies of a message."""
    spec, k = spec_from_msg(message.spec), message.n_columns
    if message.n_parameters != spec.n_parameters:
        raise WrongShape(
            f'the policies have {spec.n_parameters} parameters, the basis {message.n_parameters}'
        )
    basis = from_field('basis', message.basis, (k, spec.n_parameters)).T
    tasks = {entry.task: factors_from_msg(entry, spec, k) for entry in message.tasks}
    return Knowledge(message.version, spec, np.asfortranarray(basis), tasks)
