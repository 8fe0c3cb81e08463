"""What a policy and the arm side must agree on before anything moves."""

from dataclasses import asdict, dataclass, fields, replace
import hashlib
import json
import math

import numpy as np

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.policies import PolicySnapshot

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

    An empty expected hash leaves the numbers open: a policy in training changes them all the time.
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
