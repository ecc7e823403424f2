"""``safe-sysid identify-arm``: the arm's own links, friction and rotors from logs of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.shared.arguments import check_output, names, non_negative, positive
from safe_sysid.commands.shared.log_options import add_log_options, log_values

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "the arm's own links, friction and rotors from logs of its motions"
#: As in safe_sysid.identification.arm.estimates.estimate, not imported before it is needed; a test compares them.
METHODS = ("ols", "wls", "log_cholesky", "sdp")
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Reads logs of an arm that moves freely (nothing in its hand but what always is), and estimates the ten
inertial parameters of every link, Coulomb and viscous friction, rotor inertia and offset of every joint: always
those of a real arm. Friction beyond that, and rotors behind gears, are taken in where held-out samples ask for it.
Writes arm.urdf, robot.yaml (for our nodes and commands), arm_mjcf.xml, result.json and report.html.

LOG is a ROS 2 bag, a CSV file or a .npz; velocities may be missing. --robot is a robot file (`safe-sysid config
init`), or just a URDF: no meshes are needed then, and there are no intervals. The last part of each log is held out, or
the logs of --validation are.
Estimates are no guarantees. Of an open chain every base parameter has an interval besides, guaranteed if the arm lies
in the robot file's `uncertainty` and errors are at most those of its `measurement` (`safe-sysid errors` finds what logs
need): lower and upper in the results, and a certificate that `safe-sysid verify` checks.

Exit status: 0 identified; 2 a log cannot be what it says, excites too little, or an option cannot be used; 130
interrupted.

examples:
  safe-sysid identify-arm exciting.mcap --robot my_arm.yaml
  safe-sysid identify-arm a.csv b.csv --validation c.csv --robot my_arm.yaml --json result.json
  safe-sysid identify-arm log.csv --robot my_arm.yaml --torque-per-effort joint_1=12.5 --motors-only
  safe-sysid identify-arm log.csv --robot my_arm.yaml --loaded with_weight.csv --known-mass 2.5
  safe-sysid identify-arm log.csv --robot my_arm.urdf --joints shoulder,elbow,wrist
  safe-sysid identify-arm leg.npz --loops leg.yaml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = add_log_options(parser)
    parser.add_argument("--loops", type=Path, metavar="FILE", help="closed loops; --robot may name their URDF")
    parser.add_argument(
        "--joints", type=names, default=(), metavar="A,B,...",
        help="of a URDF as --robot: the joints of the arm, in the log's order where it numbers them; others are locked",
    )  # fmt: skip
    add(
        "--loaded",
        type=Path,
        action="append",
        default=[],
        metavar="LOG",
        help="with a known mass in the hand; repeatable",
    )
    add("--known-mass", type=positive, metavar="KG", help="of it: tells torque per effort of the joints that it loads")
    add("--method", choices=METHODS, default="sdp", help="(default: sdp, consistent)")
    add("--regularisation", type=non_negative, metavar="G", help="pull towards the drawing, in samples")
    add("--known-link", action="append", default=[], metavar="JOINT", help="its link is as drawn; repeatable")
    add("--motors-only", action="store_true", help="all links are as drawn")
    add("--plain-friction", action="store_true", help="Coulomb, viscous and offset alone")
    less_or_more = parser.add_mutually_exclusive_group()
    less_or_more.add_argument("--estimates-only", action="store_true", help="no guaranteed intervals, in less time")
    less_or_more.add_argument(
        "--thorough", action="store_true", help="narrower intervals of long logs: every equation (minutes)"
    )


def run(options: argparse.Namespace) -> int:
    """Identify; the first line comes before anything heavy is imported."""
    check_output("--json", options.json)
    if not options.quiet:
        print(f"safe-sysid identify-arm: {len(options.logs)} log(s) of {options.loops or options.robot}", flush=True)
    from safe_sysid.apps.arm.identify_arm import IdentifyArmOptions, identify_arm

    values = log_values(options)
    values["known_links"] = tuple(values.pop("known_link"))
    values["loaded"] = tuple(values["loaded"])
    return identify_arm(IdentifyArmOptions(**values))
