"""``safe-sysid experiment constrained``: tables I to IV and figures 3 to 5 of [ConstrainedSysID], simulated."""

from __future__ import annotations

import argparse
from typing import Any

from safe_sysid.commands.experiment.frame import add_results, begin, run_trials
from safe_sysid.commands.shared.arguments import at_least
from safe_sysid.commands.shared.batch import one_thread, show_table
from safe_sysid.errors import SafeSysIdError

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "system identification for constrained robots"
DESCRIPTION = """A leg with three loops (motors and friction unknown) and an arm with four joints (all unknown):
identified parameters against the manufacturer's, which are 5 to 30 % off. Table 1: torque on held-out motion;
2: simulated segments; 3 and 4: tracking, mean and maximum. Exit status: 0 all trials ran to their end (whatever came
out), 1 some raised an error, 2 wrong arguments, 130 interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--table", choices=("1", "2", "3", "4"), help="which table")
    parser.add_argument("--figure", choices=("3", "4", "5"), help="draw it, too: 3 of table 1, 4 of 2, 5 of 3 and 4")
    parser.add_argument("--seeds", type=at_least(1), default=10, metavar="K", help="true arms (default: 10)")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="the first (default: 0)")
    parser.add_argument(
        "--limbs", default="leg,four_joint_arm", metavar="a,b", help="also palletiser, four_bar (default: %(default)s)"
    )
    add_results(parser, "rows", "results as they come, and pictures (default: experiment_constrained_<table>)")


def run(options: argparse.Namespace) -> int:
    """Run, or go on with, a table; print and draw it."""
    one_thread()
    from safe_sysid.studies.campaign.runner import Campaign
    from safe_sysid.studies.experiments.constrained import tables

    which = options.table or tables.TABLE_OF_FIGURE.get(options.figure or "")
    if which is None:
        raise SafeSysIdError("expected --table or --figure")
    if options.figure and tables.TABLE_OF_FIGURE[options.figure] != {"4": "3"}.get(which, which):
        raise SafeSysIdError(
            f"figure {options.figure} shows table {tables.TABLE_OF_FIGURE[options.figure]}: expected no --table {which}"
        )
    console = begin(options, f"experiment_constrained_{which}")
    limbs = [name for name in options.limbs.split(",") if name]
    tables.check_limbs(limbs)
    campaign = Campaign("constrained", options.seed, {"table": which, "limbs": limbs, "series": True})

    def show(told: dict[str, Any], _: list[dict[str, Any]]) -> None:
        if told["rows"]:
            show_table(console, tables.table(which, told))
            lost = ", ".join(told["lost"]) or "none"
            console.print(f"worse identified than the manufacturer's, in the median: {lost}", soft_wrap=True)

    return run_trials(
        campaign, options.seeds * len(limbs), options.out / "results.jsonl", options, console,
        lambda found: tables.summary(which, campaign.header(), found), show,
        lambda _, found: tables.draw(options.figure, found, options.out) if options.figure else (),
    )  # fmt: skip
