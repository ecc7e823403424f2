"""Checks of what controllers are given: measurements at rest and while moving, start poses, plans, boxes, commands."""
