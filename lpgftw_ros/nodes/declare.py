"""ROS parameters declared from configuration dataclasses, with descriptions and ranges."""

from dataclasses import Field, fields
import sys
from typing import Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import ParameterException
from rclpy.node import Node

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.config import configure

T = TypeVar('T')
LARGEST_INTEGER = 2**31 - 1  # rqt_reconfigure hides parameters with wider ranges


def declare(
    node: Node, config_type: type[T], prefix: str = '', *, changeable: tuple[str, ...] = ()
) -> T:
    """Declare a parameter for each field and return the configuration they hold.

    Fields in `changeable` may be set while the node runs, the others are read-only. Raises
    `InvalidConfig` for a value of the wrong type or out of its range.
    """
    values = {}
    for item in fields(config_type):  # type: ignore[arg-type]
        name = f'{prefix}.{item.name}' if prefix else item.name
        descriptor = describe(item, read_only=item.name not in changeable)
        try:
            values[item.name] = node.declare_parameter(name, item.default, descriptor).value
        except ParameterException as error:
            raise InvalidConfig(_explain(node, name, item, error)) from error
    return configure(config_type, values)


def describe(item: Field[Any], *, read_only: bool) -> ParameterDescriptor:
    """Return help text, range and choices of a field as ROS shows them."""
    low, high, choices = (item.metadata.get(key) for key in ('min', 'max', 'choices'))
    descriptor = ParameterDescriptor(
        name=item.name, description=item.metadata.get('help', ''), read_only=read_only
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


def changed(node: Node, config: T, prefix: str = '') -> T:
    """Return the configuration as the parameters hold it now."""
    start = f'{prefix}.' if prefix else ''
    names = [item.name for item in fields(config)]  # type: ignore[arg-type]
    return configure(type(config), {n: node.get_parameter(start + n).value for n in names})


def _explain(node: Node, name: str, item: Field[Any], error: Exception) -> str:
    override = node._parameter_overrides.get(name)
    got = repr(override.value) if override is not None else 'another'
    low, high = item.metadata.get('min'), item.metadata.get('max')
    kind = {bool: 'true or false', int: 'a whole number', float: 'a number such as 1.0'}.get(
        type(item.default), 'a text'
    )
    span = f' from {low} to {high}' if low is not None and high is not None else ''
    return f'parameter {name} must be {kind}{span}, got {got}'
