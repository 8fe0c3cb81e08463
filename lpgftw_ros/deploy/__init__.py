"""From a policy to a real arm: kinematics, safety rules, policy export. No ROS."""
