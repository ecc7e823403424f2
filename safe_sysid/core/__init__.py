"""What every room is built on and what knows nothing of robots, ROS or files."""
