"""What is wrong with a log."""
