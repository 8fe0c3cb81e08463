"""What runs where, without ROS: graph descriptions, node parameters, supervisor, policy server."""
