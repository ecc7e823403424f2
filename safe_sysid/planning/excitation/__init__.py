"""Exciting trajectories, beside those of the planner itself."""
