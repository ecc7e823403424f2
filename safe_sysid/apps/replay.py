"""Output of ``safe-sysid replay``: one line per update, differences, and an exit status."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_sysid.apps.progress import bar
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.decimals import bracketed
from safe_sysid.errors import SafeSysIdError
from safe_sysid.logs.bags.bag_recovery import recover_bag
from safe_sysid.logs.bags.replay_bag import replay_bag
from safe_sysid.logs.online.replay import ReplayResult

__all__ = ["recover", "replay"]

_MOST_ROWS, _MOST_LINES = 30, 20


def recover(bag: Path, out: Path, quiet: bool) -> int:
    """Write what an unfinished recording holds as a new bag, into a new directory; returns the exit status."""
    with bar("reading", quiet) as progress:
        count = recover_bag(bag, out, progress)
    print(f"{out}: {count} messages")
    return 0


def replay(
    bag: Path,
    *,
    node: str | None = None,
    robot: str | None = None,
    topic: str | None = None,
    files: Mapping[str, Path | None] | None = None,
    json_file: Path | None = None,
    quiet: bool = False,
) -> int:
    """Run the identifications of a bag again and say what came of it.

    Returns the exit status: 0 bit for bit the same, 1 something differs, or the bag is incomplete.

    Raises SafeSysIdError: nothing could be run again.

    Args:
        node: one identifier; None for all.
        robot: that stands for the run's.
        files: ``tare`` and ``bounds`` that stand for the run's.
        json_file: where the result is written too.
        quiet: only the last line.
    """
    console, began = Console(soft_wrap=True), time.monotonic()
    with bar("running again", quiet) as progress:
        results = replay_bag(bag, node, robot, topic, files, progress)
    for result in results:
        if not quiet:
            _show(console, result)
    seconds = time.monotonic() - began
    if json_file is not None:
        try:
            json_file.write_text(
                json.dumps([{**asdict(result), "parameters": PAYLOAD_NAMES} for result in results], indent=1)
            )
        except OSError as error:
            raise SafeSysIdError(f"--json {json_file}: {error.strerror}: expected a file that can be written") from None
    return _last_line(console, bag, results, seconds)


def _show(console: Console, result: ReplayResult) -> None:
    mode = {True: ", lock-step", False: ", real time", None: ""}[result.lockstep]
    title = f"{result.node}: {result.robot}{mode}; {result.samples} samples, {result.entries} journal entries"
    table = Table(title=title, title_justify="left")
    for name in ("time, s", "batch", "box", "mass, kg", "again"):
        table.add_column(name, justify="right")
    shown = result.updates
    for update in shown[: _MOST_ROWS // 2] + shown[max(_MOST_ROWS // 2, len(shown) - _MOST_ROWS // 2) :]:
        table.add_row(
            f"{update.time:.3f}", "" if update.batch is None else str(update.batch), update.box,
            bracketed(update.lower[0], update.upper[0], 3).replace("[", "\\["),
            "bit for bit" if update.identical else Text("DIFFERS", style="bold red"),
        )  # fmt: skip
    console.print(table)
    if len(shown) > _MOST_ROWS:
        console.print(f"{len(shown) - _MOST_ROWS} updates in between are not shown")
    for problem in result.problems[:_MOST_LINES]:
        console.print(Text(f"differs: {problem}", style="red"))
    if result.differences > _MOST_LINES:
        console.print(f"and {result.differences - _MOST_LINES} more differences")
    for gap in result.gaps:
        console.print(Text(f"incomplete: {gap}", style="red"))
    for note in result.notes:
        console.print(Text(f"note: {note}"))


def _last_line(console: Console, bag: Path, results: Sequence[ReplayResult], seconds: float) -> int:
    updates = sum(len(result.updates) for result in results)
    for word, kind in (("DIFFERS", "problems"), ("INCOMPLETE", "gaps")):
        found = [(result.node, getattr(result, kind)) for result in results if getattr(result, kind)]
        if found:
            node, lines = found[0]
            more = sum(len(others) for _, others in found) - 1
            text = f"safe-sysid replay: {word}: {node}: {lines[0]}" + (f" (and {more} more)" if more else "")
            again = f"; {updates} update{'s' * (updates != 1)} came out again" if kind == "gaps" else ""
            print(text + again, file=sys.stderr)
            return 1
    words = f"{updates} update{'s' * (updates != 1)} of {len(results)} identifier{'s' * (len(results) != 1)}"
    text = f"{bag}: {words} bit for bit the same"
    console.print(Text(f"{text}, in {seconds:.1f} s", style="bold green"))
    return 0
