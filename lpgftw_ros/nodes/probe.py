"""Watch a graph from outside: which nodes report what on /diagnostics."""

from dataclasses import dataclass
import time

from diagnostic_msgs.msg import DiagnosticArray
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions


@dataclass(frozen=True, slots=True)
class Report:
    """The last word of one node."""

    level: int
    message: str
    values: dict[str, str]
    received: float
    """Monotonic time, s."""

    @property
    def active(self) -> bool:
        """Whether the node is in the lifecycle state active."""
        return self.values.get('state') == 'active'

    @property
    def healthy(self) -> bool:
        """Whether the node is active and has nothing to complain about."""
        return self.level == 0 and self.active


class Probe:
    """Collects the reports of all nodes of one domain."""

    def __init__(self) -> None:
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node(f'probe_{time.time_ns()}', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._node.create_subscription(DiagnosticArray, '/diagnostics', self._keep, 50)
        self.reports: dict[str, Report] = {}
        """Full node name -> last report."""

    def _keep(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {item.key: item.value for item in status.values}
            self.reports[status.name.split(':')[0]] = Report(
                int.from_bytes(status.level, 'little'), status.message, values, time.monotonic()
            )

    def look(self, timeout: float) -> None:
        """Take in what arrives within the time."""
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=left)

    def close(self) -> None:
        """Leave the domain."""
        self._executor.shutdown(timeout_sec=0.5)
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)
