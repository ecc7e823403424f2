"""Checks of a log."""
