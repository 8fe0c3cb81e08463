"""Export of a trained policy to an arm: its contract, its file, and an ONNX graph.

The contract says what a policy was made for. Policy and arm must agree on it before anything
moves.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
import hashlib
import json
import math
from pathlib import Path
import time
from typing import Any, TYPE_CHECKING

import numpy as np
from safetensors import safe_open, SafetensorError
from safetensors.numpy import save

from lpgftw_ros.deploy.observation import ACT_DIM, ControlSettings, OBS_DIM
from lpgftw_ros.errors import InvalidConfig, LpgftwError, StateMismatch
from lpgftw_ros.learning.arrays import Array, require_finite
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec, split_head, split_theta
from lpgftw_ros.runs.storage import CannotWrite, write_bytes

if TYPE_CHECKING:
    import onnx

FORMAT = 1
_ARRAYS = ('theta', 'head', 'log_std')
_OPSET, _IR_VERSION = 17, 8
"""Of ONNX; old enough for the runtimes on robots."""
FRAME = 'metaworld'
"""Name of the frame Meta-World's policies see and act in: the arm's base, workspace along +y."""
OBSERVATION = ('hand_x', 'hand_y', 'hand_z', 'object_x', 'object_y', 'object_z')
ACTION = ('step_x', 'step_y', 'step_z', 'gripper')


class ContractMismatch(LpgftwError):
    """Policy and arm side do not agree."""


@dataclass(frozen=True, slots=True)
class PolicyContract:
    """What a policy was made for; the fields of PolicyContract.msg."""

    task: str
    obs_dim: int
    act_dim: int
    frame_id: str
    """Frame of observations and actions."""
    rate: float
    """Control steps per second, Hz."""
    action_scale: float
    """Hand motion of a full action per control step, m."""
    hash: str = ''
    """SHA-256 of all the above and of the policy's numbers; empty while it is being learned."""

    def sealed(self, policy: PolicySnapshot) -> 'PolicyContract':
        """Return the contract with the hash of itself and the policy."""
        return replace(self, hash=_digest(self, policy))

    def require(self, policy: PolicySnapshot) -> None:
        """Raise `ContractMismatch` unless the policy is the one that was sealed."""
        if self.hash != _digest(self, policy):
            raise ContractMismatch(f"the policy of '{self.task}' is not the one its hash names")


def require_match(expected: PolicyContract, found: PolicyContract) -> None:
    """Raise `ContractMismatch` that names every difference.

    An empty expected hash accepts any numbers: those of a policy in training keep changing.
    """
    different = []
    for field in fields(PolicyContract):
        ours, theirs = getattr(expected, field.name), getattr(found, field.name)
        same = ours == theirs
        if isinstance(ours, float):
            same = math.isclose(ours, theirs, rel_tol=1e-6)
        if not same and not (field.name == 'hash' and not ours):
            different.append(f'{field.name} is {theirs!r}, the arm expects {ours!r}')
    if different:
        raise ContractMismatch('; '.join(different))


def _digest(contract: PolicyContract, policy: PolicySnapshot) -> str:
    """Return the SHA-256 of contract, shape and numbers; the same on every machine."""
    spec = policy.spec
    head = asdict(replace(contract, hash=''))
    head |= {'hidden': list(spec.hidden), 'dimensions': [spec.obs_dim, spec.act_dim]}
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for array in (policy.theta, policy.head, policy.log_std):
        digest.update(np.ascontiguousarray(array, dtype='<f8').tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """A policy with everything an arm needs to know about it."""

    policy: PolicySnapshot
    contract: PolicyContract
    control: ControlSettings
    origin: Mapping[str, Any]
    """Where it comes from: run, suite, horizon, hand box, fingerprint."""

    @property
    def task(self) -> str:
        """Name of its task."""
        return self.contract.task

    def act(self, observation: Array) -> Array:
        """Return the mean action of one observation. Shape (act_dim,)."""
        return np.asarray(self.policy.act(observation[None])[0])


def export_policy(
    policy: PolicySnapshot, task: str, control: ControlSettings, origin: Mapping[str, Any]
) -> ExportedPolicy:
    """Return a policy of the 6-D observation with its contract."""
    dims = (policy.spec.obs_dim, policy.spec.act_dim)
    if dims != (OBS_DIM, ACT_DIM):
        raise InvalidConfig(
            f"'{task}' has {dims[0]} observations and {dims[1]} actions; an arm policy has "
            f'{OBS_DIM} (hand and object position) and {ACT_DIM} (hand step and gripper)'
        )
    for name in _ARRAYS:
        require_finite(name, getattr(policy, name))
    contract = PolicyContract(
        task, *dims, FRAME, control.rate, control.full_speed / control.rate
    ).sealed(policy)
    return ExportedPolicy(policy, contract, control, dict(origin))


def save_policy(exported: ExportedPolicy, path: Path) -> None:
    """Write a policy as safetensors with JSON metadata, atomically."""
    spec = exported.policy.spec
    content = {
        'format': FORMAT,
        'contract': asdict(exported.contract),
        'control': asdict(exported.control),
        'spec': asdict(spec),
        'observation': OBSERVATION,
        'action': ACTION,
        'limits': {'action': [-1.0, 1.0], 'hand_speed': exported.control.full_speed},
        'origin': exported.origin,
    }
    arrays = {
        name: np.ascontiguousarray(getattr(exported.policy, name), dtype=np.float64)
        for name in _ARRAYS
    }
    write_file(path, save(arrays, metadata={'lpgftw': json.dumps(content, sort_keys=True)}))


def load_policy(path: Path | str) -> ExportedPolicy:
    """Read an exported policy; raise `StateMismatch` if it is damaged or something else."""
    path = Path(path)
    if not path.is_file():
        raise InvalidConfig(f'there is no policy file {path}')
    try:
        with safe_open(path, framework='numpy') as file:
            content = json.loads((file.metadata() or {})['lpgftw'])
            arrays = {name: file.get_tensor(name) for name in _ARRAYS}
        if content['format'] != FORMAT:
            raise StateMismatch(f'{path} has format {content["format"]}, expected {FORMAT}')
        spec = content['spec']
        spec = PolicySpec(**{**spec, 'hidden': tuple(spec['hidden'])})
        policy = PolicySnapshot(spec, **arrays)
        contract = PolicyContract(**content['contract'])
        control, origin = ControlSettings(**content['control']), content['origin']
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StateMismatch(f'{path} is not an exported policy: {error}') from error
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise StateMismatch(f'{path} is damaged: not all of its numbers are finite')
    contract.require(policy)
    return ExportedPolicy(policy, contract, control, origin)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically; make its folder if needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f'cannot write to {path.parent}: {error.strerror}') from error
    write_bytes(path, content)


def act_seconds(exported: ExportedPolicy, calls: int = 2000) -> tuple[float, float]:
    """Return the median and the 99th percentile of one call, in seconds."""
    observation, times = np.zeros(exported.policy.spec.obs_dim), np.empty(calls)
    for i in range(calls):
        began = time.perf_counter()
        exported.act(observation)
        times[i] = time.perf_counter() - began
    return float(np.median(times)), float(np.quantile(times, 0.99))


def layers(policy: PolicySnapshot) -> list[tuple[Array, Array]]:
    """Return weights (out, in) and biases (out,) of each layer, tanh between them."""
    spec = policy.spec
    if not spec.hidden:
        rows = policy.theta.reshape(spec.act_dim, spec.obs_dim + 1)
        return [(rows[:, :-1], rows[:, -1])]
    W0, b0, W1, b1 = split_theta(spec, policy.theta)  # noqa: N806
    return [(W0, b0), (W1, b1), split_head(spec, policy.head)]


def policy_graph(exported: ExportedPolicy) -> 'onnx.ModelProto':
    """Return observation (n, obs_dim) -> action (n, act_dim) in float32."""
    import onnx
    from onnx import helper, numpy_helper, TensorProto

    spec, nodes, numbers, value = exported.policy.spec, [], [], 'observation'
    stack = layers(exported.policy)
    for i, (weights, biases) in enumerate(stack):
        last = i == len(stack) - 1
        for name, array in ((f'weights_{i}', weights), (f'biases_{i}', biases)):
            numbers.append(numpy_helper.from_array(np.asarray(array, dtype=np.float32), name))
        linear = 'action' if last else f'linear_{i}'
        inputs = [value, f'weights_{i}', f'biases_{i}']
        nodes.append(helper.make_node('Gemm', inputs, [linear], transB=1))
        if not last:
            value = f'hidden_{i}'
            nodes.append(helper.make_node('Tanh', [linear], [value]))
    graph = helper.make_graph(
        nodes,
        f'policy of {exported.task}',
        [helper.make_tensor_value_info('observation', TensorProto.FLOAT, ['n', spec.obs_dim])],
        [helper.make_tensor_value_info('action', TensorProto.FLOAT, ['n', spec.act_dim])],
        initializer=numbers,
    )
    model = helper.make_model(
        graph,
        producer_name='lpgftw_ros',
        opset_imports=[helper.make_opsetid('', _OPSET)],
        ir_version=_IR_VERSION,
    )
    helper.set_model_props(model, {'contract': json.dumps(asdict(exported.contract))})
    onnx.checker.check_model(model)
    return model


def save_onnx(exported: ExportedPolicy, path: Path) -> None:
    """Write the graph."""
    write_file(path, policy_graph(exported).SerializeToString())
