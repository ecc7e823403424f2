"""Bags of ROS 2: read, written, recovered, replayed."""
