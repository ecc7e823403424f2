"""The arm itself, from logs: its identification, the torque errors that logs need, the tube of its own controller."""
