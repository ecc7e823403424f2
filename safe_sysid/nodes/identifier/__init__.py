"""The identifier node."""
