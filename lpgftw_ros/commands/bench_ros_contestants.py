"""Contestants of `lpgftw bench ros`: the same rollouts in process, by three processes, composed.

Each fits a value function to the last batch while the next one is sampled, as both drivers do.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
import os
from pathlib import Path
import subprocess
import sys
import threading
import time
from typing import Any, Protocol

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
import yaml

from lpgftw_interfaces.msg import KnowledgeBase
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import (
    initial_head,
    initial_theta,
    Knowledge,
    PolicySpec,
    TaskFactors,
)
from lpgftw_ros.learning.values import value_features, ValueFunction
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import knowledge_to_msg
from lpgftw_ros.nodes.rollout_client import RolloutClient
from lpgftw_ros.nodes.training_worker import RolloutGoal
from lpgftw_ros.resources import data_folder

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
    """Someone who samples."""

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


class Graph:
    """Sampling through nodes; this process is the learner."""

    def __init__(self, case: Case, namespace: str, executables: tuple[str, ...]) -> None:
        self._case, self._fit, self._count = case, Fit(case), 0
        self._children = [_start(name, namespace, case.suite) for name in executables]
        self._context = rclpy.Context()
        rclpy.init(context=self._context, args=[], signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node('learner', namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        publisher = self._node.create_publisher(KnowledgeBase, 'knowledge_base', qos.LATCHED)
        publisher.publish(knowledge_to_msg(case.knowledge, 'bench'))
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
        goal = RolloutGoal(case.task, case.rows, self._count, 1, True, 0, 1)
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
    """End a process, kindly at first."""
    child.terminate()
    try:
        child.wait(5.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
