"""Certificates: files that prove published bounds, and the independent code that re-checks them."""
