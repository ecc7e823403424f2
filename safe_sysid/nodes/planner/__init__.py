"""The planner node: schedules plans, and takes goals and scenes from topics."""
