"""Proved bounds: from equations and consistency cuts to intervals, and the multipliers that prove them."""
