"""The four ROS 2 nodes: parameters, topics, timing and diagnostics around the pure core, and nothing else."""
