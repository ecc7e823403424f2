"""``safe-sysid experiment lip``: figures 1 to 9 and tables II and III of [LIP], simulated."""

from __future__ import annotations

import argparse
from typing import Any

from safe_sysid.commands.experiment.frame import add_results, begin, run_trials
from safe_sysid.commands.shared.arguments import at_least, non_negative
from safe_sysid.commands.shared.batch import show_table
from safe_sysid.errors import SafeSysIdError

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "inverse dynamics as Gaussian processes of energies"
DESCRIPTION = """A simulated Panda, random trajectories to learn and others to predict, with noise of 0.01 N m.
Figure 1: three to seven joints; 2: six joints, and energies; 3: energies of one trial; 4: seven joints, fewer samples.
Methods: chain (the kernel of `learn lip`), LIP (the paper's), GIP, SE and LSE (Gaussian processes), ID (least squares,
the arm's kinematics known), DeLaN (a network; only where --methods names it, or table 2: needs torch, the extra
`learn`). LSE runs ten seeds at most, DeLaN three.
--setting script is as the paper's public code makes its data, code the same with a wider range of positions, text the
paper's text: slower motions.
Figures 5 to 8 are stand-ins for the paper's real arms, not them: a simulated flexible Panda with friction and ripple,
of seven joints (5: nMSE, 6: kinetic energy) or six (7: positions, 8: nMSE; there also SP, semiparametric).
Table 3, figure 9: computed torque on that arm, rigid nominal model 5 to 30 % off;
methods chain, LIP, nominal, identified, SE, GIP.
Exit status: 0 all trials ran to their end (whatever came out), 1 some raised an error, 2 wrong arguments, 130
interrupted."""
# Of the flexible arm's one run more than the motion is learned by heart: after 100 epochs joint 3, after two starts of
# 400 joint 2 tracks ten and forty times worse than after 30, with the paper's kernel and the chain's.
_EPOCHS, _TRACKING_EPOCHS = 400, 30
_KINDS = {
    "1": "joints", "2": "joints", "3": "joints", "4": "samples", "5": "measured", "6": "measured", "7": "measured",
    "8": "measured", "9": "tracking",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", choices=("2", "3"), help="which table")
    what.add_argument("--figure", choices=tuple(_KINDS), help="which figure")
    parser.add_argument("--setting", choices=("code", "script", "text"), default="code", help="(default: code)")
    parser.add_argument("--joints", type=int, choices=range(1, 8), metavar="N", help="only so many")
    parser.add_argument("--methods", metavar="A,B", help="only these")
    parser.add_argument("--seeds", type=at_least(1), default=1, metavar="K", help="(default: 1; the paper: 50)")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="the first (default: 0)")
    parser.add_argument(
        "--epochs", type=at_least(1), metavar="E",
        help=f"of training (default: {_EPOCHS}; {_TRACKING_EPOCHS} in table 3 and figure 9)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=non_negative, default=0.06, metavar="R",
        help="step of Adam at the start, which falls to a fiftieth (default: 0.06; the paper: 0.01 throughout)",
    )  # fmt: skip
    parser.add_argument(
        "--starts", type=at_least(1), metavar="K",
        help="trainings from different noises, of which the most likely is kept (default: 2; table 3, figure 9: 1)",
    )  # fmt: skip
    parser.add_argument("--batch", type=at_least(2), default=100, metavar="B", help="(default: 100)")
    parser.add_argument(
        "--finish", type=at_least(0), default=20, metavar="K",
        help="iterations of L-BFGS over all samples after the epochs (default: 20; the paper: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--network-epochs", type=at_least(1), default=200, metavar="E",
        help="of DeLaN (default: 200; the paper: 200000)",
    )  # fmt: skip
    add_results(parser, "rows", "results as they come, and pictures (default: experiment_lip_<figure>)")


def _options(options: argparse.Namespace, figure: str) -> dict[str, Any]:
    """What the trials are.

    Raises:
        SafeSysIdError: a method that there is not.
    """
    from safe_sysid.studies.lip.methods import KNOW_ENERGIES, METHODS
    from safe_sysid.studies.lip.stand_in import MEASURED
    from safe_sysid.studies.lip.tracking import TRACKED

    kind = _KINDS[figure]
    joints = {"1": [3, 4, 5, 6, 7]}.get(figure, [7] if figure in "4569" else [6])
    known = {"tracking": TRACKED, "measured": MEASURED[joints[0]] if kind == "measured" else ()}.get(kind, METHODS)
    if figure in "367":
        known = KNOW_ENERGIES
    methods = ["chain"] if figure in "367" else [name for name in known if name != "DeLaN"]
    if options.table == "2":
        methods = ["DeLaN"]
    if options.methods:
        methods = options.methods.split(",")
    for name in methods:
        if name not in known:
            raise SafeSysIdError(f"--methods {name}: expected some of {', '.join(known)}")
    if options.joints and kind == "measured":
        raise SafeSysIdError("--joints: the stand-ins of figures 5 to 8 have theirs")
    return {
        "kind": kind, "setting": options.setting, "methods": methods, "seeds": options.seeds,
        "joints": [options.joints] if options.joints else joints, "amplitudes": [0.5, 0.6],
        "epochs": options.epochs or (_TRACKING_EPOCHS if kind == "tracking" else _EPOCHS),
        "batch": options.batch, "rate": options.rate, "starts": options.starts or (1 if kind == "tracking" else 2),
        "finish": options.finish, "series": figure in "367", "network_epochs": options.network_epochs,
    }  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run, or go on with, a figure or table; print and draw it."""
    figure = options.figure or {"2": "2", "3": "9"}[options.table]
    console = begin(options, f"experiment_lip_{figure}")
    from safe_sysid.robot.loading import load_robot
    from safe_sysid.studies.campaign.runner import Campaign
    from safe_sysid.studies.lip import tables
    from safe_sysid.studies.lip.trial import cases

    load_robot("franka_panda")  # without its URDF every trial would fail
    campaign = Campaign("lip", options.seed, _options(options, figure))

    def show(told: dict[str, Any], _: list[dict[str, Any]]) -> None:
        if told["rows"]:
            show_table(console, tables.table(told))
            console.print(tables.energies(told), soft_wrap=True, markup=False)

    return run_trials(
        campaign, len(cases(campaign.options)), options.out / "results.jsonl", options, console,
        lambda found: tables.summary(campaign.header(), found), show,
        lambda told, found: [tables.draw(figure, told, found, options.out)] if told["rows"] else (),
    )  # fmt: skip
