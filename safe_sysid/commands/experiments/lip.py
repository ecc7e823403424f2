"""``safe-sysid experiment lip``: figures 1 to 4 and 9 and table III of [LIP], simulated."""

from __future__ import annotations

import argparse
from typing import Any

from safe_sysid.commands.arguments import at_least
from safe_sysid.commands.batch import show_table
from safe_sysid.commands.experiments.frame import add_results, begin, run_trials
from safe_sysid.errors import SafeSysIdError

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "inverse dynamics as Gaussian processes of energies"
DESCRIPTION = """A simulated Panda, random trajectories to learn and others to predict, with noise of 0.01 N m.
Figure 1: three to seven joints; 2: six joints, and energies; 3: energies of one trial; 4: seven joints, fewer samples.
Methods: LIP, GIP and SE (Gaussian processes), ID (least squares, the arm's kinematics known).
--setting code is the paper's public code, text its text: slower motions.
Table 3, figure 9: computed torque on a simulated flexible Panda with friction, rigid nominal model 5 to 30 % off;
methods LIP, nominal, identified, SE, GIP.
Exit status: 0 all trials ran to their end (whatever came out), 1 some raised an error, 2 wrong arguments, 130
interrupted."""
_KINDS = {"1": "joints", "2": "joints", "3": "joints", "4": "samples", "9": "tracking"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", choices=("3",), help="which table")
    what.add_argument("--figure", choices=tuple(_KINDS), help="which figure")
    parser.add_argument("--setting", choices=("code", "text"), default="code", help="(default: code)")
    parser.add_argument("--joints", type=int, choices=range(1, 8), metavar="N", help="only so many")
    parser.add_argument("--methods", metavar="A,B", help="only these")
    parser.add_argument(
        "--seeds", type=at_least(1), default=1, metavar="K", help="(default: 1; the paper: 50)"
    )
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="the first (default: 0)")
    parser.add_argument(
        "--epochs", type=at_least(1), default=1001, metavar="E", help="of training (default: 1001)"
    )
    parser.add_argument("--batch", type=at_least(2), default=100, metavar="B", help="(default: 100)")
    add_results(parser, "rows", "results as they come, and pictures (default: experiment_lip_<figure>)")


def _options(options: argparse.Namespace, figure: str) -> dict[str, Any]:
    """What the trials are.

    Raises:
        SafeSysIdError: a method that there is not.
    """
    from safe_sysid.studies.lip.methods import METHODS
    from safe_sysid.studies.lip.tracking import TRACKED

    kind = _KINDS[figure]
    known = TRACKED if kind == "tracking" else ("LIP",) if figure == "3" else METHODS
    methods = options.methods.split(",") if options.methods else list(known)
    for name in methods:
        if name not in known:
            raise SafeSysIdError(f"--methods {name}: expected some of {', '.join(known)}")
    joints = {"1": [3, 4, 5, 6, 7], "4": [7], "9": [7]}.get(figure, [6])
    return {
        "kind": kind, "setting": options.setting, "methods": methods, "seeds": options.seeds,
        "joints": [options.joints] if options.joints else joints, "amplitudes": [0.5, 0.6],
        "epochs": options.epochs, "batch": options.batch, "series": figure == "3",
    }  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run, or go on with, a figure or table; print and draw it."""
    figure = options.figure or "9"
    console = begin(options, f"experiment_lip_{figure}")
    from safe_sysid.studies.lip import tables

    campaign = tables.LipExperiment("lip", options.seed, _options(options, figure))

    def show(told: dict[str, Any]) -> None:
        if told["rows"]:
            show_table(console, tables.table(told))
            console.print(tables.energies(told), soft_wrap=True, markup=False)

    return run_trials(
        campaign, campaign.total, options.out / "results.jsonl", options, console, tables.is_sound,
        lambda found: tables.summary(campaign.header(), found), show,
        lambda told, found: [tables.draw(figure, told, found, options.out)] if told["rows"] else (),
    )  # fmt: skip
