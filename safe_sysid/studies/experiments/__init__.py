"""The experiments of the PSO paper (section VI), simulated: work cell, methods, trials, tables and figures."""
