"""Point-to-point motions around obstacles, in certified steps."""
