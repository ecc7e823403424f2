"""``safe-sysid replay``: the identification of a recorded run, once more, from the bag alone."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from safe_sysid.commands.shared.arguments import check_output

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "run the identification of a recorded run again"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Reads a bag that recorder_node (or `ros2 bag record`) made of a run, does with its joint states what
the identifier's journal says, and compares: every piece of samples, every update and every message on `bounds` must
come out again bit for bit. Robot and settings come from the identifier's `configuration` in the bag.

Exit status: 0 bit for bit the same; 1 something differs, or the bag is incomplete (said what); 2 a bag, file or option
cannot be used; 130 interrupted.

examples:
  safe-sysid replay runs/20260504-101500-8lb-0/bag
  safe-sysid replay rosbag2_2026_05_04 --node /left/identifier --robot my_arm.yaml
  safe-sysid replay rosbag2_2026_05_04 --recover repaired      # after the recorder was killed
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("bag", type=Path, metavar="BAG", help="directory of a rosbag2 bag, or its .mcap file")
    parser.add_argument("--node", metavar="NAME", help="identifier to run again, as /left/identifier (default: all)")
    parser.add_argument(
        "--robot", metavar="NAME|FILE", help="robot file that stands for the run's (default: as recorded)"
    )
    parser.add_argument("--topic", metavar="NAME", help="joint states (default: joint_states of the node's namespace)")
    parser.add_argument("--tare", type=Path, metavar="FILE", help="that the run started with (default: as recorded)")
    parser.add_argument("--bounds", type=Path, metavar="FILE", help="that the run started with (default: as recorded)")
    parser.add_argument(
        "--recover", type=Path, metavar="DIR", help="only write what an unfinished recording holds as a new bag"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--quiet", action="store_true", help="only the last line")


def run(options: argparse.Namespace) -> int:
    """Run again; the first line comes before anything heavy is imported."""
    check_output("--json", options.json)
    if not options.quiet:
        print(f"safe-sysid replay: {options.bag}", flush=True)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # as the demo's nodes have it: sums depend on it
        os.environ.setdefault(name, "1")
    from safe_sysid.apps.replay import recover, replay

    if options.recover is not None:
        return recover(options.bag, options.recover, options.quiet)
    return replay(
        options.bag,
        node=options.node,
        robot=options.robot,
        topic=options.topic,
        files={"tare": options.tare, "bounds": options.bounds},
        json_file=options.json,
        quiet=options.quiet,
    )
