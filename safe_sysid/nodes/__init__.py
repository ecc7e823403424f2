"""The ROS 2 nodes: parameters, topics, timing and diagnostics around the ROS-free core."""
