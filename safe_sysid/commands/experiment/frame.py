"""Code that the papers' commands share: options of results, and the way from trials to tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.shared.arguments import check_directory, check_output
from safe_sysid.commands.shared.batch import add_places, collect, one_thread

if TYPE_CHECKING:
    from rich.console import Console

    from safe_sysid.studies.campaign.runner import Campaign

__all__ = ["add_results", "begin", "run_trials", "write_told"]

Result = dict[str, Any]


def add_results(parser: argparse.ArgumentParser, records: str, out: str) -> None:
    """Add where trials run and where results go; ``records``: what ``--json`` has; ``out``: help of ``--out``."""
    add_places(parser)
    files = parser.add_argument_group("results")
    files.add_argument("--json", type=Path, metavar="FILE", help=f"all {records}, at the end")
    files.add_argument("--out", type=Path, metavar="DIR", help=out)
    files.add_argument("--resume", action="store_true", help="go on with the results in --out")


def begin(options: argparse.Namespace, default: str) -> Console:
    """Check ``--json`` and ``--out`` (by default ``default``, which it then is); the console for tables.

    Raises SafeSysIdError: a file cannot be written there.
    """
    one_thread()
    from rich.console import Console

    options.out = options.out or Path(default)
    check_directory("--out", options.out)
    check_output("--json", options.json)
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def write_told(options: argparse.Namespace, told: Result) -> None:
    """Write ``--json``, if it is wanted."""
    from safe_sysid.studies.campaign.results import write_summary

    if options.json is not None:
        write_summary(options.json, told)


def run_trials(
    campaign: Campaign,
    total: int,
    file: Path,
    options: argparse.Namespace,
    console: Console,
    summarise: Callable[[list[Result]], Result],
    show: Callable[[Result, list[Result]], None],
    draw: Callable[[Result, list[Result]], Iterable[object]] = lambda told, found: (),
    what: str = "trial",
    name: Callable[[int], str] = lambda index: "",
    chunk: int = 1,
    take: Callable[[Result], Result] = lambda result: result,
) -> int:
    """Run the trials that are missing, write and show what they say, draw it; returns the exit status.

    Args:
        file: of results as they come; trials in it that raised run again.
        summarise: results to the content of ``--json``.
        draw: paths of what it has drawn; not called after Ctrl-C.
        name: of a trial, for people.
        chunk: trials that a worker takes at once.
        take: puts away what does not belong in the file; returns what does.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    found, interrupted = collect(
        campaign, total, file, lambda result: "error" not in result, options,
        chunk=chunk, take=take, redo=lambda result: "error" in result,
    )  # fmt: skip
    told = summarise(found)
    write_told(options, told)
    errors: dict[str, list[int]] = {}
    for result in found:
        if "error" in result:
            errors.setdefault(" ".join(result["error"].split()), []).append(result["index"])
    for error, (first, *others) in errors.items():
        more = f" and {len(others)} more" if others else ""
        console.print(f"{what} {first}{name(first)}{more}: {error}", soft_wrap=True, markup=False)
    show(told, found)
    if interrupted:
        console.print(
            f"interrupted after {len(found)} of {total} {what}s; go on with --resume (results in {file.parent})",
            soft_wrap=True,
        )
        return 130
    for path in draw(told, found):
        console.print(f"wrote {path}", soft_wrap=True)
    return 1 if errors else 0
