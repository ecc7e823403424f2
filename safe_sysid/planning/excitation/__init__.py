"""Exciting trajectories besides those of the planner itself."""
