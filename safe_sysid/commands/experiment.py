"""``safe-sysid experiment``: the experiments of a paper, simulated, with the paper's tables beside ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.arguments import OneLineParser, at_least, check_directory
from safe_sysid.commands.batch import add_places, check_outputs, collect, one_thread

if TYPE_CHECKING:
    from safe_sysid.experiments.runner import Experiment

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "run the experiments of the paper and print its tables beside ours"
DESCRIPTION = "Runs the experiments of a paper in simulation."
_PSO = """The experiments of PSO, section VI: five dumbbells of unknown weight are identified, carried around an
obstacle and stacked (a: near, b: far) or carried through a narrow course (c), with each method of Table II.
--table 3 prints success or failure beside the paper's, 4 and 5 condition numbers; fig5, fig6, fig11 and fig12
run what a figure shows and draw it. Exit status: 0 all trials ran to their end (whatever came out), 1 some
raised an error, 2 wrong arguments, 130 interrupted."""
#: As in safe_sysid.experiments.runner, which is not imported before it is needed; a test compares them.
_TABLES = ("3", "4", "5", "fig5", "fig6", "fig11", "fig12")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the paper and the options."""
    papers = parser.add_subparsers(dest="paper", metavar="PAPER", required=True, parser_class=OneLineParser)
    pso = papers.add_parser("pso", help="provably safe online system identification", description=_PSO)
    pso.add_argument("--table", choices=_TABLES, required=True, help="which table or figure")
    what = pso.add_argument_group("what is run; by default what the table shows")
    what.add_argument("--experiments", type=_names, metavar="a,b,c", help="work cells")
    what.add_argument("--methods", type=_names, metavar="NAME,..", help="names of Table II, as ours,adap-1")
    what.add_argument("--payloads", type=_names, metavar="4lb,..", help="dumbbells")
    what.add_argument(
        "--trials",
        type=at_least(1),
        metavar="N",
        help="repeats of each (default: 5; figures 1; table 4: 100 motions)",
    )
    what.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of all trials (default: 0)")
    what.add_argument(
        "--law", choices=("robust", "armour"), default="robust",
        help="what the methods with a robust controller use: ours (default) or ARMOUR's as published",
    )  # fmt: skip
    what.add_argument(
        "--noise", choices=("none", "uniform", "adversarial"), default="uniform",
        help="errors of sensors within their declared bounds (default: uniform)",
    )  # fmt: skip
    what.add_argument("--robot", default="kinova_gen3", help="(default: kinova_gen3)")
    add_places(pso)
    files = pso.add_argument_group("results")
    files.add_argument("--json", type=Path, metavar="FILE", help="all records, at the end")
    files.add_argument(
        "--out", type=Path, metavar="DIR",
        help="results as they come, series and pictures (default: experiment_pso_<table>)",
    )  # fmt: skip
    files.add_argument("--resume", action="store_true", help="go on with the results in --out")


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def run(options: argparse.Namespace) -> int:
    """Run, or go on with, what a table or figure shows; print and draw it."""
    one_thread()
    from rich.console import Console

    from safe_sysid.campaign.results import write_summary
    from safe_sysid.experiments import tables
    from safe_sysid.experiments.runner import cases, experiment
    from safe_sysid.experiments.series import SeriesStore

    settings: dict[str, Any] = {"robot": options.robot}
    if options.table not in ("4", "5"):
        settings |= {"law": options.law, "noise": options.noise}
    which, default = experiment(
        options.table, options.seed, options.experiments, options.methods, options.payloads, **settings
    )
    out = options.out or Path(f"experiment_pso_{options.table}")
    check_directory("--out", out)
    check_outputs(**{"--json": options.json})
    out.mkdir(parents=True, exist_ok=True)
    store = SeriesStore(out / "series")
    total = len(cases(which.kind, which.options, options.trials or default))
    found, interrupted = collect(
        which, total, out / "results.jsonl", tables.is_sound, options,
        chunk=_chunk(which), take=store.take, redo=lambda result: not tables.is_sound(result),
    )  # fmt: skip
    if options.json is not None:
        write_summary(options.json, tables.summary_of(which.header(), found))
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    _tell(console, which, found)
    _show(console, options.table, which, found, store, out)
    if interrupted:
        console.print(
            f"interrupted after {len(found)} of {total} trials; go on with --resume (results in {out})",
            soft_wrap=True,
        )
        return 130
    return 0 if all(tables.is_sound(result) for result in found) else 1


def _chunk(which: Experiment) -> int:
    """Trials that a worker takes at once: long ones alone."""
    return 10 if which.kind == "correlation" else 1


def _tell(console: Any, which: Experiment, found: list[dict[str, Any]]) -> None:
    """Trials that raised: every error once, with the first that had it."""
    from safe_sysid.experiments.runner import case

    errors: dict[str, list[int]] = {}
    for result in found:
        if "error" in result:
            errors.setdefault(" ".join(result["error"].split()), []).append(result["index"])
    for error, indices in errors.items():
        about = case(which.kind, which.options, indices[0])
        name = ", ".join(f"{key} {value}" for key, value in about.items())
        more = f" and {len(indices) - 1} more" if len(indices) > 1 else ""
        console.print(f"trial {indices[0]} ({name}){more}: {error}", soft_wrap=True, markup=False)


def _show(
    console: Any, table: str, which: Experiment, found: list[dict[str, Any]], store: Any, out: Path
) -> None:
    """The table, and the pictures that there is something for."""
    from safe_sysid.experiments import tables

    if not found:
        return
    if which.kind == "correlation":
        console.print(tables.correlation_table(found))
    elif which.kind == "condition":
        console.print(tables.condition_table(found))
    else:
        from safe_sysid.experiments.gallery import draw

        console.print(tables.success_table(found) if table != "fig6" else tables.width_table(found))
        for path in draw(table, which.options, found, store, out):
            console.print(f"wrote {path}", soft_wrap=True)
