"""Messages to library objects and back; every incoming array is checked."""

from array import array
from collections.abc import Iterable
import math
from typing import Any

from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import PoseStamped, TwistStamped, Vector3
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from lpgftw_interfaces import msg
from lpgftw_interfaces.msg import ErrorCode, LearningStatus
from lpgftw_ros.deploy.export import PolicyContract
from lpgftw_ros.deploy.safety.report import SafetyReport
from lpgftw_ros.deploy.safety.watch import ArmCommand, SafeCommand
from lpgftw_ros.errors import LpgftwError, NonFinite, UnknownName, WrongShape
from lpgftw_ros.graph.admission import (
    Foreign,
    OutOfRange,
    RolloutKey,
    same_digest,
    Seal,
    TaskPolicy,
)
from lpgftw_ros.graph.training import TrainingWorker
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors
from lpgftw_ros.runs.session import Session

# The `status` message from a session: flat scalars, NaN where nothing is known.


NAN = float('nan')
FROM_ROW = (
    'return_mean',
    'return_std',
    'return_min',
    'return_max',
    'success',
    'kl',
    'step_length',
    'refused_steps',
    'gradient_norm',
    'value_error',
    'basis_change',
)


def number(value: Any) -> float:
    """Return a value as a float; NaN if it is missing."""
    return NAN if value is None else float(value)


def status_message(session: Session, worker: TrainingWorker, run_id: str) -> LearningStatus:
    """Return the progress of learning."""
    row = session.last_row or {}
    timing = row.get('timing', {})
    visit, knowledge = session.lifelong.current, session.learner.knowledge()
    rate = row['steps'] / timing['sampling'] if timing.get('sampling') else NAN
    message = LearningStatus(
        run_id=run_id,
        learner=session.config.learner,
        suite=session.config.suite,
        task=worker.active,
        state=worker.state,
        message=worker.message,
        visit=NAN if visit is None else float(visit.number),
        visits=float(len(session.lifelong.visits) + len(session.lifelong.queue)),
        iteration=float(session.learner.iteration) if session.learner.running else NAN,
        iterations=float((visit or session.config.loop).iterations),
        columns=float(knowledge.basis.shape[1]),
        knowledge_version=float(knowledge.version),
        policy_version=float(worker.policy_version),
        total_steps=float(session.lifelong.total_steps),
        steps_per_second=rate,
        wall_seconds=session.wall,
    )
    for name in FROM_ROW:
        setattr(message, name, number(row.get(name)))
    known = LearningStatus.get_fields_and_field_types()
    others = {k: v for k, v in row.items() if k not in known and isinstance(v, int | float)}
    message.measure_names, message.measure_values = list(others), list(map(float, others.values()))
    for phase in ('sampling', 'policy', 'value', 'knowledge'):
        setattr(message, f'{phase}_seconds', number(timing.get(phase)))
    return message


LARGEST_POLICY = 10**7
"""Most numbers of one policy; a larger message is refused before memory is allocated."""
MOST_COLUMNS = 10_000
"""Most columns of a basis in a message."""
KEY_FIELDS = tuple(RolloutKey.__dataclass_fields__)


def to_field(values: Array) -> 'array[float]':
    """Return numbers as the array type that message fields take without a copy per item."""
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


def key_to_msg(key: RolloutKey) -> msg.RolloutKey:
    """Return the message of a rollout's identity."""
    return msg.RolloutKey(**{name: getattr(key, name) for name in KEY_FIELDS})


def key_from_msg(message: msg.RolloutKey) -> RolloutKey:
    """Return the rollout's identity of a message."""
    m = message
    return RolloutKey(
        m.run_id, m.task, m.rollout, m.seed, m.explore, m.policy_version, m.knowledge_version
    )


def batch_to_msg(batch: Batch) -> msg.Trajectories:
    """Return the message of a batch; the caller fills in the rollout's fields."""
    return msg.Trajectories(
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
    """Return the batch of a message; raise if its fields contradict each other."""
    m, n, steps = message, message.n, message.n_steps
    return Batch(
        task=m.key.task,
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


def knowledge_to_msg(knowledge: Knowledge, run_id: str, seal: Seal) -> msg.Knowledge:
    """Return the message of all policies, sealed."""
    d, k = knowledge.basis.shape
    return msg.Knowledge(
        run_id=run_id,
        digest=_digest_field(seal.of_knowledge(run_id, knowledge)),
        version=knowledge.version,
        spec=spec_to_msg(knowledge.spec),
        n_parameters=d,
        n_columns=k,
        basis=to_field(knowledge.basis.T),
        tasks=[factors_to_msg(task, factors) for task, factors in knowledge.tasks.items()],
    )


def knowledge_from_msg(message: msg.Knowledge, seal: Seal | None) -> Knowledge:
    """Return all policies of a message; `Foreign` if another graph sent it.

    Without a seal the sender is not checked: for observers, which do not act.
    """
    spec, k = spec_from_msg(message.spec), message.n_columns
    if message.n_parameters != spec.n_parameters:
        raise WrongShape(
            f'the policies have {spec.n_parameters} parameters, the basis {message.n_parameters}'
        )
    basis = from_field('basis', message.basis, (k, spec.n_parameters)).T
    tasks = {entry.task: factors_from_msg(entry, spec, k) for entry in message.tasks}
    knowledge = Knowledge(message.version, spec, np.asfortranarray(basis), tasks)
    if seal is not None:
        _require_seal(message, seal.of_knowledge(message.run_id, knowledge))
    return knowledge


def task_policy_to_msg(policy: TaskPolicy, run_id: str, seal: Seal) -> msg.TaskPolicy:
    """Return the message of the policy in training, sealed."""
    return msg.TaskPolicy(
        run_id=run_id,
        digest=_digest_field(seal.of_policy(run_id, policy)),
        version=policy.version,
        knowledge_version=policy.knowledge_version,
        spec=spec_to_msg(policy.spec),
        factors=factors_to_msg(policy.task, policy.factors),
    )


def task_policy_from_msg(message: msg.TaskPolicy, seal: Seal) -> TaskPolicy:
    """Return the policy in training of a message; `Foreign` if another graph sent it."""
    spec = spec_from_msg(message.spec)
    policy = TaskPolicy(
        message.factors.task,
        message.version,
        message.knowledge_version,
        spec,
        factors_from_msg(message.factors, spec, MOST_COLUMNS),
    )
    _require_seal(message, seal.of_policy(message.run_id, policy))
    return policy


def _digest_field(digest: bytes) -> Any:
    return np.frombuffer(digest, dtype=np.uint8)


def _require_seal(message: Any, digest: bytes) -> None:
    if not same_digest(bytes(message.digest), digest):
        raise Foreign('its digest does not fit: it was not sent by the learner of this graph')


# Arm messages to the deploy library's objects and back.


COMMAND_TOPICS = {
    'velocity': ('joint_velocity_command', Float64MultiArray),
    'trajectory': ('joint_trajectory', JointTrajectory),
    'twist': ('twist_command', TwistStamped),
}
"""Commands of the arm by interface: topic and type."""


def joints_in_order(message: JointState, joints: tuple[str, ...]) -> Array:
    """Return the positions of these joints; not a number where one is missing."""
    found = dict(zip(message.name, message.position, strict=False))
    return np.array([found.get(name, np.nan) for name in joints])


def seconds_of(stamp: Time) -> float | None:
    """Return a stamp in seconds; None if the sender left it empty."""
    return stamp.sec + 1e-9 * stamp.nanosec if stamp.sec or stamp.nanosec else None


def object_position(message: PoseStamped) -> Array:
    """Return the position of a pose; the caller checks its frame."""
    p = message.pose.position
    return np.array([p.x, p.y, p.z])


def arm_command_to_msg(
    command: ArmCommand, joints: tuple[str, ...], frame: str, stamp: Time
) -> msg.ArmCommand:
    """Return the message of a command; the caller fills in the rollout's fields."""
    message = msg.ArmCommand(
        sequence=command.sequence,
        policy_hash=command.policy_hash,
        linear_velocity=_vector(command.hand_velocity),
        joint_names=list(joints),
        joint_positions=command.joint_positions.tolist(),
        joint_velocities=command.joint_velocities.tolist(),
        gripper=float(command.gripper),
        valid_for=float(command.valid_for),
    )
    message.header.frame_id, message.header.stamp = frame, stamp
    return message


def arm_command_from_msg(message: msg.ArmCommand, joints: tuple[str, ...]) -> ArmCommand:
    """Return the command of a message, joints in our order; the guard checks the numbers."""
    v = message.linear_velocity
    return ArmCommand(
        sequence=message.sequence,
        policy_hash=message.policy_hash,
        joint_positions=_ordered(message.joint_names, message.joint_positions, joints),
        joint_velocities=_ordered(message.joint_names, message.joint_velocities, joints),
        hand_velocity=np.array([v.x, v.y, v.z]),
        gripper=message.gripper,
        valid_for=message.valid_for,
    )


def safe_command_to_msg(
    interface: str,
    command: SafeCommand,
    joints: tuple[str, ...],
    frame: str,
    stamp: Time,
) -> Any:
    """Return the command to the arm as a message of its interface."""
    if interface == 'velocity':
        return Float64MultiArray(data=command.joint_velocities.tolist())
    if interface == 'trajectory':
        # No velocities: a trajectory controller refuses a last point that moves.
        seconds, rest = divmod(command.seconds, 1.0)
        point = JointTrajectoryPoint(
            positions=command.joints.tolist(),
            time_from_start=Duration(sec=int(seconds), nanosec=int(rest * 1e9)),
        )
        return JointTrajectory(joint_names=list(joints), points=[point])
    twist = TwistStamped()
    twist.header.frame_id, twist.header.stamp = frame, stamp
    twist.twist.linear = _vector(command.hand_velocity)
    return twist


def report_to_msg(report: SafetyReport, run_id: str, stamp: Time, since: Time) -> msg.SafetyState:
    """Return the message of the guard's state."""
    return msg.SafetyState(
        stamp=stamp,
        run_id=run_id,
        level=int(report.level),
        code=report.code,
        text=report.text,
        value=float(report.value),
        limit=float(report.limit),
        unit=report.unit,
        since=since,
        count=report.count,
    )


def contract_from_msg(message: msg.PolicyContract) -> PolicyContract:
    """Return the contract of a message."""
    names = PolicyContract.__dataclass_fields__
    return PolicyContract(**{name: getattr(message, name) for name in names})


def _vector(values: Array) -> Vector3:
    return Vector3(x=float(values[0]), y=float(values[1]), z=float(values[2]))


def _ordered(names: Any, values: Any, joints: tuple[str, ...]) -> Array:
    found = dict(zip(names, values, strict=False))
    return np.array([found.get(name, np.nan) for name in joints])


# Refusals in results and responses: an error becomes a code for programs and a line for people.


class Refused(LpgftwError):
    """A refused request with its reason; `code` is one of `ErrorCode`."""

    code = ErrorCode.FAILED

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = self.code if code is None else code


class NotActive(Refused):
    """The node has to be activated first."""

    code = ErrorCode.NOT_ACTIVE


def code_of(error: BaseException) -> int:
    """Return the code of an error."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, UnknownName):
        return int(ErrorCode.UNKNOWN_TASK if 'task' in error.kind else ErrorCode.FAILED)
    if isinstance(error, OutOfRange):
        return int(ErrorCode.OUT_OF_RANGE)
    return int(ErrorCode.FOREIGN if isinstance(error, Foreign) else ErrorCode.FAILED)


def refuse(response: Any, error: BaseException) -> Any:
    """Fill a response with the reason of a refusal, and return it."""
    response.success, response.message = False, str(error) or type(error).__name__
    if hasattr(response, 'error_code'):  # a Trigger has none
        response.error_code = code_of(error)
    return response


def unknown_task(task: str, known: Iterable[str]) -> Refused:
    """Return the refusal of a wrong task name."""
    text = f"no task '{task[:80]}'; there are: {', '.join(known)}"
    return Refused(text, ErrorCode.UNKNOWN_TASK)
