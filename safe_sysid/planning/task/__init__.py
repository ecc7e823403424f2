"""Point-to-point motions: ways around obstacles, in certified steps."""
