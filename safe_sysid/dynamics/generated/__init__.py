"""Dynamics that are derived once for an arm: pseudo-symbolic models in base parameters [PSDM]."""
