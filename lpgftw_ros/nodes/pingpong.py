"""A bare rclpy process that sends every message straight back: what DDS and Python cost alone."""

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray

from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.process import follow_environment


def main() -> None:
    """Run until a signal."""
    follow_environment()
    rclpy.init()
    node = Node('pingpong')
    pong = node.create_publisher(Float64MultiArray, 'pong', qos.LOCK_STEP)
    node.create_subscription(Float64MultiArray, 'ping', pong.publish, qos.LOCK_STEP)
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
