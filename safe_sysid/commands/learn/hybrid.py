"""``safe-sysid learn hybrid``: a rigid arm, friction and a network with memory, from logs of an arm."""

from __future__ import annotations

import argparse

from safe_sysid.commands.shared.arguments import at_least, check_output, non_negative
from safe_sysid.commands.shared.log_options import add_log_options, log_values

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "a rigid arm, friction, and a network with memory for what both leave"
#: As in safe_sysid.learning.neural.models, not imported before it is needed; a test compares them.
MODELS = ("rbd_sign_lstm", "rbd_sign_mlp", "rbd_lstm", "rbd_sign", "rbd", "lstm", "nea", "nea_lstm")
DESCRIPTION = """Reads logs of an arm that moves freely, and learns its torques as a rigid arm whose links are always
real ones, Coulomb friction, and a recurrent network (docs/use/learn_hybrid.md): all at once (e2e), or the rigid part
first (2s). Training needs torch (pip install 'safe_sysid[learn]'); what it writes does not: model.npz (for controllers:
feed-forward `residual`, residual model `hybrid`), result.json, the data set in data/ and a checkpoint, from which the
same command with the same --out goes on. No guarantee comes of any of it.

LOG is a ROS 2 bag, a CSV file or a .npz, at the rate that the controller will run at.

Exit status: 0 learned; 2 a log cannot be what it says, or an option cannot be used; 130 interrupted.

examples:
  safe-sysid learn hybrid exciting.mcap --robot my_arm.yaml
  safe-sysid learn hybrid a.csv b.csv --validation c.csv --robot my_arm.yaml --minutes 30
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = add_log_options(parser)
    add("--model", choices=MODELS, default=MODELS[0], help="(default: %(default)s)")
    add("--optimization", choices=("e2e", "2s"), default="e2e", help="end to end (default), or in two steps")
    add("--as-paper", action="store_true", help="the network sees positions and steps at every tick")
    add("--minutes", type=non_negative, metavar="M", help="training ends after this time")
    add("--seed", type=at_least(0), default=0, metavar="S", help="of training (default: 0)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)")


def run(options: argparse.Namespace) -> int:
    """Learn; the first line comes before anything heavy is imported."""
    check_output("--json", options.json)
    if not options.quiet:
        print(f"safe-sysid learn hybrid: {len(options.logs)} log(s) of {options.robot}", flush=True)
    from safe_sysid.apps.learn.hybrid import LearnHybridOptions, learn_hybrid

    return learn_hybrid(LearnHybridOptions(**log_values(options)))
