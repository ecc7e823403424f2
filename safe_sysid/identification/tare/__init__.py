"""Tare: calibration of the arm by a motion with the empty hand, kept for later runs."""
