"""What a node accepts: messages of its own run, from its own learner, within bounds. No ROS here.

Every rollout has one key, echoed by all its messages. Policies and knowledge carry a digest made
with the graph's secret, so those of a stranger on the same topics are refused. The size of a
request is checked before anything is allocated.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
import fcntl
import hashlib
import hmac
import os
from pathlib import Path
import secrets
import stat
import tempfile
import time
from typing import IO

from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import Knowledge, PolicySpec, TaskFactors

SECRET_VARIABLE = 'LPGFTW_SECRET'
"""Environment variable with the graph's secret; made at each start unless it is set."""


MOST_TRAJECTORIES = 10_000
"""Most trajectories per request."""
MOST_ITERATIONS = 100_000
"""Most policy steps per request."""
LARGEST_BATCH = 10**8
"""Most numbers in all trajectories of one rollout together."""
MOST_ROWS = 500
"""Most environments per request; more trajectories run in waves."""
LONGEST_TEXT = 4096
"""Most characters of a name or path in a request."""


class OutOfRange(LpgftwError):
    """A request for more than a node allows, or for less than is possible."""


class Foreign(LpgftwError):
    """A message of another run, or one that this graph's learner did not send."""


@dataclass(frozen=True, slots=True)
class RolloutKey:
    """Identity of a rollout and what it runs with."""

    run_id: str
    task: str
    rollout: int
    """Number of the rollout, unique within a run."""
    seed: int
    explore: bool
    policy_version: int = 0
    """Version of the policy in training; 0 for the task's policy in the knowledge."""
    knowledge_version: int = 0
    """Version of the knowledge; 0 for the newest."""


@dataclass(frozen=True, slots=True)
class RolloutGoal:
    """A request for trajectories; the same goal gives the same trajectories."""

    key: RolloutKey
    n_trajectories: int


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """The policy of the task in training."""

    task: str
    version: int
    knowledge_version: int
    spec: PolicySpec
    factors: TaskFactors


def new_secret() -> str:
    """Return the secret of a graph: a new one, or that of the environment, to replay a bag."""
    return os.environ.get(SECRET_VARIABLE) or secrets.token_hex(32)


class Seal:
    """Makes and checks the digests of what a learner publishes."""

    def __init__(self, secret: str | None = None) -> None:
        """Use the secret of the environment unless one is given."""
        text = os.environ.get(SECRET_VARIABLE, '') if secret is None else secret
        self._secret = text.encode()

    def of_knowledge(self, run_id: str, knowledge: Knowledge) -> bytes:
        """Return the digest of all policies."""
        parts: list[object] = [run_id, knowledge.version, *_shape(knowledge.spec)]
        parts += [knowledge.basis.shape, knowledge.basis.T]
        for task, factors in knowledge.tasks.items():
            parts += [task, *_numbers(factors)]
        return self._digest(parts)

    def of_policy(self, run_id: str, policy: TaskPolicy) -> bytes:
        """Return the digest of the policy in training."""
        parts = [run_id, policy.task, policy.version, policy.knowledge_version]
        return self._digest([*parts, *_shape(policy.spec), *_numbers(policy.factors)])

    def _digest(self, parts: Iterable[object]) -> bytes:
        """Return HMAC-SHA256 of texts and arrays, each after its length."""
        code = hmac.new(self._secret, digestmod=hashlib.sha256)
        for part in parts:
            data = part.tobytes() if hasattr(part, 'tobytes') else repr(part).encode()
            code.update(len(data).to_bytes(8, 'little'))
            code.update(data)
        return code.digest()


def same_digest(one: bytes, other: bytes) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(one, other)


def _shape(spec: PolicySpec) -> tuple[object, ...]:
    widths = tuple(int(width) for width in spec.hidden)
    return (int(spec.obs_dim), int(spec.act_dim), widths, float(spec.min_log_std))


def _numbers(factors: TaskFactors) -> tuple[Array, ...]:
    return (factors.coefficients, factors.residual, factors.head, factors.log_std)


def require_count(name: str, value: int, most: int, least: int = 0) -> int:
    """Return a requested number; raise `OutOfRange` if it is not allowed."""
    if not least <= value <= most:
        raise OutOfRange(f'{name} must be from {least} to {most}, got {value}')
    return value


def require_batch(name: str, task: TaskSpec, n: int) -> int:
    """Return a number of trajectories; raise `OutOfRange` if their numbers would not fit."""
    width = sum(task.dimensions) + 1
    most = min(MOST_TRAJECTORIES, LARGEST_BATCH // (task.horizon * width))
    return require_count(f'{name} of {task.name}', n, most)


def require_text(name: str, text: str) -> str:
    """Return a name or path of a request; raise `OutOfRange` if it cannot be one."""
    if len(text) > LONGEST_TEXT:
        raise OutOfRange(f'{name} has {len(text)} characters, at most {LONGEST_TEXT}')
    if not text.isprintable():
        raise OutOfRange(f'{name} has characters that cannot be printed')
    return text


# Who may say what: every topic, service and action of every node, as the graph names them.
#
# Nodes find strangers on their topics by it, and `lpgftw security` writes permissions from it. A
# name is relative to the namespace, private to the node (`~/`) or absolute.


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoints:
    """What a node publishes, hears, serves, requests, executes and calls."""

    publishes: tuple[str, ...] = ()
    hears: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    executes: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()

    def __add__(self, other: 'Endpoints') -> 'Endpoints':
        """Return the endpoints of both."""
        names = [item.name for item in fields(self)]
        return Endpoints(**{name: getattr(self, name) + getattr(other, name) for name in names})


_PARAMETERS = ('describe_parameters', 'get_parameter_types', 'get_parameters', 'list_parameters')
_LIFECYCLE = ('change_state', 'get_state', 'get_available_states', 'get_available_transitions')
_SERVICES = (*_PARAMETERS, 'set_parameters', 'set_parameters_atomically', *_LIFECYCLE)
EVERY_NODE = Endpoints(
    publishes=('/rosout', '/parameter_events', '/diagnostics', '~/transition_event'),
    hears=('/diagnostics', '/clock'),
    serves=tuple(
        f'~/{name}' for name in (*_SERVICES, 'get_transition_graph', 'get_type_description')
    ),
)
_BRIDGE = Endpoints(
    publishes=('observations', 'actions', 'trajectories'),
    hears=('actions', 'active_task'),
    serves=('load_task', '~/run', '~/stop'),
    executes=('collect',),
    calls=('collect',),
)
ENDPOINTS: dict[str, Endpoints] = {
    'sim_bridge': _BRIDGE + Endpoints(publishes=('joint_states', 'image', 'scene_pose', '/clock')),
    'policy': Endpoints(
        publishes=('actions', 'active_task', 'policy_contract'),
        hears=('observations', 'knowledge', 'task_policy'),
        serves=('switch_task', 'list_tasks'),
    ),
    'learner': Endpoints(
        publishes=('knowledge', 'task_policy', 'active_task', 'status'),
        hears=('trajectories',),
        serves=(
            *('switch_task', 'list_tasks', 'save_knowledge', 'load_knowledge'),
            *('pause', 'resume', 'stop'),
        ),
        executes=('train_task', 'evaluate_task'),
        calls=('collect',),
    ),
    'scene': Endpoints(
        publishes=(
            *('robot_description', '/tf', '/tf_static', 'markers'),
            *('image/compressed', 'camera_info'),
        ),
        hears=('scene_pose',),
    ),
    'dashboard': Endpoints(
        hears=(
            *('status', 'active_task', 'knowledge', 'scene_pose', 'image'),
            *('safety_state', 'arm_command', 'joint_states', 'object_pose'),
        ),
        requests=(
            *('switch_task', 'list_tasks', 'pause', 'resume', 'stop'),
            'safety_guard/emergency_stop',
        ),
        calls=('evaluate_task',),
    ),
    'arm_bridge': _BRIDGE
    + Endpoints(
        publishes=('arm_command',),
        hears=('joint_states', 'object_pose', 'safety_state', 'reward', 'success'),
        serves=('~/reset_done',),
        requests=('reset_scene',),
    ),
    'safety_guard': Endpoints(
        publishes=('safety_state', 'answered_command'),
        hears=('joint_states', 'object_pose', 'arm_command', 'deadman', 'policy_contract'),
        serves=('~/emergency_stop', '~/reset'),
    ),
    'sawyer_sim': Endpoints(
        publishes=('joint_states', 'object_pose', 'reward', 'success'),
        serves=('~/reset', 'reset_scene'),
    ),
}
"""Endpoints of each node, beside those of every node and those its parameters name."""
INTERNAL = (
    *('observations', 'actions', 'trajectories', 'knowledge', 'task_policy', 'active_task'),
    *('status', 'scene_pose', 'policy_contract', 'arm_command', 'safety_state'),
)
"""Topics on which only the nodes of the graph publish."""


def internal_topics(node: str) -> tuple[str, ...]:
    """Return the internal topics a node hears."""
    ends = ENDPOINTS.get(node, EVERY_NODE)
    return tuple(topic for topic in ends.hears if topic in INTERNAL)


def talkers(topic: str) -> tuple[str, ...]:
    """Return the nodes that may publish on a topic."""
    return tuple(node for node, ends in ENDPOINTS.items() if topic in ends.publishes)


# One node per name and domain on this machine: a lock per name, which the kernel frees.
#
# Two graphs in one namespace would answer each other's requests. A process holds a lock for each
# of its nodes as long as it lives. So a node can restart right after a crash, but not while a node
# of the same name is alive.


PATIENCE = 4.0
"""Seconds to wait for an old node of the same name; a stopped node needs up to three."""


class AlreadyRuns(LpgftwError):
    """Another node of the same name is alive in this domain."""


def claim(name: str, run_id: str, domain: int, patience: float = PATIENCE) -> IO[str]:
    """Return the lock of a node's full name, held until it is closed; raise `AlreadyRuns`."""
    file = (_folder() / f'{domain}{name.replace("/", ".")}').open('a+')
    end = time.monotonic() + patience
    while not _locked(file):
        if time.monotonic() > end:
            raise AlreadyRuns(_text(name, domain, _said(file)))
        time.sleep(0.05)
    file.seek(0)
    file.truncate()
    file.write(f"run '{run_id}', process {os.getpid()}")
    file.flush()
    return file


def require_free(names: Iterable[str]) -> None:
    """Raise `AlreadyRuns` if a node of one of these names is alive."""
    domain = int(os.environ.get('ROS_DOMAIN_ID') or 0)
    for name in names:
        claim(name, '', domain).close()


def require_no_arm() -> None:
    """Raise `AlreadyRuns` if a node that can move an arm is alive on this machine."""
    for path in sorted(_folder().glob('*.safety_guard')):
        with path.open('a+') as file:
            if not _locked(file):
                raise AlreadyRuns(f'a graph around an arm is alive ({_said(file)}): stop it first')


def _folder() -> Path:
    """Return the folder of the locks; raise if another user could have put something there."""
    folder = Path(tempfile.gettempdir()) / f'lpgftw-nodes-{os.getuid()}'
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise LpgftwError(f'{folder} is not a folder that only you can write to: remove it')
    return folder


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _said(file: IO[str]) -> str:
    file.seek(0)
    return file.read(200) or 'it does not say which'


def _text(name: str, domain: int, holder: str) -> str:
    return (
        f'another {name} is alive in domain {domain} ({holder}): stop it, or choose another '
        'namespace or ROS_DOMAIN_ID'
    )
