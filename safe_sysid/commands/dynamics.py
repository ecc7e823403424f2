"""``safe-sysid dynamics``: an arm's dynamics as C code."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from safe_sysid.commands.arguments import OneLineParser, check_directory

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "write an arm's dynamics as C code"
DESCRIPTION = "Derives an arm's dynamics once, as formulas in base parameters, and writes them as C code."
_GENERATE = """Writes NAME.c, NAME.h, a README with units and order, and a self-test: inverse and forward dynamics, the
regressor of base parameters, gravity, mass matrix and the torque of velocities and gravity, as C99 without heap,
libraries or branches. Each function is written as a pseudo-symbolic model and as a recursion specialised to the arm;
the faster one on this machine is kept. The self-test is compiled and run first; if anything fails, nothing is
written.

ARM: a packaged robot, a robot's YAML file, or a CSV file with a line for each joint: revolute or prismatic, theta, d,
a, alpha (Denavit-Hartenberg; rad, m; # for comments), gravity against z of frame 0.

Exit status: 0 written; 2 the arm or an option cannot be used, or a compiler failed; 130 interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what can be done, and the options."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=OneLineParser)
    generate = what.add_parser(
        "generate",
        help="C code of an arm",
        description=_GENERATE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    generate.add_argument("arm", metavar="ARM", help="packaged robot, YAML file, or DH table (.csv)")
    generate.add_argument("--out", type=Path, required=True, metavar="DIR", help="to make, or empty")
    generate.add_argument(
        "--name", type=_name, default="arm", metavar="NAME", help="of files and functions (default: arm)"
    )
    generate.add_argument("--yes", action="store_true", help="go on with more than eight joints")


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,40}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected letters, digits and _, a letter first")
    return text


def run(options: argparse.Namespace) -> int:
    """Generate."""
    check_directory("--out", options.out)
    print(f"safe-sysid dynamics {options.what}: {options.arm}", flush=True)
    from safe_sysid.apps.generate import print_generated

    return print_generated(options.arm, options.out, options.name, options.yes)
