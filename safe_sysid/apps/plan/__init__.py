"""Motions planned from the command line, and their trial in simulation."""
