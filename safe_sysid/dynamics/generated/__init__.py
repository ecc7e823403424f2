"""Dynamics that are derived once for an arm: pseudo-symbolic models, and code in C."""
