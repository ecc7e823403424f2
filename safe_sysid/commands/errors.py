"""``safe-sysid errors``: how large torque errors must be declared so that logs do not contradict the arm's prior."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.identify import SENSORS
from safe_sysid.commands.shared.arguments import check_output, non_negative, share
from safe_sysid.commands.shared.log_options import add_reading_options

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "how large torque errors must be declared for an arm, from logs of it"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Intervals are guaranteed if torque errors are at most `measurement.torque_abs` (a, N m) plus
`measurement.torque_rel` (b) times the torque. For a given b this finds the smallest a, summed over joints, with which
one arm of the robot file's prior satisfies every momentum equation of the logs, of every window length that the
identifier uses; and the a that this arm needs on the logs of --validation. The larger of the two, and --margin, is
proposed.

B is that of the sensor: --torque-rel, or --sensor. Where neither is given, a is told against B from 0 to 0.1 as well.

No log proves that the next one has no larger errors: what is printed is an if, not a proof.

Exit status: 0 found; 2 a log or an option cannot be used; 130 interrupted.

examples:
  safe-sysid errors a.mcap --validation b.mcap --robot my_arm.yaml --out errors.yaml
  safe-sysid errors a.mcap --validation b.mcap --robot my_arm.yaml --empty-hand      # for identify-arm
  safe-sysid errors a.csv --robot my_arm.yaml --sensor current
  safe-sysid errors a.csv --robot my_arm.yaml --torque-rel 0 --torque-rel 0.02 --torque-rel 0.05
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_reading_options(parser)
    parser.add_argument("--validation", type=Path, action="append", default=[], metavar="LOG", help="repeatable")
    parser.add_argument(
        "--torque-rel", type=share, action="append", default=[], metavar="B",
        help="relative error; several: a for each of them (default: the robot file's)",
    )  # fmt: skip
    parser.add_argument(
        "--sensor", choices=SENSORS, help="B of a class of sensors: 0.05 for currents, 0.02 for joint torque sensors"
    )
    parser.add_argument(
        "--front", action="store_true", help="a of each joint against B, from 0 to 0.1; told, too, where no B is given"
    )
    parser.add_argument(
        "--margin", type=non_negative, default=0.2, metavar="M", help="added to a, as a share of it (default: 0.2)"
    )
    parser.add_argument(
        "--empty-hand", action="store_true",
        help="nothing but what always is was in the hand: what intervals of identify-arm assume",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="YAML for the robot file, of the first B")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same for programs")


def run(options: argparse.Namespace) -> int:
    """Find them; the first line comes before anything heavy is imported."""
    check_output("--out", options.out)
    check_output("--json", options.json)
    print(f"safe-sysid errors: {len(options.logs)} log(s) of {options.robot}", flush=True)
    from safe_sysid.apps.arm.logs import ArmLogOptions
    from safe_sysid.apps.arm.needed_errors import print_needed_errors
    from safe_sysid.apps.identify.sensors import SENSORS as OF_CLASS

    logs = ArmLogOptions(
        tuple(options.logs), options.robot, tuple(options.validation), topic=options.topic,
        columns=tuple(options.column), map_file=options.map, angles=options.angles, time_unit=options.time_unit,
        velocity="log", torque_per_effort=tuple(options.torque_per_effort),
    )  # fmt: skip
    given = [*options.torque_rel, *([OF_CLASS[options.sensor].relative] if options.sensor else [])]
    front = options.front or not given
    return print_needed_errors(logs, given, front, options.margin, options.out, options.json, options.empty_hand)
