"""Sampling on a Ray cluster: the rows of a rollout on workers of several machines.

A worker is a Ray actor with one CPU. It keeps its environments and drives its own rows to their
end with the policy, which is broadcast once per rollout; only whole trajectories travel back, by
the object store. A rollout is split at multiples of the policies' acting block, and a trajectory
depends on its index and the seed only. So the bytes are those of `Sampler`, whatever the number of
workers, wherever they run, and whether some of them were lost on the way.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
import hashlib
import logging
import os
from pathlib import Path
import tempfile
import time
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

import lpgftw_ros
from lpgftw_ros.arithmetic import CHOICE, PINS, THREAD_VARIABLES
from lpgftw_ros.domains.rollout import drive, joined, Piece, Rollout
from lpgftw_ros.domains.sampler import blocks, Sampler, split
from lpgftw_ros.domains.suites import load_suite, Suite
from lpgftw_ros.domains.workers import available_cores
from lpgftw_ros.domains.workers.processes import error_of
from lpgftw_ros.errors import InvalidConfig, LpgftwError, MissingExtra, SimulationFailed
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.resources import source_root

LOCAL = 'local'
"""Address that stands for a cluster of this machine alone, started for one command."""
PATIENCE = 120.0
"""Seconds to wait for a first worker before giving up."""
MOST_LOSSES = 3
"""Times the same trajectories may be lost with their worker: then they are what kills it."""
_OBJECT_STORE = 200 << 20
_ALL_INTERFACES = 'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'
"""Where this is 0, Ray binds its ports to 127.0.0.1 only; it reads it when it is imported."""

logger = logging.getLogger(__name__)


def worker_environment() -> dict[str, str]:
    """Return the variables a worker must be started with, since numpy loads before our code."""
    path = os.pathsep.join((source_root(), '${PYTHONPATH}'))
    values = {'PYTHONPATH': path, **dict.fromkeys(THREAD_VARIABLES, '1')}
    if lpgftw_ros.ARITHMETIC == 'pinned':
        return {**values, CHOICE: 'pinned', **PINS}
    return {**values, CHOICE: 'native'}


class Cluster:
    """A connection to a Ray cluster.

    Args:
        address: `HOST:PORT` or `auto` of a cluster that runs, or `local` to start a small one on
            this machine: reached from this machine only, without a dashboard, gone at the end.
        cpus: CPUs a local one offers.
    """

    def __init__(self, address: str, cpus: int = 1) -> None:
        if '://' in address:
            raise InvalidConfig(
                f"'{address}' is not the address of a Ray cluster: HOST:PORT, auto or local "
                f'(run the command on a node of the cluster)'
            )
        if address == LOCAL:
            os.environ.setdefault(_ALL_INTERFACES, '0')
        try:
            import ray
        except ImportError:
            raise MissingExtra('ray') from None
        self.ray: Any = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            self._join(address, cpus)

    def _join(self, address: str, cpus: int) -> None:
        options: dict[str, Any] = {'address': address}
        if address == LOCAL:
            options |= {
                'num_cpus': cpus,
                'include_dashboard': False,
                'object_store_memory': _OBJECT_STORE,
                '_system_config': {'worker_niceness': 0},  # as a simulation worker of our own
            }
        try:
            self.ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except (OSError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            why = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise LpgftwError(f"cannot join a Ray cluster at '{address}': {why}") from None
        if address != LOCAL and os.environ.get('RAY_AUTH_MODE', '').lower() != 'token':
            logger.warning(
                'this Ray cluster asks for no token: whoever reaches its ports can run programs '
                'on it (RAY_AUTH_MODE=token, see docs/scale.md)'
            )

    @property
    def address(self) -> str:
        """Address under which other processes join the same cluster."""
        return str(self.ray.get_runtime_context().gcs_address)

    @property
    def cpus(self) -> int:
        """CPUs of all nodes that are alive."""
        return int(self.ray.cluster_resources().get('CPU', 0))

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._ours:
            self.ray.shutdown()


class Greeting(NamedTuple):
    """Who a worker is, and whether its numbers are ours."""

    node: str
    version: str
    arithmetic: str
    probe: str


def greeting(node: str = 'this machine') -> Greeting:
    """Return what this process says of itself."""
    probe = arithmetic_probe()
    return Greeting(node, lpgftw_ros.__version__, lpgftw_ros.ARITHMETIC, probe)


def arithmetic_probe() -> str:
    """Return the hash of what a policy does here with fixed numbers."""
    rng, spec = generator(0, Purpose.NOISE), PolicySpec(39, 4, (32, 32))
    sizes = (spec.n_parameters, spec.head_size, spec.act_dim)
    policy = PolicySnapshot(spec, *(0.3 * rng.standard_normal(size) for size in sizes))
    actions = policy.act(rng.standard_normal((50, 39)), rng.standard_normal((50, 4)))
    return hashlib.sha256(np.ascontiguousarray(actions).tobytes()).hexdigest()


def require_same_numbers(own: Greeting, other: Greeting) -> None:
    """Raise if a worker would give other numbers; native ones may differ, and it is said."""
    if other.version != own.version:
        raise LpgftwError(
            f'node {other.node} has lpgftw_ros {other.version}, this machine {own.version}'
        )
    if other.probe == own.probe:
        return
    text = (
        f"node {other.node} computes with other last bits (its arithmetic is '{other.arithmetic}',"
        f" here '{own.arithmetic}')"
    )
    if own.arithmetic == 'pinned':
        raise LpgftwError(f'{text}: a run there would give other numbers; take it off the cluster')
    logger.warning('%s: the numbers of this run depend on where it is sampled', text)


@dataclass(frozen=True, slots=True)
class Order:
    """A rollout, as every worker that has a part in it is told."""

    task: str
    seed: int
    explore: bool
    physics: str
    """Fingerprint of the task on the machine that learns."""
    policy: PolicySnapshot


class Failure(NamedTuple):
    """An error a worker met."""

    kind: str
    text: str


class Part(NamedTuple):
    """Trajectories `first` to `first + n - 1` of a rollout."""

    first: int
    n: int

    def __str__(self) -> str:
        return f'trajectories {self.first} to {self.first + self.n - 1}'


class RemoteWorker:
    """Simulates rows on one CPU of the cluster; an actor of Ray."""

    def __init__(self, suite: Suite, files: Mapping[str, bytes], step_timeout: float) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id()
        self._node = f'{ray.util.get_node_ip_address()} ({node[:8]})'
        self._folder = tempfile.TemporaryDirectory(prefix='lpgftw-')
        for name, content in files.items():
            (Path(self._folder.name) / name).write_bytes(content)
        here = Path(self._folder.name) if files else None
        tasks = tuple(task.moved(here) for task in suite.tasks)
        self._sampler = Sampler(replace(suite, tasks=tasks), 1, step_timeout)
        self._compared: set[str] = set()

    def greet(self) -> Greeting:
        """Say who this is; a worker that can answer has found its node and loaded our code."""
        return greeting(self._node)

    def sample(self, order: Order, part: Part) -> list[Piece] | Failure:
        """Drive a part of a rollout to its end."""
        try:
            self._compare(order)
            return self._sampler.persist(order.task, lambda: self._rows(order, part))
        except Exception as error:  # whatever it is: the one who asked shall say it in one line
            return Failure(type(error).__name__, f'{error} (on node {self._node})')

    def _rows(self, order: Order, part: Part) -> list[Piece]:
        env = self._sampler.env(order.task, part.n)
        rollout = Rollout(env, part.n, order.seed, order.task, part.first)
        drive(rollout, order.policy, order.explore)
        return rollout.pieces()

    def _compare(self, order: Order) -> None:
        """Raise unless a task moves here as it does where it is learned."""
        if order.task in self._compared:
            return
        if self._sampler.fingerprint(order.task) != order.physics:
            raise InvalidConfig(
                f"task '{order.task}' moves in another way here: other versions of its simulator?"
            )
        self._compared.add(order.task)

    def close(self) -> None:
        """Close the environments and remove the files that came with the suite."""
        self._sampler.close()
        self._folder.cleanup()


class ClusterSampler:
    """Samples the tasks of a suite on a Ray cluster; stands where a `Sampler` does.

    Workers are asked for, one CPU each, spread over the nodes; it begins as soon as one has its
    place, and others join when they have theirs. With `workers=0` it asks for all CPUs.
    """

    def __init__(
        self, suite: Suite | str, address: str, workers: int = 0, step_timeout: float = 0.0
    ) -> None:
        self.suite = load_suite(suite) if isinstance(suite, str) else suite
        self._workers, self._step_timeout, self._own = workers, step_timeout, greeting()
        self._cluster = Cluster(address, workers or available_cores())
        self._ray = self._cluster.ray
        actor = self._ray.remote(
            num_cpus=1,
            scheduling_strategy='SPREAD',
            max_restarts=0,
            runtime_env={'env_vars': worker_environment()},
        )
        self._actor = actor(RemoteWorker)
        self._parcel = self._ray.put(self.suite)
        self._files = {file.name: file.read_bytes() for file in self.suite.files}
        self._starting: dict[Any, Any] = {}  # what will greet, and its worker
        self._ready: dict[Any, str] = {}  # workers that sample, and their nodes
        self._physics: dict[str, str] = {}
        self._asked_at, self._said_few = 0.0, False
        self.losses = 0
        """Parts of rollouts that were lost with their worker and sampled again."""

    @property
    def workers(self) -> int:
        """Workers that were asked for; all CPUs of the cluster if no number was given."""
        return self._workers or max(1, self._cluster.cpus)

    @property
    def nodes(self) -> list[str]:
        """Node of each worker that has its place."""
        return list(self._ready.values())

    def fingerprint(self, task: str) -> str:
        """Return the hash of a task's physics on this machine."""
        if task not in self._physics:
            with Sampler(self.suite, 1, self._step_timeout) as sampler:
                self._physics[task] = sampler.fingerprint(task)
        return self._physics[task]

    def collect(
        self, task: str, policy: PolicySnapshot, n: int, seed: int, explore: bool = True
    ) -> Batch:
        """Sample n trajectories of a task."""
        if n < 1:
            raise InvalidConfig(f'a rollout needs at least one trajectory, got {n}')
        physics = self.fingerprint(task)
        self.gather(n, 0.0)
        while not self._ready:
            self._wait_for_one()
        sizes = split(n, len(self._ready))
        parts = [Part(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
        order = self._ray.put(Order(task, seed, explore, physics, policy))
        pieces = self._answers(order, parts)
        return joined(task, [piece for part in parts for piece in pieces[part]])

    def _answers(self, order: Any, parts: list[Part]) -> dict[Part, list[Piece]]:
        """Hand out the parts until each has been sampled; those of lost workers go to others."""
        answers: dict[Part, list[Piece]] = {}
        waiting, losses = deque(parts), dict.fromkeys(parts, 0)
        idle, asked = list(self._ready), dict[Any, tuple[Any, Part]]()
        try:
            while len(answers) < len(parts):
                while waiting and idle:
                    worker, part = idle.pop(0), waiting.popleft()
                    asked[worker.sample.remote(order, part)] = worker, part
                if not asked:
                    idle = self._wait_for_one()
                    continue
                done = self._ray.wait(list(asked), num_returns=1)[0][0]
                worker, part = asked.pop(done)
                try:
                    answers[part] = self._answer(done)
                    idle.append(worker)
                except _Lost as loss:
                    self._dismiss(worker)
                    losses[part] += 1
                    if losses[part] == MOST_LOSSES:
                        raise SimulationFailed(
                            f'{part} ended their worker {MOST_LOSSES} times: {loss}'
                        ) from None
                    logger.warning('a worker is lost (%s); %s are sampled again', loss, part)
                    self.losses += 1
                    waiting.appendleft(part)
        finally:
            for worker, _ in asked.values():  # only after an error
                self._dismiss(worker)
        return answers

    def _answer(self, reference: Any) -> list[Piece]:
        """Return what a worker sampled; raise what it met, or `_Lost` if it is gone."""
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise _Lost(_first_line(error)) from None
        if isinstance(answer, Failure):
            raise error_of(*answer)
        pieces: list[Piece] = answer
        return pieces

    # -- workers ---------------------------------------------------------------------------

    def gather(self, n: int, seconds: float) -> int:
        """Ask for the workers n trajectories can use, wait for them so long; return how many came.

        More than one per acting block would have nothing to do.
        """
        wanted = min(self.workers, blocks(n))
        missing = wanted - len(self._ready) - len(self._starting)
        for _ in range(missing):
            worker = self._actor.remote(self._parcel, self._files, self._step_timeout)
            self._starting[worker.greet.remote()] = worker
            self._asked_at = time.monotonic()
        if self._starting:
            self._welcome(len(self._starting), seconds)
            self._say_if_few(wanted)
        return len(self._ready)

    def _welcome(self, number: int, seconds: float) -> list[Any]:
        """Let in the workers that have greeted; wait for so many, so long."""
        greeted, _ = self._ray.wait(list(self._starting), num_returns=number, timeout=seconds)
        new = {}
        for reference in greeted:
            worker = self._starting.pop(reference)
            try:
                other = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                if getattr(error, 'actor_init_failed', False):
                    raise LpgftwError(
                        f'a worker cannot start on the cluster: {_last_line(error)}'
                    ) from None
                continue  # its node is gone
            require_same_numbers(self._own, other)
            new[worker] = other.node
        self._ready |= new
        return list(new)

    def _wait_for_one(self) -> list[Any]:
        """Wait until a worker has its place and return those that came; not for ever."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.gather(1, 0.0)
            if self._ready:
                return list(self._ready)
            if self._starting and (new := self._welcome(1, 5.0)):
                return new
        raise LpgftwError(
            f'no worker has got a CPU of the Ray cluster in {PATIENCE:.0f} s: it has '
            f'{self._cluster.cpus}, of which '
            f'{self._ray.available_resources().get("CPU", 0.0):g} are free'
        )

    def _say_if_few(self, wanted: int) -> None:
        """Say once that a cluster is smaller than what was asked of it."""
        late = time.monotonic() - self._asked_at > 0.25 * PATIENCE
        if late and self._starting and not self._said_few:
            self._said_few = True
            logger.warning(
                '%d of %d workers have a CPU; the cluster has %d',
                *(len(self._ready), wanted, self._cluster.cpus),
            )

    def _dismiss(self, worker: Any) -> None:
        del self._ready[worker]
        self._ray.kill(worker)

    def close(self) -> None:
        """Let the workers go and leave the cluster."""
        try:
            for worker in self._starting.values():
                self._ray.kill(worker)
            goodbyes = [worker.close.remote() for worker in self._ready]
            if goodbyes:
                self._ray.wait(goodbyes, num_returns=len(goodbyes), timeout=5.0)
            for worker in self._ready:
                self._ray.kill(worker)
        finally:
            self._starting, self._ready = {}, {}
            self._cluster.close()

    def __enter__(self) -> 'ClusterSampler':
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Lost(Exception):
    """A worker, its node or what it sampled is gone."""


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_line(error: Exception) -> str:
    return next(iter(reversed(str(error).strip().splitlines())), type(error).__name__)
