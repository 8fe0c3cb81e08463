"""Lifelong robot learning with factored policies, in ROS 2 and in process."""

__version__ = '0.1.0'
