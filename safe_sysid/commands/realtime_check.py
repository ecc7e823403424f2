"""``safe-sysid realtime-check``: which timing this machine keeps."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.shared.arguments import at_least, check_output

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "measure which real-time timing this machine keeps"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Runs the controller in real time at 1 kHz, holding a simulated arm of seven joints over topics, and
beside it a bare loop that only sleeps to every millisecond. Prints both in a table, how many commands came later than
the robot's file declares, how many of these the bare loop lost, too (the machine's: no setting helps), and which
hold_max_s, delay_max_s and command_timeout_s can be declared so that at most 2 % come later; and whether the tracking
bound exists with them. A driver and a network of your own add to this: their delays are not in it.

Exit status: 0 the file's timing is kept (at most 2 % later); 1 it is not; 2 not measured; 130 interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--robot", default="kinova_gen3", help="whose declared timing is judged (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=at_least(1), default=30, metavar="S", help="that are measured (default: %(default)g)"
    )
    parser.add_argument(
        "--busy",
        type=at_least(0),
        default=0,
        metavar="N",
        help="endless loops beside, as planner and solver are (default: 0)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="what can be declared, as YAML for the robot's file")


def run(options: argparse.Namespace) -> int:
    """Measure, print, write."""
    check_output("--out", options.out)
    print(f"safe-sysid realtime-check: {options.robot}, {options.seconds:g} s", flush=True)
    from safe_sysid.demo.realtime_check import print_timing

    return print_timing(options.robot, options.seconds, options.busy, options.out)
