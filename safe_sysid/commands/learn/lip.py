"""``safe-sysid learn lip``: a Gaussian process of energies from logs of an arm."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.shared.arguments import at_least, check_output
from safe_sysid.commands.shared.log_options import add_log_options, log_values

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "energies as Gaussian processes: needs to know which joints slide, and nothing else"
DESCRIPTION = """Reads logs of an arm that moves freely, and learns its torques as Lagrange's equations of two energies
that are Gaussian processes, with friction by joint (docs/use/learning.md). Of the arm it takes names and kinds of
joints alone: from --robot, or from --joints. The last part of each log is held out, or the logs of --validation are.
Writes model.npz (for controllers: feed-forward `residual`, residual model `lip`), result.json and report.html.
No guarantee comes of any of it.

LOG is a ROS 2 bag, a CSV file or a .npz.

Exit status: 0 learned; 2 a log cannot be what it says, or an option cannot be used; 130 interrupted.

examples:
  safe-sysid learn lip exciting.mcap --robot my_arm.yaml
  safe-sysid learn lip log.csv --joints shoulder,elbow,rail:slides --epochs 200
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = add_log_options(parser)
    parser.add_argument(
        "--joints", metavar="A,B:slides,..", help="names and kinds of joints, in the order of the chain, for --robot"
    )
    add(
        "--samples", type=at_least(10), default=500, metavar="N",
        help="kept of all, the most informative ones (default: 500)",
    )  # fmt: skip
    add("--epochs", type=at_least(0), default=400, metavar="E", help="of training (default: 400)")
    add(
        "--starts", type=at_least(1), default=2, metavar="K",
        help="trainings from different noises, of which the most likely is kept (default: 2)",
    )  # fmt: skip
    add("--batch", type=at_least(2), default=100, metavar="B", help="samples of a step (default: 100)")
    add(
        "--finish", type=at_least(0), default=20, metavar="K",
        help="iterations of L-BFGS after the epochs, kept if they make held-out torques likelier (default: 20)",
    )  # fmt: skip
    add("--no-friction", action="store_true", help="energies alone")
    add("--residual", action="store_true", help="a squared exponential by joint, too, for what no model has")
    add("--device", metavar="NAME", help="of torch (extra `learn`) to train on, as cuda (default: compiled, here)")
    add("--seed", type=at_least(0), default=0, metavar="S", help="of the batches (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Learn; the first line comes before anything heavy is imported."""
    check_output("--json", options.json)
    of: str | Path = options.joints or options.robot
    if not options.quiet:
        print(f"safe-sysid learn lip: {len(options.logs)} log(s) of {of}", flush=True)
    from safe_sysid.apps.learn.lip import LearnLipOptions, learn_lip

    return learn_lip(LearnLipOptions(**log_values(options)))
