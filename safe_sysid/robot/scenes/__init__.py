"""Scenes: obstacles around the arm."""
