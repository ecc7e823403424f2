"""``safe-sysid report``: a run as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.shared.arguments import check_output

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "a run as one HTML page"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Writes what a run directory holds as one HTML page that needs nothing else: verdict, the ten intervals,
plans and their certificates, torques, clearance and tracking against their limits, faults and refusals, timing, and
the commands that check it all. `safe-sysid demo` does so at its end; this does it again, and for directories that
the nodes of a real arm left (`run_dir`), complete or not. Nothing is proved by it: `safe-sysid verify` does that.

Exit status: 0 written; 2 not the directory of a run, or it cannot be written.

examples:
  safe-sysid report runs/20260504-101500-8lb-0
  safe-sysid report runs/arm_1 --robot my_arm.yaml --out report.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="directory of a run")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: report.html in the directory)")
    parser.add_argument(
        "--robot",
        metavar="NAME|FILE",
        help="of the run, for the payload without the hand (default: the packaged one that the run names)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the page."""
    check_output("--out", options.out)
    from safe_sysid.report.drawing.page import printable
    from safe_sysid.report.run.facts import read_facts
    from safe_sysid.report.run.html import write_run_report
    from safe_sysid.report.run.robot import robot_of_run

    facts = read_facts(options.run_dir)
    check_output("RUN_DIR", None if options.out else facts.directory / "report.html")
    path, verdict = write_run_report(facts, options.out, robot_of_run(facts, options.robot))
    print(printable(verdict.text))
    print(path)
    return 0
