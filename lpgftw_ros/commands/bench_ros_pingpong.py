"""The bare exchange of messages `lpgftw bench ros` compares the lock-step with."""

import subprocess
import sys
import time

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from lpgftw_interfaces.msg import Actions, Observations
from lpgftw_ros.commands.bench_ros_contestants import Case, end, PATIENCE
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import to_field


class PingPong:
    """Two bare rclpy nodes that exchange messages of the same sizes."""

    ROUND_TRIPS = 300

    def __init__(self, case: Case, namespace: str = '/bench_echo') -> None:
        spec = case.knowledge.spec
        sizes = [str(case.rows), str(spec.act_dim)]
        words = ['-m', 'lpgftw_ros.commands.bench_ros_echo', *sizes, namespace]
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

    Two nodes that do nothing else answer faster than two that wait for physics in between; the
    difference to `PingPong` is no cost of the lock-step.
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
