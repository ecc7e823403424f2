"""Provably safe online system identification for robot arms."""

__all__ = ["__version__"]

__version__ = "0.1.0"
