"""The experiments of [Hybrid]: data of a simulated flexible arm, models of its torque, tracking with them."""
