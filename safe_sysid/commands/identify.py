"""``safe-sysid identify``: bounds of what the hand holds from anyone's log."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.shared.arguments import (
    add_settings,
    check_output,
    column,
    non_negative,
    pair,
    positive,
    utc_time,
)

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "intervals of a payload's inertial parameters from a log"
SENSORS = ("current", "joint-torque")
METHODS = ("sdp", "lp", "sensitivity", "ols", "irls", "rls")
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Reads a log of joint states, checks it, and writes intervals that are guaranteed to hold the ten
inertial parameters of the last link with hand and payload: bounds.yaml (nodes load it), payload.urdf, result.json,
report.html, and certificates that `safe-sysid verify DIR` checks. LOG is a ROS 2 bag (directory, .mcap, .db3), a CSV
file or a .npz. What is declared about the measurements comes from the robot's file, or from the options below.

Exit status: 0 intervals found; 1 the data contradict what is declared (empty set); 2 a file or option cannot be used;
130 interrupted.

examples:
  safe-sysid identify rosbag2_2026_05_04 --robot kinova_gen3
  safe-sysid identify run.mcap --topic /arm/joint_states --payload-box 0.1,0.22,0.1,0,0,0.14
  safe-sysid identify log.csv --column time=stamp --column joint_1.effort=tau_a --angles deg
  safe-sysid identify log.csv --robot my_arm.yaml --sensor current
  safe-sysid identify log.csv --map columns.yaml --torque-noise 0.2,0.05 --velocity-error 0.001 --from 2 --to 12
"""


def _sensor(text: str) -> str:
    """A name; an argparse error that says why it is none of a wrench at the tool."""
    if text == "external-ft":
        raise argparse.ArgumentTypeError(
            "external-ft: a force-torque sensor at the tool measures a wrench, and external torques (tau_ext) lack the "
            "arm's own weight; the equations here are of torques that move the whole arm: record those in the same "
            "motion and use --sensor joint-torque (sensors in the joints, as Franka's tau_J) or --sensor current "
            "(motor currents times gear ratio and torque constant)"
        )
    return text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("log", type=Path, metavar="LOG", help="bag, CSV or .npz")
    parser.add_argument("--robot", default="kinova_gen3", metavar="NAME|FILE", help="(default: %(default)s)")
    reading = parser.add_argument_group("reading the log")
    reading.add_argument("--topic", metavar="NAME", help="sensor_msgs/JointState of a bag (default: the one that fits)")
    reading.add_argument(
        "--column",
        type=column,
        action="append",
        default=[],
        metavar="KEY=NAME",
        help="column of a table: time=NAME, JOINT.position=NAME, JOINT.velocity=NAME, JOINT.effort=NAME; repeatable",
    )
    reading.add_argument("--map", type=Path, metavar="FILE", help="YAML file that says the same (docs/use/identify.md)")
    reading.add_argument("--angles", choices=("rad", "deg"), help="of positions and velocities (default: as named)")
    reading.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="of stamps (default: as named, else s)")
    reading.add_argument("--from", dest="start", type=non_negative, metavar="S", help="s after the first sample")
    reading.add_argument("--to", dest="end", type=non_negative, metavar="S", help="s after the first sample")
    reading.add_argument(
        "--filter", type=positive, metavar="HZ", help="low-pass everything first; nothing is guaranteed then"
    )
    reading.add_argument("--force", action="store_true", help="go on although the checks found errors")
    known = parser.add_argument_group("what is known of the payload")
    known.add_argument(
        "--payload-box",
        metavar="LX,LY,LZ,CX,CY,CZ|FILE",
        help="box in the tool frame that holds the payload: edge lengths and centre, m; or a YAML file with size and "
        "center; or `envelope` for the configured one",
    )
    known.add_argument("--density", type=pair, metavar="LOW,HIGH", help="kg/m^3, of its material; needs a box")
    known.add_argument("--tare", type=Path, metavar="FILE", help="written by `safe-sysid tare`")
    known.add_argument(
        "--recorded",
        type=utc_time,
        metavar="TIME",
        help="when the log was recorded, UTC, ISO 8601 as 2026-05-01T14:00, for the age of the tare (default: its "
        "stamps since 1970, else the file's time)",
    )
    known.add_argument("--temperature", type=float, metavar="C", help="of this run, compared with that of the tare")
    declared = parser.add_argument_group("declared, instead of the robot file's")
    declared.add_argument(
        "--sensor",
        type=_sensor,
        choices=SENSORS,
        help="what measured the torques; its errors, those of velocities and accelerations are estimated from the log "
        "where no option says them, and the intervals hold if they are no larger",
    )
    declared.add_argument("--torque-noise", type=pair, metavar="A,B", help="|error| <= A N m + B |torque|")
    declared.add_argument("--velocity-error", type=non_negative, metavar="V", help="rad/s")
    declared.add_argument("--position-error", type=non_negative, metavar="Q", help="rad")
    declared.add_argument("--acceleration-bound", type=positive, metavar="A", help="rad/s^2, never exceeded")
    declared.add_argument("--torque-source", choices=("command", "motor", "link"), help="what the effort is")
    declared.add_argument(
        "--effort",
        choices=("held", "mean", "sampled"),
        help="held: the torque in force since the last sample; mean: its mean since then; sampled: at the stamp",
    )
    declared.add_argument("--rate", type=positive, metavar="HZ", help="of the samples")
    add_settings(declared, "any setting of the robot's file, as measurement.torque_bias=0.1; repeatable")
    how = parser.add_argument_group("method")
    how.add_argument(
        "--method",
        choices=METHODS,
        help="sdp and lp are guaranteed (default: the robot file's); the others are for comparison",
    )
    how.add_argument(
        "--thorough", action="store_true", help="narrower intervals: every program solved to its end (minutes)"
    )
    how.add_argument("--update", type=positive, metavar="S", help="s of data between updates (default: at most 40)")
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, metavar="DIR", help="(default: runs/<date>-identify-<log>)")
    output.add_argument("--json", type=Path, metavar="FILE", help="write result.json there too")
    output.add_argument("--quiet", action="store_true", help="only the last line")


def run(options: argparse.Namespace) -> int:
    """Identify; the first line comes before anything heavy is imported."""
    check_output("--json", options.json)
    if not options.quiet:
        print(f"safe-sysid identify: {options.log} with {options.robot}", flush=True)
    from safe_sysid.apps.identify.identify import IdentifyOptions, identify

    values = {key: value for key, value in vars(options).items() if key != "command"}
    values["json_file"] = values.pop("json")
    values["map_file"] = values.pop("map")
    values["filter_hz"] = values.pop("filter")
    values["settings"] = tuple(values.pop("set"))
    values["columns"] = tuple(values.pop("column"))
    return identify(IdentifyOptions(**values))
