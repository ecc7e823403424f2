"""The planner in a process of its own."""
