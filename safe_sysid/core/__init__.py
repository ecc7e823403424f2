"""Basic types that every other room uses; they know nothing of robots, ROS or files."""
