"""Guaranteed intervals of an arm's parameters, and what follows of them for control laws and declared errors."""
