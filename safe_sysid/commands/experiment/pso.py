"""``safe-sysid experiment pso``: tables 3 to 5 and figures 5, 6, 11 and 12 of [PSO], simulated."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.experiment.frame import add_results, begin, run_trials
from safe_sysid.commands.shared.arguments import at_least, names
from safe_sysid.commands.shared.batch import show_table

if TYPE_CHECKING:
    from rich.console import Console

    from safe_sysid.studies.campaign.runner import Campaign

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "provably safe online system identification"
DESCRIPTION = """The experiments of PSO, section VI: five dumbbells of unknown weight are identified, carried around an
obstacle and stacked (a: near, b: far) or carried through a narrow course (c), with each method of Table II.
--table 3 prints success or failure beside the paper's, 4 and 5 condition numbers; fig5, fig6, fig11 and fig12
run what a figure shows and draw it. Exit status: 0 all trials ran to their end (whatever came out), 1 some
raised an error, 2 wrong arguments, 130 interrupted."""
#: As in safe_sysid.studies.experiments.runner, which is not imported before it is needed; a test compares them.
_TABLES = ("3", "4", "5", "fig5", "fig6", "fig11", "fig12")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--table", choices=_TABLES, required=True, help="which table or figure")
    what = parser.add_argument_group("what is run; by default what the table shows")
    what.add_argument("--experiments", type=names, metavar="a,b,c", help="work cells")
    what.add_argument("--methods", type=names, metavar="NAME,..", help="names of Table II, as ours,adap-1")
    what.add_argument("--payloads", type=names, metavar="4lb,..", help="dumbbells")
    what.add_argument(
        "--trials", type=at_least(1), metavar="N", help="repeats of each (default: 5; figures 1; table 4: 100 motions)"
    )
    what.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of all trials (default: 0)")
    what.add_argument(
        "--law", choices=("robust", "armour"),
        help="what the methods with a robust controller use: ours (default) or ARMOUR's as published",
    )  # fmt: skip
    what.add_argument(
        "--noise", choices=("none", "uniform", "adversarial"),
        help="errors of sensors within their declared bounds (default: uniform)",
    )  # fmt: skip
    what.add_argument("--robot", default="kinova_gen3", help="(default: kinova_gen3)")
    add_results(parser, "records", "results as they come, series and pictures (default: experiment_pso_<table>)")


def run(options: argparse.Namespace) -> int:
    """Run, or go on with, what a table or figure shows; print and draw it."""
    console = begin(options, f"experiment_pso_{options.table}")
    from safe_sysid.studies.experiments.results import tables
    from safe_sysid.studies.experiments.results.figures import draw
    from safe_sysid.studies.experiments.results.series import SeriesStore
    from safe_sysid.studies.experiments.runner import case, cases

    which, trials = _experiment(options)
    out = options.out
    _load(which)
    store = SeriesStore(out / "series")

    def name(index: int) -> str:
        """What a trial was of."""
        about = case(which.kind, which.options, index)
        return f" ({', '.join(f'{key} {value}' for key, value in about.items())})"

    return run_trials(
        which, len(cases(which.kind, which.options, trials)), out / "results.jsonl", options, console,
        lambda found: tables.summary_of(which.header(), found),
        lambda _, found: _show(console, options.table, which, found),
        lambda _, found: draw(options.table, which.options, found, store, out) if which.kind == "task" else (),
        name=name, chunk=10 if which.kind == "correlation" else 1, take=store.take,  # long ones alone
    )  # fmt: skip


def _experiment(options: argparse.Namespace) -> tuple[Campaign, int]:
    """What the options ask for, and how often.

    Raises ExperimentError: names that there are not, or options that this table has no use for.
    """
    from safe_sysid.studies.experiments.methods import ExperimentError
    from safe_sysid.studies.experiments.runner import experiment

    settings: dict[str, Any] = {"robot": options.robot}
    if options.table not in ("4", "5"):
        settings |= {"law": options.law or "robust", "noise": options.noise or "uniform"}
    elif options.law or options.noise:
        raise ExperimentError(f"table {options.table}: expected neither --law nor --noise, it has no use for them")
    which, default = experiment(
        options.table, options.seed, options.experiments, options.methods, options.payloads, **settings
    )
    trials = default if options.trials is None else options.trials
    if which.kind == "correlation" and trials < 3:
        raise ExperimentError(f"--trials = {trials}: expected at least 3, the fewest that have a correlation")
    return which, trials


def _load(which: Campaign) -> None:
    """Read robot and work cells once: what is wrong with their files is said before anything is made.

    Raises SafeSysIdError: one cannot be read.
    """
    from safe_sysid.robot.loading import load_robot

    load_robot(which.options["robot"])
    if which.kind == "task":
        from safe_sysid.studies.experiments.cell.workcell import load_workcell

        for name in which.options["experiments"]:
            load_workcell(name)


def _show(console: Console, table: str, which: Campaign, found: list[dict[str, Any]]) -> None:
    """The table, or in numbers what the figure shows."""
    from safe_sysid.studies.experiments.results import tables

    if not found:
        return
    if which.kind == "correlation":
        show_table(console, tables.correlation_table(found))
    elif which.kind == "condition":
        show_table(console, tables.condition_table(found))
    else:
        show_table(console, tables.success_table(found) if table != "fig6" else tables.width_table(found))
