"""The experiments of [LIP], simulated."""
