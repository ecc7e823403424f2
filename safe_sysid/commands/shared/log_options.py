"""Options shared by commands that learn of an arm from its logs: reading, processing, held-out samples, output."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safe_sysid.commands.shared.arguments import at_least, column, joint_value, non_negative, positive, share

__all__ = ["add_log_options", "add_reading_options", "log_values"]


def _factor(text: str) -> tuple[str, float]:
    key, number = joint_value(text)
    if number == 0.0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected JOINT=NUMBER, not 0")
    return key, number


def _share(text: str) -> float:
    positive(text)
    return share(text)


def add_reading_options(parser: argparse.ArgumentParser) -> Callable[..., argparse.Action]:
    """Add the logs, the robot, and how logs are read. Returns `add_argument` of the group "reading the logs"."""
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="bags, CSV or .npz")
    parser.add_argument("--robot", default="kinova_gen3", metavar="NAME|FILE", help="(default: %(default)s)")
    reading = parser.add_argument_group("reading the logs")
    reading.add_argument("--topic", metavar="NAME", help="sensor_msgs/JointState of a bag")
    reading.add_argument(
        "--column", type=column, action="append", default=[], metavar="KEY=NAME",
        help="column of a table: time=NAME, JOINT.position=NAME, ...; repeatable",
    )  # fmt: skip
    reading.add_argument("--map", type=Path, metavar="FILE", help="YAML file that says the same (docs/use/identify.md)")
    reading.add_argument("--angles", choices=("rad", "deg"), help="of positions and velocities")
    reading.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="of stamps")
    reading.add_argument(
        "--torque-per-effort", type=_factor, action="append", default=[], metavar="JOINT=K",
        help="efforts are currents: N m at the joint per unit, gear ratio times torque constant; repeatable",
    )  # fmt: skip
    return reading.add_argument


def add_log_options(parser: argparse.ArgumentParser) -> Callable[..., argparse.Action]:
    """Add them. Returns `add_argument` of the group "how", for options of the command's own."""
    add_reading = add_reading_options(parser)
    add_reading("--force", action="store_true", help="go on although the checks found errors")
    how = parser.add_argument_group("how")
    how.add_argument("--validation", type=Path, action="append", default=[], metavar="LOG", help="held out; repeatable")
    how.add_argument("--share", type=_share, default=0.3, metavar="S", help="held out of each log (default: 0.3)")
    how.add_argument("--cutoff", type=non_negative, metavar="HZ", help="of the zero-phase filter; 0: none")
    how.add_argument("--decimation", type=at_least(1), metavar="N", help="one sample of N is kept")
    how.add_argument(
        "--velocity", choices=("auto", "log", "positions"), default="auto", help="where velocities are from"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, metavar="DIR", help="(default: runs/<date>-<command>)")
    output.add_argument("--json", type=Path, metavar="FILE", help="write result.json there too")
    output.add_argument("--quiet", action="store_true", help="only the last line")
    return how.add_argument


def log_values(options: argparse.Namespace) -> dict[str, Any]:
    """Values of all options, named as in :class:`safe_sysid.apps.arm.logs.ArmLogOptions`."""
    values = {key: value for key, value in vars(options).items() if key not in ("command", "what")}
    values["json_file"], values["map_file"] = values.pop("json"), values.pop("map")
    values["columns"] = tuple(values.pop("column"))
    for key in ("logs", "validation", "torque_per_effort"):
        values[key] = tuple(values[key])
    return values
