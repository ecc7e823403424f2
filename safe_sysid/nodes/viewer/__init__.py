"""The viewer node."""
