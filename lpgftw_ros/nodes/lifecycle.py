"""The base of all nodes: lifecycle with autostart, diagnostics and a clean shutdown."""

from collections.abc import Iterable
from dataclasses import Field, fields
import gc
import os
import socket
import sys
import time
from typing import Any, TypeVar

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.exceptions import ParameterException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter

from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.graph.admission import claim, internal_topics, talkers
from lpgftw_ros.graph.parameters import NodeParameters, NODES
from lpgftw_ros.learning.config import configure
from lpgftw_ros.runs.settings import help_text, KEY_VALUES

# ROS parameters declared from configuration dataclasses, with descriptions and ranges.


T = TypeVar('T')
LARGEST_INTEGER = 2**31 - 1  # rqt_reconfigure hides parameters with wider ranges
ARRAYS = {
    int: Parameter.Type.INTEGER_ARRAY,
    float: Parameter.Type.DOUBLE_ARRAY,
    str: Parameter.Type.STRING_ARRAY,
}
SETTINGS = 'settings'
"""Parameters below this name are settings of the run."""
AT_START = ('autostart', 'run_id')
"""Read before there is a node to configure."""


def declare(node: Node, config_type: type[T], read_only: Iterable[str] = ()) -> T:
    """Declare a parameter for each field and return the configuration they hold.

    Raises `InvalidConfig` for a value of the wrong type or out of its range.
    """
    for item in plain_fields(config_type):
        declare_field(node, item.name, item, item.default, read_only=item.name in read_only)
    return read(node, config_type)


def plain_fields(config_type: type) -> list[Field[Any]]:
    """Return the fields that are one parameter each; settings of a run are many."""
    return [f for f in fields(config_type) if f.metadata.get('reads') != KEY_VALUES]


def declare_field(
    node: Node,
    name: str,
    item: Field[Any],
    default: Any,
    *,
    read_only: bool = False,
    ignore_override: bool = False,
) -> None:
    """Declare one parameter; a list, held as a text by the field, becomes an array."""
    descriptor, items = describe(item, read_only=read_only), item.metadata.get('items')
    kind = ARRAYS[items.kind] if items else default
    try:
        node.declare_parameter(name, kind, descriptor, ignore_override)
    except ParameterException as error:
        raise InvalidConfig(_explain(node, name, item, error)) from error
    if items and node.get_parameter_or(name).type_ is Parameter.Type.NOT_SET:
        members = items.read(default) if isinstance(default, str) else list(default)
        node.set_parameters([Parameter(name, ARRAYS[items.kind], members)])


def read(node: Node, config_type: type[T]) -> T:
    """Return the configuration as the parameters hold it now."""
    names = plain_fields(config_type)
    return configure(config_type, {f.name: value_of(f, node.get_parameter(f.name)) for f in names})


def value_of(item: Field[Any], parameter: Parameter) -> Any:
    """Return a parameter as the field holds it: lists as texts."""
    items = item.metadata.get('items')
    return items.write(parameter.value) if items else parameter.value


def describe(item: Field[Any], *, read_only: bool) -> ParameterDescriptor:
    """Return help text, range and choices of a field as ROS shows them."""
    low, high, choices = (item.metadata.get(key) for key in ('min', 'max', 'choices'))
    descriptor = ParameterDescriptor(
        name=item.name, description=help_text(item), read_only=read_only
    )
    if choices:
        descriptor.additional_constraints = 'one of: ' + ', '.join(c or "''" for c in choices)
    if low is None and high is None:
        return descriptor
    if isinstance(item.default, float):
        largest = sys.float_info.max
        span = FloatingPointRange(
            from_value=-largest if low is None else float(low),
            to_value=largest if high is None else float(high),
        )
        descriptor.floating_point_range = [span]
    else:
        span = IntegerRange(
            from_value=-LARGEST_INTEGER if low is None else int(low),
            to_value=LARGEST_INTEGER if high is None else int(high),
            step=1,
        )
        descriptor.integer_range = [span]
    return descriptor


def _explain(node: Node, name: str, item: Field[Any], error: Exception) -> str:
    override = node._parameter_overrides.get(name)
    got = repr(override.value) if override is not None else 'another'
    low, high = item.metadata.get('min'), item.metadata.get('max')
    kind = {bool: 'true or false', int: 'a whole number', float: 'a number such as 1.0'}.get(
        type(item.default), 'a text'
    )
    if items := item.metadata.get('items'):
        kind = {int: '[1, 2]', float: '[1.0, 2.0]', str: '[a, b]'}[items.kind]
        kind = f'a list such as {kind}'
    span = f' from {low} to {high}' if low is not None and high is not None else ''
    return f'parameter {name} must be {kind}{span}, got {got}'


DIAGNOSTICS_PERIOD = 1.0  # s
RECENT = 10.0  # s a dropped message stays a warning
UNKNOWN_NODE = '_NODE_NAME_UNKNOWN_'
STEADY = Clock(clock_type=ClockType.STEADY_TIME)
OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)


class LifelongNode(LifecycleNode):
    """A lifecycle node with autostart that reports its health.

    Subclasses implement `configure`, `activate`, `deactivate`, `cleanup` and `health`. A
    `LpgftwError` in one of the first two refuses the transition, with its text as the reason.
    """

    CHANGEABLE: tuple[str, ...] = ()
    """Parameters that take effect at once; the others are read when the node is configured."""

    def __init__(self, name: str, config_type: type[NodeParameters] | None = None) -> None:
        """Declare the parameters of `config_type`, by default those `NODES` has for the name."""
        super().__init__(name)
        self.started = time.monotonic()
        self.exit_code: int | None = None
        """Set to end the process: 0 done, 1 failed, 2 wrong settings (not started again)."""
        self.config = declare(self, config_type or NODES[name], AT_START)
        self.add_on_set_parameters_callback(self._judge_parameters)
        domain = self.context.get_domain_id()
        self._lock = claim(self.get_fully_qualified_name(), self.config.run_id, domain)
        self._warn_of_unused_parameters()
        self._diagnostic_name = f'{self.get_fully_qualified_name()}: {self.get_name()}'
        self._identity = (f'{time.time():.6f}', socket.gethostname(), str(os.getpid()))
        self._foreign, self._foreign_time, self._foreign_topic = 0, -RECENT, ''
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_subscription(DiagnosticArray, '/diagnostics', self._on_diagnostics, 10)
        self.create_timer(DIAGNOSTICS_PERIOD, self.publish_diagnostics, clock=STEADY)
        if self.config.autostart:
            self._autostart = self.create_timer(0.0, self._start, clock=STEADY)

    def configure(self) -> None:
        """Build what the node needs; may take long."""

    def read_parameters(self) -> NodeParameters:
        """Return what the parameters say now."""
        return read(self, type(self.config))

    def activate(self) -> None:
        """Start to work."""

    def deactivate(self) -> None:
        """Stop working; keep what was built. Also called before the process ends."""

    def cleanup(self) -> None:
        """Release what `configure` built. Also called before the process ends."""

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return level, message and values for /diagnostics."""
        return OK, self.state, {}

    @property
    def state(self) -> str:
        """Lifecycle state: unconfigured, inactive, active or finalized."""
        return str(self._state_machine.current_state[1])

    @property
    def active(self) -> bool:
        """Whether the node should work."""
        return self.state == 'active'

    def is_ours(self, run_id: str, topic: str) -> bool:
        """Return whether a message is of this graph's run; others are counted and reported."""
        if run_id == self.config.run_id:
            return True
        self.note_foreign(topic, f"it is of run '{run_id[:80]}'")
        return False

    def note_foreign(self, topic: str, why: str) -> None:
        """Count a message that another graph sent."""
        self._foreign += 1
        self._foreign_time, self._foreign_topic = time.monotonic(), topic
        self.get_logger().warning(
            f'dropped a message on {topic}: {why}', throttle_duration_sec=5.0
        )

    def destroy_node(self) -> None:
        """Leave the graph and release the name."""
        super().destroy_node()
        self._lock.close()

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        """End if a node of the same name was there first, on any machine."""
        for status in message.status:
            if status.name != self._diagnostic_name:
                continue
            values = {item.key: item.value for item in status.values}
            other = (values.get('started', ''), values.get('host', ''), values.get('pid', ''))
            if other < self._identity and self.exit_code is None and self._has_namesake():
                self.get_logger().error(
                    f'another {self.get_fully_qualified_name()} is alive (run '
                    f"'{values.get('run_id')}', process {other[2]} on {other[1]}): stop it, or "
                    'choose another namespace or ROS_DOMAIN_ID'
                )
                self.finish(2)

    def _has_namesake(self) -> bool:
        """Return whether the graph has another node of this name; a replayed report has none."""
        ours = (self.get_name(), self.get_namespace())
        return self.get_node_names_and_namespaces().count(ours) > 1

    def foreign_publishers(self) -> list[str]:
        """Return the publishers on this graph's own topics that do not belong to it."""
        found = []
        home = self.get_namespace()
        for topic in internal_topics(self.get_name()):
            for end in self.get_publishers_info_by_topic(topic):
                full = f'{end.node_namespace.rstrip("/")}/{end.node_name}'
                known = end.node_namespace == home and end.node_name in talkers(topic)
                if not known and end.node_name != UNKNOWN_NODE:  # known a moment later
                    found.append(f'{full} on {topic}')
        return found

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
        if level == OK and time.monotonic() - self._foreign_time < RECENT:
            level, message = WARN, f'messages of another graph on {self._foreign_topic}'
        strangers = self.foreign_publishers()
        if level == OK and strangers:
            level, message = WARN, f'a foreign publisher: {strangers[0]}'
        started, host, pid = self._identity
        values = {
            'state': self.state,
            'pid': pid,
            'host': host,
            'started': started,
            'run_id': self.config.run_id,
            'foreign_messages': self._foreign,
            'foreign_publishers': len(strangers),
        } | values
        status = DiagnosticStatus(
            level=level,
            name=self._diagnostic_name,
            message=message,
            hardware_id=self.config.run_id,
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)

    def _start(self) -> None:
        """Come up without being asked, or end: nobody is there to see why it did not."""
        self.destroy_timer(self._autostart)
        self._denied = False
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() is not TransitionCallbackReturn.SUCCESS:
                if self.exit_code is None:
                    self.finish(2 if self._denied else 1)
                return

    def _configure(self) -> None:
        self.config = self.read_parameters()
        self.configure()

    def _judge_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        """Refuse what would be read too late, and values no configuration takes."""
        ours = {item.name: item for item in plain_fields(type(self.config))}
        values = {name: getattr(self.config, name) for name in ours}
        for parameter in parameters:
            name = parameter.name
            if name not in ours and not name.startswith(f'{SETTINGS}.'):
                continue  # rclpy's own
            if name not in self.CHANGEABLE and self.state != 'unconfigured':
                reason = f'{name} is read when the node is configured; it is {self.state}: '
                reason += 'deactivate it and clean it up first'
                return SetParametersResult(successful=False, reason=reason)
            if name in ours:
                values[name] = value_of(ours[name], parameter)
        try:
            configure(type(self.config), values)
        except LpgftwError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _transition(self, action: str) -> TransitionCallbackReturn:
        try:
            getattr(self, action)()
        except LpgftwError as error:
            self.get_logger().error(f'cannot {action.lstrip("_")}: {error}')
            self._denied = True
            return TransitionCallbackReturn.FAILURE
        except Exception as error:
            self.get_logger().error(
                f'cannot {action.lstrip("_")}: {type(error).__name__}: {error}'
            )
            return TransitionCallbackReturn.ERROR
        return TransitionCallbackReturn.SUCCESS

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition to inactive."""
        result = self._transition('_configure')
        _spare_collector()  # now, since it takes too long while an arm reports
        return result

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition to active, after enabling lifecycle publishers."""
        super().on_activate(state)
        result = self._transition('activate')
        self.get_logger().info('active' if result.name == 'SUCCESS' else 'not active')
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition back to inactive, then disable lifecycle publishers."""
        result = self._transition('deactivate')
        super().on_deactivate(state)
        return result

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition back to unconfigured."""
        return self._transition('cleanup')

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Answer the transition to finalized, from any state."""
        results = []
        if state.label == 'active':
            results.append(self.on_deactivate(state))
        if state.label in ('active', 'inactive'):
            results.append(self._transition('cleanup'))
        failed = [result for result in results if result is not TransitionCallbackReturn.SUCCESS]
        return failed[0] if failed else TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything after a failed transition, so that configure can be tried again."""
        return self._transition('cleanup')

    def _warn_of_unused_parameters(self) -> None:
        for name in self._parameter_overrides:
            if self.has_parameter(name) or name.split('.')[0] == SETTINGS:
                continue  # settings are declared later, and unknown ones are an error
            self.get_logger().warning(f"parameter '{name}' is set but {self.get_name()} has none")


def _spare_collector() -> None:
    """Keep what is there now out of later garbage collections.

    Looking at every object of rclpy, MuJoCo and numpy takes 45 ms or more: a guard that has to
    tick every 30 ms cannot wait for that.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
