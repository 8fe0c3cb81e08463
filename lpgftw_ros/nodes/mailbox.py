"""A topic read by a thread of its own instead of by the executor.

rclpy's executor builds a wait set over every entity of its nodes for each message: half of a
control step. A thread that waits for one topic alone answers in half the time and leaves the
executor free for services.
"""

from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import QoSProfile


class _Aside(CallbackGroup):
    """Entities the executor leaves alone."""

    def can_execute(self, entity: Any) -> bool:
        """Return that the executor has no business here."""
        return False

    def beginning_execution(self, entity: Any) -> bool:
        """Refuse, should the executor try."""
        return False

    def ending_execution(self, entity: Any) -> None:
        """Nothing was begun."""


class Mailbox:
    """The newest messages of a topic, taken by one thread."""

    def __init__(self, node: Node, kind: type, topic: str, profile: QoSProfile) -> None:
        self._node, self._kind = node, kind
        self._subscription = node.create_subscription(
            kind, topic, lambda message: None, profile, callback_group=_Aside()
        )
        self._bell = GuardCondition(None, None, context=node.context)
        self._wait_set = rclpy_implementation.WaitSet(1, 1, 0, 0, 0, 0, node.context.handle)

    def take(self, timeout: float) -> Any:
        """Return the next message; None after the time or when another thread woke us."""
        subscription, bell = self._subscription.handle, self._bell.handle
        with subscription, bell:
            wait_set = self._wait_set
            wait_set.clear_entities()
            wait_set.add_subscription(subscription)
            wait_set.add_guard_condition(bell)
            wait_set.wait(int(timeout * 1e9))
            taken = subscription.take_message(self._kind, False)
        return None if taken is None else taken[0]

    def wake(self) -> None:
        """Let a waiting `take` return."""
        self._bell.trigger()

    def close(self) -> None:
        """Leave the topic; nobody may be waiting any more."""
        self._node.destroy_subscription(self._subscription)
        self._bell.destroy()
