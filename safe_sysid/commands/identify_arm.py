"""``safe-sysid identify-arm``: the arm's own links, friction and rotors from logs of it."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from safe_sysid.commands.arguments import at_least, check_output, non_negative

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "the arm's own links, friction and rotors from logs of its motions"
#: As in safe_sysid.identification.arm.estimate, not imported before it is needed; a test compares them.
METHODS = ("ols", "wls", "log_cholesky", "sdp")
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Reads logs of an arm that moves freely (nothing in its hand but what always is), and estimates the ten
inertial parameters of every link, Coulomb and viscous friction, rotor inertia and offset of every joint: always
those of a real arm. Friction beyond that, and rotors behind gears, are taken in where held-out samples ask for it.
Writes arm.urdf, robot.yaml (for our nodes and commands), arm_mjcf.xml, result.json and report.html.

LOG is a ROS 2 bag, a CSV file or a .npz. The last part of each log is held out, or the logs of --validation are.
Estimates are no guarantees. Of an open chain every base parameter has an interval besides, guaranteed if the arm lies
in the robot file's `uncertainty` and errors are at most those of its `measurement` (`safe-sysid errors` finds what logs
need): lower and upper in the results, and a certificate that `safe-sysid verify` checks.

Exit status: 0 identified; 2 a log cannot be what it says, excites too little, or an option cannot be used; 130
interrupted.

examples:
  safe-sysid identify-arm exciting.mcap --robot my_arm.yaml
  safe-sysid identify-arm a.csv b.csv --validation c.csv --robot my_arm.yaml --json result.json
  safe-sysid identify-arm log.csv --robot my_arm.yaml --torque-per-effort joint_1=12.5 --motors-only
  safe-sysid identify-arm leg.npz --loops leg.yaml
"""


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key and value):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    return key, value


def _factor(text: str) -> tuple[str, float]:
    key, value = _pair(text)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number != 0.0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected JOINT=NUMBER, not 0")
    return key, number


def _share(text: str) -> float:
    value = non_negative(text)
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number between 0 and 1")
    return value


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="bags, CSV or .npz")
    parser.add_argument("--robot", default="kinova_gen3", metavar="NAME|FILE", help="(default: %(default)s)")
    parser.add_argument(
        "--loops", type=Path, metavar="FILE", help="closed loops; --robot may name their URDF"
    )
    reading = parser.add_argument_group("reading the logs")
    reading.add_argument("--topic", metavar="NAME", help="sensor_msgs/JointState of a bag")
    reading.add_argument(
        "--column", type=_pair, action="append", default=[], metavar="KEY=NAME",
        help="column of a table: time=NAME, JOINT.position=NAME, ...; repeatable",
    )  # fmt: skip
    reading.add_argument(
        "--map", type=Path, metavar="FILE", help="YAML file that says the same (docs/identify.md)"
    )
    reading.add_argument("--angles", choices=("rad", "deg"), help="of positions and velocities")
    reading.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="of stamps")
    reading.add_argument(
        "--torque-per-effort", type=_factor, action="append", default=[], metavar="JOINT=K",
        help="efforts are currents: N m at the joint per unit, gear ratio times torque constant; repeatable",
    )  # fmt: skip
    reading.add_argument("--force", action="store_true", help="go on although the checks found errors")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--validation", type=Path, action="append", default=[], metavar="LOG", help="held out; repeatable"
    )
    how.add_argument(
        "--share", type=_share, default=0.3, metavar="S", help="held out of each log (default: 0.3)"
    )
    how.add_argument("--cutoff", type=non_negative, metavar="HZ", help="of the zero-phase filter; 0: none")
    how.add_argument("--decimation", type=at_least(1), metavar="N", help="one sample of N is kept")
    how.add_argument(
        "--velocity", choices=("auto", "log", "positions"), default="auto", help="where velocities are from"
    )
    how.add_argument("--method", choices=METHODS, default="sdp", help="(default: sdp, consistent)")
    how.add_argument(
        "--regularisation", type=non_negative, metavar="G", help="pull towards the drawing, in samples"
    )
    how.add_argument(
        "--known-link", action="append", default=[], metavar="JOINT", help="its link is as drawn; repeatable"
    )
    how.add_argument("--motors-only", action="store_true", help="all links are as drawn")
    how.add_argument("--plain-friction", action="store_true", help="Coulomb, viscous and offset alone")
    how.add_argument("--estimates-only", action="store_true", help="no guaranteed intervals, in less time")
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, metavar="DIR", help="(default: runs/<date>-identify-arm)")
    output.add_argument("--json", type=Path, metavar="FILE", help="write result.json there too")
    output.add_argument("--quiet", action="store_true", help="only the last line")


def run(options: argparse.Namespace) -> int:
    """Identify; the first line comes before anything heavy is imported."""
    check_output("--json", options.json)
    if not options.quiet:
        print(
            f"safe-sysid identify-arm: {len(options.logs)} log(s) of {options.loops or options.robot}",
            flush=True,
        )
    from safe_sysid.apps.identify_arm import IdentifyArmOptions, identify_arm

    values = {key: value for key, value in vars(options).items() if key != "command"}
    values["json_file"], values["map_file"] = values.pop("json"), values.pop("map")
    values["columns"], values["known_links"] = tuple(values.pop("column")), tuple(values.pop("known_link"))
    for key in ("logs", "validation", "torque_per_effort"):
        values[key] = tuple(values[key])
    return identify_arm(IdentifyArmOptions(**values))
