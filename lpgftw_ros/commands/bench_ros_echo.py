"""The other end of the bare ping-pong of `lpgftw bench ros`: answers every observation."""

import os
import sys

from lpgftw_ros.nodes.conversions import to_field


def main() -> None:
    """Answer on the topics `ping` and `pong` until the parent is gone."""
    import numpy as np
    import rclpy
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

    from lpgftw_interfaces.msg import Actions, Observations
    from lpgftw_ros.nodes import qos

    rows, act_dim, parent = int(sys.argv[1]), int(sys.argv[2]), os.getppid()
    rclpy.init(args=[])
    node = rclpy.create_node('echo', namespace=sys.argv[3])
    data = to_field(np.zeros((rows, act_dim)))
    publisher = node.create_publisher(Actions, 'pong', qos.LOCK_STEP)
    node.create_subscription(
        Observations,
        'ping',
        lambda message: publisher.publish(Actions(step=message.step, data=data)),
        qos.LOCK_STEP,
    )
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while os.getppid() == parent:
            executor.spin_once(timeout_sec=1.0)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


if __name__ == '__main__':
    main()
