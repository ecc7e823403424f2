"""The search for the best certified trajectory parameter."""
