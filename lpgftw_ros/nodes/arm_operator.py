"""An operator's node: brings the arm's graph to life, runs episodes, measures the control loop."""

from collections.abc import Callable
import time
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger

from lpgftw_interfaces.msg import ArmCommand, Observations, SafetyState
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.nodes import qos

CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE
_TOGETHER = 0.0005
"""s. Two messages sent one after the other may be taken in the other order."""


class ArmOperator:
    """Watches the topics of one control loop from outside."""

    def __init__(self, namespace: str) -> None:
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node('operator', namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self.state = SafetyState(level=SafetyState.INACTIVE)
        self.latencies: list[float] = []
        """s from an observation to the command of the guard that answers it."""
        self._seen: dict[tuple[int, int], float] = {}
        self._asked: tuple[float, float] | None = None
        self._sent = 0.0
        subscribe = self.node.create_subscription
        subscribe(SafetyState, 'safety_state', self._on_state, qos.LATCHED)
        subscribe(Observations, 'observations', self._on_observation, qos.LOCK_STEP)
        subscribe(ArmCommand, 'arm_command', self._on_asked, qos.LOCK_STEP)
        subscribe(Float64MultiArray, 'joint_velocity_command', self._on_sent, qos.LOCK_STEP)

    def close(self) -> None:
        """Leave the graph."""
        self._executor.shutdown(timeout_sec=0.5)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Take in messages until something is so, or the time is over."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                return False
            self._executor.spin_once(timeout_sec=0.02)
        return True

    def call(self, kind: Any, name: str, request: Any = None, timeout: float = 60.0) -> Any:
        """Call a service and return its answer."""
        client = self.node.create_client(kind, name)
        try:
            if not self.until(client.service_is_ready, timeout):
                raise LpgftwError(f'there is no service {name}')
            future = client.call_async(request or kind.Request())
            if not self.until(future.done, timeout):
                raise LpgftwError(f'{name} did not answer')
            return future.result()
        finally:
            self.node.destroy_client(client)

    def trigger(self, name: str) -> None:
        """Call a `Trigger` service; raise if it refuses."""
        answer = self.call(Trigger, name)
        if not answer.success:
            raise LpgftwError(f'{name}: {answer.message}')

    def change(self, node: str, transition: int, timeout: float = 30.0) -> None:
        """Try a lifecycle transition until it is allowed: inputs take their time to arrive."""
        request, end = ChangeState.Request(), time.monotonic() + timeout
        request.transition.id = transition
        while not self.call(ChangeState, f'{node}/change_state', request).success:
            if time.monotonic() > end:
                raise LpgftwError(f'{node} refuses transition {transition}')
            self.until(lambda: False, 0.5)

    def make_ready(self) -> None:
        """Bring guard and bridge to life."""
        for transition in (CONFIGURE, ACTIVATE):
            for node in ('safety_guard', 'arm_bridge'):
                self.change(node, transition)
        if not self.until(lambda: self.state.level <= SafetyState.LIMITED, 20.0):
            raise LpgftwError(f'the guard does not run: {self.state.text}')

    def ping(self, count: int, period: float) -> list[float]:
        """Return the round trips (s) of messages to a bare process and back."""
        pongs: list[float] = []
        publisher = self.node.create_publisher(Float64MultiArray, 'ping', qos.LOCK_STEP)
        subscription = self.node.create_subscription(
            Float64MultiArray, 'pong', lambda _: pongs.append(time.monotonic()), qos.LOCK_STEP
        )
        message, trips = Float64MultiArray(data=[0.0] * 6), []
        if not self.until(lambda: publisher.get_subscription_count() > 0, 20.0):
            raise LpgftwError('the bare process is not there')
        self.until(lambda: False, 1.0)
        for _ in range(count):
            pongs.clear()
            began = time.monotonic()
            publisher.publish(message)
            if self.until(lambda: bool(pongs), 1.0):
                trips.append(pongs[0] - began)
            self.until(lambda: False, max(0.0, began + period - time.monotonic()))
        self.node.destroy_subscription(subscription)
        self.node.destroy_publisher(publisher)
        return trips

    def _on_state(self, message: SafetyState) -> None:
        self.state = message

    def _on_observation(self, message: Observations) -> None:
        self._seen = {(message.rollout_id, message.step): time.monotonic()}

    def _on_asked(self, message: ArmCommand) -> None:
        now = time.monotonic()
        began = self._seen.pop((message.rollout_id, message.step), None)
        if began is None:
            return
        if now - self._sent < _TOGETHER:  # its command was taken just before it
            self.latencies.append(self._sent - began)
        else:
            self._asked = (began, now)

    def _on_sent(self, message: Float64MultiArray) -> None:
        self._sent = time.monotonic()
        if self._asked is not None:
            self.latencies.append(self._sent - self._asked[0])
            self._asked = None
