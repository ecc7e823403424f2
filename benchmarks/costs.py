"""Which cost narrows the published intervals fastest. PSO's tables IV and V: ``safe-sysid experiment pso``.

`runs` drives whole episodes in lock-step (MuJoCo plant, four plans) that differ only in what plans are chosen by, one
line of JSON each, and goes on where it was interrupted. `tables` prints what such a file says: final widths by cost,
and the condition number of PSO's momentum observation matrix beside Table V, for every cost.

    python benchmarks/costs.py runs --out costs.jsonl --seeds 5
    python benchmarks/costs.py runs --out five.jsonl --costs condition random --payloads 4lb 5lb 6lb 7lb 8lb
    python benchmarks/costs.py tables --out costs.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.planning.costs import COST_NAMES
from safe_sysid.studies.campaign.excitation.episodes import RANDOM, CostCase, run_case
from safe_sysid.studies.campaign.excitation.tables import condition_rows, width_rows

COSTS = (*(name for name in COST_NAMES if name != "goal"), RANDOM)


def attempt(case: CostCase) -> dict[str, Any]:
    """A run that raises is a record too."""
    try:
        return run_case(case)
    except Exception as error:  # the study must tell of every case
        return {**asdict(case), "error": f"{type(error).__name__}: {error}"}


def runs(options: argparse.Namespace, console: Console) -> None:
    """Run what is missing in the file."""
    cases = [
        CostCase(cost, noise, seed, payload, scene, options.robot)
        for seed, scene, noise, payload, cost in itertools.product(
            range(options.seeds), options.scenes, options.noises, options.payloads, options.costs
        )
    ]
    done = {CostCase.of(record) for record in read(options.out)}
    todo = [case for case in cases if case not in done]
    with (
        multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=20) as pool,
        options.out.open("a") as file,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("runs", total=len(todo))
        for record in pool.imap(attempt, todo):
            file.write(json.dumps(record) + "\n")
            file.flush()
            progress.advance(task)


def read(path: Path) -> list[dict[str, Any]]:
    """Records of a file, none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tables(records: list[dict[str, Any]], reference: str, console: Console) -> bool:
    """Print both tables; True if every run is sound."""
    failed = [record for record in records if "error" in record]
    for record in failed:
        console.print(str(CostCase.of(record)), record["error"], soft_wrap=True)
    good = [record for record in records if "error" not in record]
    rows = width_rows(good, reference)
    widths = Table(
        title=f"final widths, medians; mean log of width / prior, and its difference to {reference}"
    )
    for column in ("noise", "cost", "runs", "sound", "log", f"against {reference}", *PAYLOAD_NAMES):
        widths.add_column(column, justify="right")
    for row in rows:
        numbers = (f"{row.shrinkage:.2f}", f"{row.against:+.2f} +- {row.error:.2f}")
        head = (row.noise, row.cost, str(row.runs), "yes" if row.sound else "NO", *numbers)
        widths.add_row(*head, *(f"{width:.4f}" for width in row.widths))
    console.print(widths)
    costs = list(dict.fromkeys(record["cost"] for record in good))
    fifth = Table(title="condition number of Y after four plans, medians: unscaled (scaled by the prior)")
    for column in ("payload", *costs, "paper: theirs", "paper: random"):
        fifth.add_column(column, justify="right")
    for row in condition_rows(good):
        ours = (f"{row.ours[c]:.0f} ({row.scaled[c]:.0f})" if c in row.ours else "" for c in costs)
        fifth.add_row(row.payload, *ours, *(f"{value:.0f}" for value in row.paper))
    console.print(fifth)
    return not failed and all(row.sound for row in rows)


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["runs", "tables"])
    parser.add_argument("--out", type=Path, default=Path("costs.jsonl"))
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--costs", nargs="+", default=list(COSTS))
    parser.add_argument("--payloads", nargs="+", default=["8lb"])
    parser.add_argument("--scenes", nargs="+", default=["open"])
    parser.add_argument("--noises", nargs="+", default=["uniform", "adversarial"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--reference", default=RANDOM, help="cost that the others are compared with")
    options = parser.parse_args()
    console = Console()
    if options.what == "runs":
        runs(options, console)
    return 0 if tables(read(options.out), options.reference, console) else 1


if __name__ == "__main__":
    raise SystemExit(main())
