"""ROS nodes: the only place for rclpy and message types."""

import os

if not os.environ.get('DISPLAY'):  # read when MuJoCo is imported; ROS starts nodes without it
    os.environ.setdefault('MUJOCO_GL', 'egl')
