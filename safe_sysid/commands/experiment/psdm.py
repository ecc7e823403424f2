"""``safe-sysid experiment psdm``: tables 2 and 3 and figures 2 and 4 to 7 of [PSDM], with its numbers beside ours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from safe_sysid.commands.experiment.frame import begin, write_told
from safe_sysid.commands.shared.batch import show_table

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "pseudo-symbolic models of arm dynamics"
DESCRIPTION = """Derives and compiles the arms of the paper's Table 1 (KUKA KR6 and LBR7, Fanuc SR-6iA, two links).
Table 2: counts, errors and times; 3: times of reduced models. Figure 2: shares of the torque; 4: time of derivation; 5
and 6: of evaluation; 7: accuracy against size. CasADi is the symbolic baseline where it can be imported. Times are of
this machine, one core. A C compiler is needed. Exit status: 0 done, 2 wrong arguments or no compiler, 130
interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", choices=("2", "3"), help="which table")
    what.add_argument("--figure", choices=("2", "4", "5", "6", "7"), help="which figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="of the picture (default: here)")


def run(options: argparse.Namespace) -> int:
    """Compute a table or a figure, print it, and write what was asked for."""
    console = begin(options, ".")
    from safe_sysid.studies.experiments.psdm import tables as psdm

    if options.table == "2":
        told = psdm.table_2()
        show_table(console, _table_2(told))
    elif options.table == "3":
        told = psdm.table_3()
        show_table(console, _table_3(told))
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        told, path = psdm.figure(options.figure, options.out)
        console.print_json(data=told)
        console.print(f"wrote {path}", soft_wrap=True)
    write_told(options, told)
    return 0


def _text(x: Any) -> str:
    return "-" if x is None else f"{x:.3g}" if isinstance(x, float) else str(x)


def _table_2(told: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(
        title="Table 2: ours (the paper)",
        caption="Errors of the pseudo-symbolic code in N m (2-norm), forward: of the torque that its accelerations "
        "take. Derivation in processor time. 'best' is the faster of this code and the specialised recursion.",
    )
    table.add_column("")
    for name in told["robots"]:
        table.add_column(name)
    for key in dict.fromkeys(key for robot in told["robots"].values() for key in robot):
        cells = []
        for name, robot in told["robots"].items():
            paper = told["paper"][name]
            text = _text(robot[key]) if key in robot else ""
            cells.append(text + (f" ({_text(paper[key])})" if key in paper else ""))
        table.add_row(key, *cells)
    return table


def _table_3(told: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(
        title="Table 3: inverse dynamics of reduced models, us: ours (less than the full model; the paper's us)",
        caption=f"Ours: {told['ours']['states']}; the paper: {told['paper']['states']}.",
    )
    for column in ("arm", "accuracy, profile", "95 % of states", "99.9 %"):
        table.add_column(column)
    for arm, rows in told["arms"].items():
        for label, entry in rows.items():
            cells = [f"{e['us']:.3f} (-{e['less_percent']:.0f} %; {e['paper_us']})" for e in entry.values()]
            table.add_row(arm, label, *cells)
    return table
