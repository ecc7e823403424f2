"""Bring-up: starts an arm's nodes, leads them from state to state and ends them, for the demo and for launch files."""
