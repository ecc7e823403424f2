"""Learned models of torques: from logs to a model and its report."""
