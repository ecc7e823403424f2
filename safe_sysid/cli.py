"""Command line ``safe-sysid``. Imports nothing heavy before it has said something: every command answers at once."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from safe_sysid import __version__
from safe_sysid.errors import SafeSysIdError

__all__ = ["main"]

_DEMO = """Starts four processes that talk over ROS 2 topics only: a simulated arm with an unknown payload in its hand,
the controller, the planner and the identifier. Shows what they do, judges the run by the plant's own record, and leaves
a run directory with summary.json, logs and pictures. Exit status: 0 every bound held and nothing was violated, 1
otherwise, 2 wrong arguments, 130 interrupted."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the reason and leave with status 2."""
        print(f"{self.prog}: error: {message}  ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None
    if not (math.isfinite(value) and value >= 0.0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a finite number >= 0")
    return value


def _pair(text: str) -> tuple[float, float]:
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected two numbers a,b as in 0.05,0.025")
    return _number(parts[0]), _number(parts[1])


def _at_least(lowest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number") from None
        if not lowest <= value < 2**31:
            raise argparse.ArgumentTypeError(
                f"{text!r}: expected a whole number from {lowest} to {2**31 - 1}"
            )
        return value

    return integer


def build_parser() -> argparse.ArgumentParser:
    """All commands and options."""
    parser = _Parser(
        prog="safe-sysid",
        description="Provably safe online system identification for robot arms.",
        epilog="safe-sysid COMMAND --help says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"safe-sysid {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_demo(
        commands.add_parser("demo", help="identify an unknown payload on a simulated arm", description=_DEMO)
    )
    config = commands.add_parser("config", help="look at robot and scene files")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    check = actions.add_parser(
        "check",
        help="check a robot's or scene's YAML file",
        description="Reads a robot's file with its URDF, computes gains, judges the start pose; or reads a scene.",
    )
    check.add_argument("file", help="YAML file, or the name of a packaged one")
    check.add_argument(
        "--robot", default="kinova_gen3", help="that a scene is checked with (default: %(default)s)"
    )
    return parser


def _add_demo(demo: argparse.ArgumentParser) -> None:
    task = demo.add_argument_group("task")
    task.add_argument(
        "--payload",
        default="8lb",
        metavar='NAME|URDF|"NUMBERS"',
        help="4lb to 8lb, none, a URDF file, or ten numbers m,cx,cy,cz,Ixx,Ixy,Iyy,Ixz,Iyz,Izz: centre in the tool "
        "flange frame, inertia about that centre, same axes (default: %(default)s)",
    )
    task.add_argument("--robot", default="kinova_gen3", metavar="NAME|FILE", help="(default: %(default)s)")
    task.add_argument(
        "--scene", default="open", metavar="NAME|FILE", help="open, six_boxes or a file (default: open)"
    )
    task.add_argument(
        "--plans", type=_at_least(1), default=4, metavar="N", help="exciting trajectories (default: 4)"
    )
    world = demo.add_argument_group("what the nodes do not know")
    world.add_argument(
        "--seed", type=_at_least(0), default=0, metavar="N", help="of every random choice (default: 0)"
    )
    world.add_argument(
        "--arm",
        choices=("random", "corner", "nominal"),
        default="random",
        help="the true arm: anywhere in its tolerances, in a corner of them, or nominal (default: %(default)s)",
    )
    world.add_argument(
        "--noise",
        choices=("uniform", "adversarial", "none"),
        default="uniform",
        help="of the measurements, inside the declared bounds or sitting on them (default: %(default)s)",
    )
    noise = demo.add_argument_group(
        "declared error bounds, instead of the robot file's; the noise fills them"
    )
    noise.add_argument("--torque-noise", type=_pair, metavar="A,B", help="|error| <= A N m + B |torque|")
    noise.add_argument("--velocity-error", type=_number, metavar="V", help="rad/s")
    noise.add_argument("--position-error", type=_number, metavar="Q", help="rad")
    mode = demo.add_argument_group("mode").add_mutually_exclusive_group()
    mode.add_argument(
        "--lockstep",
        dest="lockstep",
        action="store_true",
        default=True,
        help="simulated time waits for everyone: same result on any machine (default)",
    )
    mode.add_argument("--real-time", dest="lockstep", action="store_false", help="1 kHz on the wall clock")
    output = demo.add_argument_group("output")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the summary there too")
    output.add_argument(
        "--out", type=Path, metavar="DIR", help="run directory (default: runs/<date>-<payload>-<seed>)"
    )
    output.add_argument("--quiet", action="store_true", help="no progress, only the result")
    output.add_argument(
        "--timeout",
        type=_number,
        default=900.0,
        metavar="S",
        help="give up after so long, s (default: %(default)g)",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = build_parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        if options.command == "demo":
            return _demo(options)
        return _check(options.file, options.robot)
    except SafeSysIdError as error:
        text = " ".join(str(error).split())
        print(f"safe-sysid {options.command}: error: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"safe-sysid {options.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads: keep Python from complaining when it flushes
        return 1


def _demo(options: argparse.Namespace) -> int:
    mode = "lock-step" if options.lockstep else "real time"
    if not options.quiet:
        print(
            f"safe-sysid demo: {options.robot} grips {options.payload!r} in scene {options.scene}; "
            f"{options.noise if options.noise != 'none' else 'no'} noise, seed {options.seed}, {mode}",
            flush=True,
        )
    from safe_sysid.demo.options import DemoOptions

    values = {key: value for key, value in vars(options).items() if key != "command"}
    values["json_file"] = values.pop("json")
    from safe_sysid.demo.run import run_demo

    return run_demo(DemoOptions(**values))


def _check(file: str, robot: str) -> int:
    from safe_sysid.demo.check import check_file

    reasons = check_file(file, robot, print)
    for reason in reasons:
        print(f"safe-sysid config check: error: {reason}", file=sys.stderr)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
