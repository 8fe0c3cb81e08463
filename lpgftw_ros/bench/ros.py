"""`lpgftw bench ros`: the cost of the ROS graph, against the same work in one process.

Contestants take turns in short rounds of whole rollouts; each ratio is the median over
neighbouring rounds, so that a busy second hits both sides.
"""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
import json
import os
from pathlib import Path
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Protocol

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64MultiArray
import yaml

from lpgftw_interfaces.msg import Actions, Observations
from lpgftw_interfaces.msg import Knowledge as KnowledgeMessage
from lpgftw_ros import arguments
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import LpgftwError, UnknownName
from lpgftw_ros.graph.admission import RolloutGoal, RolloutKey, Seal
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.learning.policies import (
    initial_head,
    initial_theta,
    Knowledge,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.values import value_features, ValueFunction
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import knowledge_to_msg, to_field
from lpgftw_ros.nodes.process import follow_environment
from lpgftw_ros.nodes.rollout_client import RolloutClient
from lpgftw_ros.resources import data_folder
from lpgftw_ros.runs.environment import limit_threads

# Contestants of `lpgftw bench ros`: the same rollouts in process, by three processes, composed.
#
# Each fits a value function to the last batch while the next one is sampled, as both drivers do.


PATIENCE = 60.0  # s for processes to come up
EPOCHS, RATE = 2, 1e-3


@dataclass(frozen=True)
class Case:
    """One task, its rows and a policy for it."""

    suite: str
    task: str
    rows: int
    horizon: int
    knowledge: Knowledge

    @classmethod
    def of(cls, suite: str, task: str, rows: int, *, folder: str, horizon: int = 0) -> 'Case':
        """Return the case of a suite; `horizon` shortens it."""
        if horizon:
            content = yaml.safe_load((data_folder('sim/suites') / f'{suite}.yaml').read_text())
            path = Path(folder) / f'{suite}.yaml'
            path.write_text(yaml.safe_dump(content | {'horizon': horizon}))
            suite = str(path)
        spec = load_suite(suite).task(task or load_suite(suite).task_names[0])
        rng = np.random.default_rng(0)
        shape = PolicySpec(*spec.dimensions, ())
        factors = TaskFactors(
            np.zeros(0),
            initial_theta(shape, rng),
            initial_head(shape, rng),
            np.zeros(shape.act_dim),
        )
        basis = np.zeros((shape.n_parameters, 0))
        knowledge = Knowledge(1, shape, basis, {spec.name: factors})
        return cls(suite, spec.name, rows, spec.horizon, knowledge)


class Contestant(Protocol):
    """One way to sample."""

    def seconds_per_step(self) -> float:
        """Do one turn and return the wall time per control step of all rows."""

    def close(self) -> None:
        """End all processes."""


class Fit:
    """The value fit that runs beside sampling."""

    def __init__(self, case: Case) -> None:
        obs_dim = case.knowledge.spec.obs_dim
        self._values = ValueFunction.create(obs_dim, np.random.default_rng(0))
        self.batch: Batch | None = None

    def __call__(self) -> None:
        """Fit to the last batch."""
        if (batch := self.batch) is not None:
            steps = np.concatenate([np.arange(length) for length in batch.lengths])
            features = value_features(batch.observations, steps)
            rng = np.random.default_rng(0)
            self._values.fit(features, batch.rewards, rng, epochs=EPOCHS, learning_rate=RATE)


class InProcess:
    """`lpgftw train`'s way of sampling."""

    def __init__(self, case: Case) -> None:
        self._case, self._fit = case, Fit(case)
        self._sampler = Sampler(case.suite, 0)
        self._beside = ThreadPoolExecutor(1)
        self._policy = case.knowledge.policy(case.task)

    def seconds_per_step(self) -> float:
        """Sample one batch."""
        case, started = self._case, time.perf_counter()
        pending = self._beside.submit(self._fit)
        batch = self._sampler.collect(case.task, self._policy, case.rows, 1, True)
        pending.result()
        seconds = time.perf_counter() - started
        self._fit.batch = batch
        return seconds / case.horizon

    def close(self) -> None:
        """End the workers."""
        self._beside.shutdown()
        self._sampler.close()


class Asker(Node):  # type: ignore[misc]
    """The bench in place of a learner: the run without a name is its own."""

    def is_ours(self, run_id: str, topic: str) -> bool:
        """Return whether a message is of this run."""
        return run_id == ''


class Graph:
    """Sampling through nodes; this process is the learner."""

    def __init__(self, case: Case, namespace: str, executables: tuple[str, ...]) -> None:
        self._case, self._fit, self._count = case, Fit(case), 0
        self._children = [_start(name, namespace, case.suite) for name in executables]
        self._context = rclpy.Context()
        rclpy.init(context=self._context, args=[], signal_handler_options=SignalHandlerOptions.NO)
        self._node = Asker('learner', namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        publisher = self._node.create_publisher(KnowledgeMessage, 'knowledge', qos.LATCHED)
        publisher.publish(knowledge_to_msg(case.knowledge, '', Seal()))
        self._closing = False
        self._client = RolloutClient(self._node, self._over)
        self._deadline = time.monotonic() + PATIENCE
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        while not self._closing:
            self._executor.spin_once(timeout_sec=0.2)

    def _over(self) -> bool:
        for child in self._children:
            if child.poll() is not None:
                raise LpgftwError(f'a node ended with {child.returncode}')
        if time.monotonic() > self._deadline:
            raise LpgftwError(f'the nodes gave no rollout within {PATIENCE:g} s')
        return self._closing

    def seconds_per_step(self) -> float:
        """Ask the bridge for one batch."""
        case = self._case
        self._count += 1
        self._deadline = time.monotonic() + PATIENCE
        goal = RolloutGoal(RolloutKey('', case.task, self._count, 1, True, 0, 1), case.rows)
        started = time.perf_counter()
        batch = self._client.collect(goal, self._fit)
        seconds = time.perf_counter() - started
        self._fit.batch = batch
        return seconds / case.horizon

    def close(self) -> None:
        """End all processes of this graph."""
        self._closing = True
        self._thread.join(2.0)
        self._client.close()
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)
        for child in self._children:
            end(child)


def in_process(case: Case) -> InProcess:
    """Return the in-process driver."""
    return InProcess(case)


def processes(case: Case) -> Graph:
    """Return bridge, policy and learner in three processes."""
    return Graph(case, '/bench_processes', ('sim_bridge', 'policy'))


def composed(case: Case) -> Graph:
    """Return bridge and policy in one process, the learner in another."""
    return Graph(case, '/bench_composed', ('composed',))


def _start(executable: str, namespace: str, suite: str) -> 'subprocess.Popen[Any]':
    words = ['-m', f'lpgftw_ros.nodes.{executable}', '--ros-args', '-r', f'__ns:={namespace}']
    words += ['-p', f'suite:={suite}', '--log-level', 'error']
    environment = {**os.environ, 'LPGFTW_PARENT': str(os.getpid())}  # nodes end with us
    return subprocess.Popen([sys.executable, *words], env=environment)


def end(child: 'subprocess.Popen[Any]') -> None:
    """End a process: ask first, then kill."""
    child.terminate()
    try:
        child.wait(5.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


# The bare exchange of messages `lpgftw bench ros` compares the lock-step with.


class PingPong:
    """Two bare rclpy nodes that exchange messages of the same sizes."""

    ROUND_TRIPS = 300

    def __init__(self, case: Case, namespace: str = '/bench_echo') -> None:
        spec = case.knowledge.spec
        sizes = [str(case.rows), str(spec.act_dim)]
        words = ['-m', 'lpgftw_ros.bench.ros', *sizes, namespace]
        self._child = subprocess.Popen([sys.executable, *words])
        self._context = rclpy.Context()
        rclpy.init(context=self._context, args=[], signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node('ping', namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._publisher = self._node.create_publisher(Observations, 'ping', qos.LOCK_STEP)
        self._node.create_subscription(Actions, 'pong', self._on_pong, qos.LOCK_STEP)
        self._data: Array = np.zeros((case.rows, spec.obs_dim))
        self._step = 0

    def _on_pong(self, message: Actions) -> None:
        self._step += message.step == self._step

    def _round_trip(self) -> float:
        """Return the seconds from a ping to its pong."""
        rows, dim = self._data.shape
        step, started = self._step, time.perf_counter()
        message = Observations(step=step, n=rows, dim=dim, data=to_field(self._data))
        self._publisher.publish(message)
        while self._step == step:
            self._executor.spin_once(timeout_sec=0.5)
            if self._step == step and time.perf_counter() - started > 0.5:
                self._publisher.publish(message)  # both ends may not know each other yet
        return time.perf_counter() - started

    def between(self) -> None:
        """Do nothing: the next ping follows at once."""

    def seconds_per_step(self) -> float:
        """Play some rounds."""
        deadline = time.monotonic() + PATIENCE
        while (
            self._node.count_subscribers('ping') == 0 or self._node.count_publishers('pong') == 0
        ):
            if time.monotonic() > deadline:
                raise LpgftwError(f'no answer from the ping-pong within {PATIENCE:g} s')
            time.sleep(0.05)
        seconds = 0.0
        for _ in range(self.ROUND_TRIPS):
            self.between()
            seconds += self._round_trip()
        return seconds / self.ROUND_TRIPS

    def close(self) -> None:
        """End the other end."""
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)
        end(self._child)


class PacedPingPong(PingPong):
    """The same exchange at the pace of the rollout: the rows take a step between two pings.

    Two nodes that do nothing else answer faster than two that wait for physics in between. The
    difference to `PingPong` is not a cost of the lock-step.
    """

    def __init__(self, case: Case) -> None:
        super().__init__(case, '/bench_paced_echo')
        self._sampler = Sampler(case.suite, 0)
        self._env = self._sampler.env(case.task, case.rows)
        self._idle = np.zeros((case.rows, self._env.act_dim))

    def between(self) -> None:
        """Take one control step; its time does not count."""
        if self._env.n_running == 0:
            self._env.reset(seed=1)
        self._env.advance(self._idle)

    def close(self) -> None:
        """End the other end and the workers."""
        super().close()
        self._sampler.close()


def ping_pong(case: Case) -> PingPong:
    """Return the bare exchange of messages."""
    return PingPong(case)


def paced_ping_pong(case: Case) -> PingPong:
    """Return the bare exchange of messages at the pace of the rollout."""
    return PacedPingPong(case)


CASES = {'mt10': ('mt10', 'window-close', 50), 'halfcheetah': ('halfcheetah-gravity', '', 10)}
"""Name -> suite, task (empty: its first), rows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--only', choices=tuple(CASES), help='measure one of them')
    parser.add_argument('--rounds', type=arguments.count, default=15, help='rounds per contestant')
    parser.add_argument('--quick', action='store_true', help='short rollouts, two rounds')


def run(args: argparse.Namespace) -> int:
    """Measure and print ratios."""
    limit_threads(1)
    names = (args.only,) if args.only else tuple(CASES)
    results = {name: measure(name, 2 if args.quick else args.rounds, args.quick) for name in names}
    print(json.dumps(results, indent=2) if args.json else _text(results))
    return 0


def measure(name: str, rounds: int, quick: bool = False) -> dict[str, float]:
    """Return ratios and control steps per second of one case."""
    from lpgftw_ros.bench.ros import (
        Case,
        composed,
        Contestant,
        in_process,
        paced_ping_pong,
        ping_pong,
        processes,
    )

    if name not in CASES:
        raise UnknownName('case', name, CASES)
    with tempfile.TemporaryDirectory(prefix='lpgftw-bench-') as folder, own_domain():
        case = Case.of(*CASES[name], folder=folder, horizon=20 if quick else 0)
        makers: dict[str, Callable[[Case], Contestant]] = {
            'in_process': in_process,
            'processes': processes,
            'composed': composed,
            'ping_pong': ping_pong,
            'paced_ping_pong': paced_ping_pong,
        }
        contestants: dict[str, Contestant] = {key: maker(case) for key, maker in makers.items()}
        try:
            for contestant in contestants.values():
                contestant.seconds_per_step()  # warm up
            times = _rounds({k: c.seconds_per_step for k, c in contestants.items()}, rounds)
        finally:
            for contestant in contestants.values():
                contestant.close()
    return _ratios(times, case.rows)


def _rounds(contestants: dict[str, Callable[[], float]], rounds: int) -> list[dict[str, float]]:
    """Let all take turns; the order alternates, so that none always follows the same other one."""
    names, times = list(contestants), []
    for number in range(rounds):
        order = names if number % 2 == 0 else names[::-1]
        times.append({name: contestants[name]() for name in order})
    return times


def _ratios(times: list[dict[str, float]], rows: int) -> dict[str, float]:
    def median(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(value(one) for one in times)

    return {
        'ratio': median(lambda t: t['in_process'] / t['processes']),
        'composed_ratio': median(lambda t: t['in_process'] / t['composed']),
        'pingpong_ratio': median(lambda t: (t['processes'] - t['in_process']) / t['ping_pong']),
        'paced_pingpong_ratio': median(
            lambda t: (t['processes'] - t['in_process']) / t['paced_ping_pong']
        ),
        'in_process': rows / median(lambda t: t['in_process']),
        'processes': rows / median(lambda t: t['processes']),
        'composed': rows / median(lambda t: t['composed']),
        'pingpong_seconds': median(lambda t: t['ping_pong']),
        'paced_pingpong_seconds': median(lambda t: t['paced_ping_pong']),
        'rounds': len(times),
    }


@contextmanager
def own_domain() -> Iterator[None]:
    """Keep the measurement apart from other graphs on this machine."""
    old = {k: os.environ.get(k) for k in ('ROS_DOMAIN_ID', 'ROS_AUTOMATIC_DISCOVERY_RANGE')}
    os.environ.setdefault('ROS_DOMAIN_ID', str(1 + os.getpid() % 90))
    os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    try:
        yield
    finally:
        for key, value in old.items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})


def _text(results: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, values in results.items():
        lines.append(f'{name} (ratios, then control steps/s of all rows together)')
        for key, value in values.items():
            digits = 0 if value >= 100 else 2 if value >= 0.01 else 5
            lines.append(f'  {key:<18}{value:>12.{digits}f}')
    return '\n'.join(lines)


# The other end of the bare ping-pong, a process of its own: `python -m lpgftw_ros.bench.ros`.


def echo() -> Node:
    """Return a node that sends every message straight back, for `lpgftw bench deploy`."""
    follow_environment()
    rclpy.init()
    node = Node('pingpong')
    pong = node.create_publisher(Float64MultiArray, 'pong', qos.LOCK_STEP)
    node.create_subscription(Float64MultiArray, 'ping', pong.publish, qos.LOCK_STEP)
    return node


def actor(rows: int, act_dim: int, namespace: str) -> Node:
    """Return a node that answers every observation with the same actions."""
    rclpy.init(args=[])
    node = Node('echo', namespace=namespace)
    data = to_field(np.zeros((rows, act_dim)))
    pong = node.create_publisher(Actions, 'pong', qos.LOCK_STEP)
    node.create_subscription(
        Observations,
        'ping',
        lambda message: pong.publish(Actions(step=message.step, data=data)),
        qos.LOCK_STEP,
    )
    return node


def main(words: list[str]) -> None:
    """Answer until a signal, or until the parent is gone."""
    parent = os.getppid()
    alone = words[:1] == ['--ros-args']
    node = echo() if alone else actor(int(words[0]), int(words[1]), words[2])
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while os.getppid() == parent:
            executor.spin_once(timeout_sec=1.0)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        rclpy.try_shutdown()


if __name__ == '__main__':
    main(sys.argv[1:])
