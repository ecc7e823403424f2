"""``safe-sysid config``: robot and scene files."""

from __future__ import annotations

import argparse
import sys

from safe_sysid.commands.arguments import OneLineParser

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "look at robot and scene files"
DESCRIPTION = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=OneLineParser
    )
    check = actions.add_parser(
        "check",
        help="check a robot's or scene's YAML file",
        description="Reads a robot's file with its URDF, computes gains, judges the start pose; or reads a scene and "
        "judges its start and goal.",
    )
    check.add_argument("file", help="YAML file, or the name of a packaged one")
    check.add_argument(
        "--robot", default="kinova_gen3", help="that a scene is checked with (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    """Check a file; prints what is wrong with it."""
    from safe_sysid.demo.check import check_file

    reasons = check_file(options.file, options.robot, print)
    for reason in reasons:
        print(f"safe-sysid config check: error: {reason}", file=sys.stderr)
    return 1 if reasons else 0
