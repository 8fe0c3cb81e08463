"""An operator's node: activates the arm's graph, runs episodes, measures the control loop."""

from collections.abc import Callable
import time
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64MultiArray, UInt64
from std_srvs.srv import Trigger

from lpgftw_interfaces.msg import ArmCommand, Observations, SafetyState
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.nodes import qos

CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE


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
        """s from an observation to the guard's first command that answers it."""
        self._seen: dict[tuple[int, int], float] = {}
        self._asked: dict[int, float] = {}
        self._answered = (-1, 0.0)
        subscribe = self.node.create_subscription
        subscribe(SafetyState, 'safety_state', self._on_state, qos.LATCHED)
        subscribe(Observations, 'observations', self._on_observation, qos.LOCK_STEP)
        subscribe(ArmCommand, 'arm_command', self._on_asked, qos.LOCK_STEP)
        subscribe(UInt64, 'answered_command', self._on_answered, qos.LOCK_STEP)

    def close(self) -> None:
        """Leave the graph."""
        self._executor.shutdown(timeout_sec=0.5)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Process messages until a condition holds, or the time is over."""
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

    def trigger(self, name: str, patience: float = 0.0) -> None:
        """Call a `Trigger` service; raise if it still refuses after some seconds."""
        end = time.monotonic() + patience
        while not (answer := self.call(Trigger, name)).success:
            if time.monotonic() > end:
                raise LpgftwError(f'{name}: {answer.message}')
            self.until(lambda: False, 0.5)

    def change(self, node: str, transition: int, timeout: float = 30.0) -> None:
        """Try a lifecycle transition until it is allowed: inputs need time to arrive."""
        request, end = ChangeState.Request(), time.monotonic() + timeout
        request.transition.id = transition
        while not self.call(ChangeState, f'{node}/change_state', request).success:
            if time.monotonic() > end:
                raise LpgftwError(f'{node} refuses transition {transition}')
            self.until(lambda: False, 0.5)

    def make_ready(self) -> None:
        """Activate guard and bridge."""
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
        key = (message.key.rollout, message.step)
        if key not in self._seen:  # an observation that is sent again began the first time
            self._seen = {key: time.monotonic()}

    def _on_asked(self, message: ArmCommand) -> None:
        began = self._seen.pop((message.key.rollout, message.step), None)
        if began is None:
            return
        self._asked[message.sequence] = began
        if message.sequence <= self._answered[0]:  # the two topics may be taken in either order
            self._settle(*self._answered)

    def _on_answered(self, message: UInt64) -> None:
        self._answered = (message.data, time.monotonic())
        self._settle(*self._answered)

    def _settle(self, sequence: int, now: float) -> None:
        """Note the latency of every request up to this one; a newer one answers those before."""
        for number in [number for number in self._asked if number <= sequence]:
            self.latencies.append(now - self._asked.pop(number))
