"""Judge of a simulated run: counts violations from the logs alone."""
