"""The certificate of a plan, which decides; and what it says to the optimiser."""
