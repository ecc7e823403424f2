"""``safe-sysid view``: the run in a browser."""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "look at a running arm in a browser"
DESCRIPTION = "Shows a running arm in a browser."


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""


def run(options: argparse.Namespace) -> int:
    """Run it."""
    raise NotImplementedError
