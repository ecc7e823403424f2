"""``safe-sysid tube``: the tracking tube of an arm's own controller, measured from logs."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.shared.arguments import non_negative

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "how far an arm's own trajectory controller is off, from logs of it"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Measures, joint by joint, the largest difference of desired and measured position, velocity and (as
means over samples) acceleration, at no load and with the heaviest payload, adds margins, and prints the tube for the
robot's file: the inner one is what the watch stops at, the outer one what certificates rest on. Plans faster than these
motions and priors heavier than this payload are refused. No log proves that the next motion is not further off: the
tube is declared, watched at every sample, and not proved.

LOG is a ROS 2 bag with joint_trajectory_controller's state topic (~/controller_state), or a table (CSV) with columns
time, JOINT.position, JOINT.velocity, JOINT.effort, JOINT.desired_position and JOINT.desired_velocity, or others that
--column names. Desired: what the arm's controller was to follow at that stamp.

Exit status: 0 measured; 2 a log or an option cannot be used.

examples:
  ros2 bag record -o empty /joint_trajectory_controller/controller_state
  safe-sysid tube empty --loaded heavy --heaviest 5.2 --robot my_arm.yaml --write
  safe-sysid tube empty.csv --loaded heavy.csv --heaviest 5.2 --robot my_arm.yaml --write
"""


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key and value):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=NAME")
    return key, value


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="bags or tables at no load")
    parser.add_argument(
        "--loaded", type=Path, nargs="+", required=True, metavar="LOG", help="with the heaviest payload"
    )
    parser.add_argument(
        "--heaviest", type=non_negative, required=True, metavar="KG",
        help="mass of last link, hand and payload together in the loaded logs",
    )  # fmt: skip
    parser.add_argument("--robot", default="kinova_gen3", metavar="NAME|FILE", help="(default: %(default)s)")
    parser.add_argument("--topic", metavar="NAME", help="of bags (default: the only one of its type)")
    parser.add_argument("--column", type=_pair, action="append", default=[], metavar="KEY=NAME", help="repeatable")
    parser.add_argument("--margin", type=non_negative, default=1.5, help="of e and de (default: %(default)s)")
    parser.add_argument(
        "--acceleration-margin", type=non_negative, default=3.0,
        help="of dde, which is seen as means over samples only (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--latency", type=non_negative, default=0.02, metavar="S",
        help="from a measurement to a stop's effect, but for a sample's period, s (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="put it into the robot's file (a path)")


def run(options: argparse.Namespace) -> int:
    """Measure it; the first line comes before anything heavy is imported."""
    print(f"safe-sysid tube: {len(options.logs) + len(options.loaded)} logs of {options.robot}", flush=True)
    from safe_sysid.apps.arm.tube import (
        TubeMargins,
        measure_tube,
        read_tracked,
        require_room,
        speed_table,
        tube_text,
        write_tube,
    )
    from safe_sysid.errors import ConfigError
    from safe_sysid.robot.loading import load_robot

    for name in ("margin", "acceleration_margin"):
        if getattr(options, name) < 1.0:
            raise ConfigError(f"--{name.replace('_', '-')}", "", getattr(options, name), "a factor of at least 1")
    path = Path(options.robot)
    if options.write and not path.is_file():
        raise ConfigError("--write", "--robot", options.robot, "the path of a robot's file: packaged ones stay")
    if options.write:
        require_room(path)
    model = load_robot(options.robot)
    free, loaded = (
        [read_tracked(log, model, dict(options.column), options.topic) for log in logs]
        for logs in (options.logs, options.loaded)
    )
    for line in speed_table(model, free, loaded):
        print(line)
    margins = TubeMargins(options.margin, options.acceleration_margin, options.latency)
    tube = measure_tube(model, free, loaded, options.heaviest, margins)
    print(tube_text(tube), end="")
    if options.write:
        write_tube(path, tube)
        print(f"written into {path}")
    return 0
