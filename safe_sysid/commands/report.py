"""``safe-sysid report``: a run as one HTML page."""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "a run as one HTML page"
DESCRIPTION = "Writes a run as one HTML page."


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""


def run(options: argparse.Namespace) -> int:
    """Run it."""
    raise NotImplementedError
