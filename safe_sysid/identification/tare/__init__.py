"""Equations of a motion with the empty hand, kept for later runs."""
