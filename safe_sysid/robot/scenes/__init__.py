"""What stands around the arm."""
