"""Attacks on what a run leaves: directories forged in every way, and logs that end in contradiction. None may pass."""
