"""The planner node: when to ask for which plan, and goals and scenes from topics."""
