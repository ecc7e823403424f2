"""The planner in its own process."""
