"""Live view: scene and panel in a browser, drawn from plain data. No ROS."""
