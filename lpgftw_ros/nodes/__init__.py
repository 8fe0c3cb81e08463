"""The ROS 2 nodes: they translate messages, call the library once and publish."""
