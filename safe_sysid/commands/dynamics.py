"""``safe-sysid dynamics``: an arm's dynamics as C code."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from safe_sysid.commands.shared.arguments import OneLineParser, check_directory, check_output, non_negative

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "an arm's dynamics or its control law as C code, and smaller models"
DESCRIPTION = "Derives an arm's dynamics once, as formulas, and writes them, or the robust control law, as C code."
_GENERATE = """Writes NAME.c, NAME.h, a README with units and order, and a self-test: inverse and forward dynamics, the
regressor of base parameters, gravity, mass matrix and the torque of velocities and gravity, as C99 without heap,
libraries or branches. Each function is written as a pseudo-symbolic model and as a recursion specialised to the arm;
the faster one on this machine is kept. The self-test is compiled and run first; if anything fails, nothing is
written.

ARM: a packaged robot, a robot's YAML file, or a CSV file with a line for each joint: revolute or prismatic, theta, d,
a, alpha (Denavit-Hartenberg; rad, m; # for comments), gravity against z of frame 0.

Exit status: 0 written; 2 the arm or an option cannot be used, or a compiler failed; 130 interrupted."""

_REDUCE = """Leaves out what contributes least to the torque over a task: positions within the robot's limits (a
whole turn if it has none), velocities and accelerations up to the largest; or the hull of a log. The smallest model
with enough correct digits in the 2-norm of the torque is taken. Parameters are the robot's nominal ones; those of the
terms that are kept are fitted again. The mass matrix stays the arm's own unless --inverse-only is given. For each
joint a bound is printed that no torque of the task is off by more than, proved for the whole difference.

Exit status: 0 found; 2 an arm, a log or an option cannot be used; 130 interrupted."""

_LAW = """Writes the robust control law with its gains, the check of the start and the monitor of V as C99 without heap
or state: NAME.c, NAME.h, a README that says what is proved and what is left to the caller, an example loop, and a
self-test against the package's own law. The self-test is compiled and run first; if anything fails, nothing is written.

Exit status: 0 written; 2 the arm or an option cannot be used, or a compiler failed; 130 interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what can be done, and the options."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=OneLineParser)
    generate = what.add_parser(
        "generate", help="C code of an arm", description=_GENERATE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    generate.add_argument("arm", metavar="ARM", help="packaged robot, YAML file, or DH table (.csv)")
    generate.add_argument("--out", type=Path, required=True, metavar="DIR", help="to make, or empty")
    generate.add_argument(
        "--name", type=_name, default="arm", metavar="NAME", help="of files and functions (default: arm)"
    )
    generate.add_argument("--friction", action="store_true", help="of the joints, and offsets, too")
    generate.add_argument("--yes", action="store_true", help="go on with more than eight joints")
    law = what.add_parser(
        "law", help="the robust law in C", description=_LAW, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    law.add_argument("arm", metavar="ARM", help="packaged robot or YAML file")
    law.add_argument("--out", type=Path, required=True, metavar="DIR", help="to make, or empty")
    law.add_argument("--name", type=_name, default="law", metavar="NAME", help="of files and functions (default: law)")
    reduce = what.add_parser(
        "reduce",
        help="a smaller model for a task",
        description=_REDUCE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reduce.add_argument("arm", metavar="ARM", help="packaged robot or YAML file")
    reduce.add_argument("--digits", type=non_negative, default=2.0, metavar="D", help="(default: 2)")
    reduce.add_argument(
        "--states", choices=("95", "99.9"), default="95", help="%% of states that have them (default: 95)"
    )
    reduce.add_argument("--log", type=Path, metavar="LOG", help="the task is the hull of this log")
    reduce.add_argument("--velocity", type=non_negative, metavar="V", help="largest, rad/s (default: the robot's)")
    reduce.add_argument(
        "--acceleration", type=non_negative, metavar="A", help="largest, rad/s^2 (default: 10, or the log's)"
    )
    reduce.add_argument("--inverse-only", action="store_true", help="terms of the mass matrix may go, too")
    reduce.add_argument("--yes", action="store_true", help="go on with more than eight joints")
    reduce.add_argument("--json", type=Path, metavar="FILE", help="the same for programs")
    reduce.add_argument("--out", type=Path, metavar="DIR", help="C files of the reduced model")


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,40}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected letters, digits and _, a letter first")
    return text


def run(options: argparse.Namespace) -> int:
    """Generate, write the law, or reduce."""
    if options.out:
        check_directory("--out", options.out)
    check_output("--json", getattr(options, "json", None))
    print(f"safe-sysid dynamics {options.what}: {options.arm}", flush=True)
    from safe_sysid.apps.generate import print_generated, print_law, print_reduced

    if options.what == "law":
        return print_law(options.arm, options.out, options.name)
    if options.what == "generate":
        return print_generated(options.arm, options.out, options.name, options.yes, options.friction)
    return print_reduced(
        options.arm, options.digits, float(options.states) / 100.0, options.log, options.velocity,
        options.acceleration, options.inverse_only, options.yes, options.json, options.out,
    )  # fmt: skip
