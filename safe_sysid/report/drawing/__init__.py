"""Drawings and the style of all pages."""
