"""One policy as one small file: numbers, shape, and the contract they may be used under."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
import json
from pathlib import Path
import time
from typing import Any

import numpy as np
from safetensors import safe_open, SafetensorError
from safetensors.numpy import save

from lpgftw_ros.deploy.contract import ACTION, FRAME, OBSERVATION, PolicyContract
from lpgftw_ros.deploy.observation import ACT_DIM, ControlSettings, OBS_DIM
from lpgftw_ros.errors import InvalidConfig, StateMismatch
from lpgftw_ros.learning.arrays import Array, require_finite
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.runs.storage import CannotWrite, write_bytes

FORMAT = 1
_ARRAYS = ('theta', 'head', 'log_std')


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
    """Put a policy of the 6-D observation under a contract."""
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
    """Write a policy as safetensors with JSON metadata; the file appears whole or not at all."""
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
        control = ControlSettings(**content['control'])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StateMismatch(f'{path} is not an exported policy: {error}') from error
    contract.require(policy)
    return ExportedPolicy(policy, contract, control, content['origin'])


def write_file(path: Path, content: bytes) -> None:
    """Write a file as a whole, its folder too if there is none."""
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
