"""What `lpgftw doctor` asks of ROS: types that load and a message that arrives."""

import inspect
import time
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64


def interface_count() -> int:
    """Load the type support of every interface and return how many there are."""
    from lpgftw_interfaces import action, msg, srv

    count = 0
    for module in (msg, srv, action):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if '_' in name:  # requests, feedbacks and so on: parts of another one
                continue
            metaclass: Any = type(kind)
            metaclass.__import_type_support__()
            count += 1
    return count


def round_trip(timeout: float) -> float | None:
    """Send messages to ourselves until one arrives; return the time it took, None if none did."""
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(f'self_test_{time.time_ns()}', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    topic = f'/{node.get_name()}/echo'
    arrived: list[float] = []
    node.create_subscription(
        Float64, topic, lambda m: arrived.append(time.monotonic() - m.data), 10
    )
    publisher = node.create_publisher(Float64, topic, 10)
    end = time.monotonic() + timeout
    while not arrived and time.monotonic() < end:
        publisher.publish(Float64(data=time.monotonic()))
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown(timeout_sec=0.5)
    node.destroy_node()
    rclpy.try_shutdown(context=context)
    return arrived[0] if arrived else None
