"""The recorder node: every topic into a bag."""
