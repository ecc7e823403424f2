"""The judge of a simulated run: counts of violations, from the logs alone."""
