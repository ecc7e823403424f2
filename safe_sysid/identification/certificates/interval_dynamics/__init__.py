"""Dynamics in outward-rounded interval arithmetic, for the check of certificates alone."""
