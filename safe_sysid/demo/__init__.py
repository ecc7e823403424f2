"""``safe-sysid demo``: starts the four nodes, watches them from outside, judges the run from their logs."""
