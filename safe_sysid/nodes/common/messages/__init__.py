"""ROS messages: their contents as plain values, conversions both ways, and limits of size and rate."""
