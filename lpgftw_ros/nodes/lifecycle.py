"""The base of all nodes: lifecycle with autostart, diagnostics and a clean end."""

import os
import time

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.nodes.declare import declare
from lpgftw_ros.nodes.parameters import NodeConfig, NODES

DIAGNOSTICS_PERIOD = 1.0  # s
STEADY = Clock(clock_type=ClockType.STEADY_TIME)
OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)


class LifelongNode(LifecycleNode):
    """A lifecycle node that can start itself and tells how it is.

    Subclasses fill `configure`, `activate`, `deactivate`, `cleanup` and `health`. A
    `LpgftwError` raised in one of the first two refuses the transition with its one line.
    """

    CHANGEABLE: tuple[str, ...] = ()
    """Parameters that may be set while the node runs."""

    def __init__(self, name: str, config_type: type[NodeConfig] | None = None) -> None:
        """Declare the parameters of `config_type`, by default those `NODES` has for the name."""
        super().__init__(name)
        self.started = time.monotonic()
        self.exit_code: int | None = None
        """Set to end the process: 0 done, 1 failed, 2 wrong settings (not started again)."""
        self.config = declare(self, config_type or NODES[name], changeable=self.CHANGEABLE)
        self._warn_of_unused_parameters()
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_timer(DIAGNOSTICS_PERIOD, self.publish_diagnostics, clock=STEADY)
        if self.config.autostart:
            self._autostart = self.create_timer(0.0, self._start, clock=STEADY)

    def configure(self) -> None:
        """Build what the node needs; may take its time."""

    def activate(self) -> None:
        """Begin to work."""

    def deactivate(self) -> None:
        """Stop working; keep what was built. Also called before the process ends."""

    def cleanup(self) -> None:
        """Give back what `configure` built. Also called before the process ends."""

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return level, message and values for /diagnostics."""
        return OK, self.state, {}

    @property
    def state(self) -> str:
        """Lifecycle state: unconfigured, inactive, active or finalized."""
        return str(self._state_machine.current_state[1])

    @property
    def active(self) -> bool:
        """Whether the node is to work."""
        return self.state == 'active'

    def finish(self, exit_code: int) -> None:
        """End the process with this code as soon as the running callback returns."""
        self.exit_code = exit_code
        if self.executor is not None:
            self.executor.create_task(lambda: None)  # wakes it up

    def publish_diagnostics(self) -> None:
        """Publish the node's health."""
        level, message, values = self.health()
        if not self.active and level == OK:
            level, message = WARN, self.state
        values = {'state': self.state, 'pid': os.getpid(), 'run_id': self.config.run_id} | values
        status = DiagnosticStatus(
            level=level,
            name=f'{self.get_fully_qualified_name()}: {self.get_name()}',
            message=message,
            hardware_id=self.config.run_id,
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)

    def _start(self) -> None:
        self.destroy_timer(self._autostart)
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() is not TransitionCallbackReturn.SUCCESS:
                if self.exit_code is None:
                    self.finish(1)
                return

    def _transition(self, action: str) -> TransitionCallbackReturn:
        try:
            getattr(self, action)()
        except LpgftwError as error:
            self.get_logger().error(f'cannot {action}: {error}')
            if self.config.autostart:
                self.finish(2)
            return TransitionCallbackReturn.FAILURE
        except Exception as error:
            self.get_logger().error(f'cannot {action}: {type(error).__name__}: {error}')
            return TransitionCallbackReturn.ERROR
        return TransitionCallbackReturn.SUCCESS

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition to inactive."""
        return self._transition('configure')

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition to active; lifecycle publishers begin to send first."""
        super().on_activate(state)
        result = self._transition('activate')
        self.get_logger().info('active' if result.name == 'SUCCESS' else 'not active')
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition back to inactive; lifecycle publishers go mute last."""
        result = self._transition('deactivate')
        super().on_deactivate(state)
        return result

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition back to unconfigured."""
        return self._transition('cleanup')

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition to finalized, from wherever the node is."""
        results = []
        if state.label == 'active':
            results.append(self.on_deactivate(state))
        if state.label in ('active', 'inactive'):
            results.append(self._transition('cleanup'))
        failed = [result for result in results if result is not TransitionCallbackReturn.SUCCESS]
        return failed[0] if failed else TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give everything back after a failed transition, so that configure can be tried again."""
        return self._transition('cleanup')

    def _warn_of_unused_parameters(self) -> None:
        unused = [name for name in self._parameter_overrides if not self.has_parameter(name)]
        for name in unused:
            self.get_logger().warning(f"parameter '{name}' is set but {self.get_name()} has none")
