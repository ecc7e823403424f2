"""Every command that the docs show, run: pages and their fences, what is shortened and given, a small `ros2`."""
