"""Quick distances for the optimisers, without a guarantee."""
