"""A small lifelong run over the real graph, and a client of its services and topics."""

import json
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

import rclpy
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from lpgftw_ros.nodes import qos

SUITE = """
description: short HalfCheetah tasks for tests
kind: body
horizon: 30
hidden: []
defaults: {body: halfcheetah}
tasks:
  - {name: g-08, gravity: 0.8}
  - {name: g-12, gravity: 1.2}
  - {name: g-06, gravity: 0.6}
  - {name: g-10, gravity: 1.0}
sequence: [g-08, g-12, g-06, g-10]
"""


def write_suite(folder: Path, horizon: int = 30) -> str:
    path = folder / 'tiny.yaml'
    path.write_text(SUITE.replace('horizon: 30', f'horizon: {horizon}'))
    return str(path)


def options(suite: str, out: Path, learner: str = 'lpg-ftw', iterations: int = 3) -> list[str]:
    settings = ['max_kl=0.1', 'evaluation_episodes=2', 'stochastic_episodes=2']
    settings += ['update_trajectories=3'] + (['max_columns=2'] if learner == 'lpg-ftw' else [])
    words = ['--suite', suite, '--learner', learner, '--seed', '3', '--out', str(out)]
    words += ['--iterations', str(iterations), '--trajectories', '4', '--workers', '1']
    for setting in settings:
        words += ['--set', setting]
    return words


def train(words: list[str]) -> None:
    command = [sys.executable, '-m', 'lpgftw_ros.cli', 'train', *words]
    subprocess.run(command, check=True, capture_output=True)


def metrics(out: Path) -> list[dict]:
    path = out / 'metrics.jsonl'
    lines = path.read_text().splitlines() if path.exists() else []
    return [{k: v for k, v in json.loads(line).items() if k != 'timing'} for line in lines]


def scores(out: Path) -> list[dict]:
    return json.loads((out / 'summary.json').read_text())['tasks']


def kill(up, node: str) -> bool:
    """Kill the process of a node with SIGKILL; return whether it was there."""
    for pid in up.children():
        try:
            words = Path(f'/proc/{pid}/cmdline').read_bytes().decode().split('\0')
        except OSError:
            continue
        if f'lpgftw_ros.nodes.{node}' in words:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def wait_for(condition, timeout: float, each=lambda: time.sleep(0.02)) -> bool:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        each()
    return False


def kill_at_random(up, out: Path, nodes: list[str], count: int, rng: random.Random) -> int:
    """Kill nodes in random order, each time after some progress; return how many were killed."""
    turns = (nodes * count)[:count]
    rng.shuffle(turns)
    killed = 0
    while killed < count and up.process.poll() is None:
        size = len(metrics(out))
        more = wait_for(
            lambda size=size: len(metrics(out)) > size or up.process.poll() is not None, 60.0
        )
        assert more, up.output[-3000:]
        time.sleep(rng.uniform(0.0, 0.3))
        killed += kill(up, turns[killed])
    return killed


class GraphClient:
    """Talks to a graph as a user would, by services, actions and topics."""

    def __init__(self, namespace: str = '/lifelong') -> None:
        self._context = rclpy.Context()  # its own: a test that fails leaves the others theirs
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node('test_user', namespace=namespace, context=self._context)
        self.executor = SingleThreadedExecutor(context=self._context)
        self.executor.add_node(self.node)
        self.latest: dict[str, object] = {}
        self._clients: dict[str, object] = {}

    def close(self) -> None:
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def listen(self, kind: type, topic: str) -> None:
        def keep(message: object) -> None:
            self.latest[topic] = message

        self.node.create_subscription(kind, topic, keep, qos.LATCHED)

    def spin(self, seconds: float = 0.05) -> None:
        self.executor.spin_once(timeout_sec=seconds)

    def until(self, condition, timeout: float = 60.0) -> bool:
        def met() -> bool:
            try:
                return condition()
            except KeyError:  # nothing was heard on that topic yet
                return False

        return wait_for(met, timeout, self.spin)

    def call(self, kind: type, name: str, timeout: float = 30.0, **fields: object) -> object:
        client = self._clients.get(name) or self.node.create_client(kind, name)
        self._clients[name] = client
        assert client.wait_for_service(timeout), f'no service {name}'
        future = client.call_async(kind.Request(**fields))
        assert self.until(future.done, timeout), f'{name} did not answer'
        return future.result()

    def send_goal(self, kind: type, name: str, feedback=None, **fields: object):
        client = ActionClient(self.node, kind, name)
        assert client.wait_for_server(30.0), f'no action {name}'
        future = client.send_goal_async(kind.Goal(**fields), feedback)
        assert self.until(future.done, 30.0)
        return future.result()

    def result(self, handle, timeout: float = 120.0):
        future = handle.get_result_async()
        assert self.until(future.done, timeout), 'the goal did not end'
        return future.result()
