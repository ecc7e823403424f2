"""Code shared by commands with many trials: where trials run, resuming, progress, Ctrl-C."""

from __future__ import annotations

import argparse
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.shared.arguments import at_least

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from safe_sysid.studies.campaign.runner import Campaign

__all__ = ["add_places", "collect", "one_thread", "show_table"]

#: s after a Ctrl-C in which others change nothing.
_IMPATIENCE = 2.0

Result = dict[str, Any]


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs`` and ``--scheduler``."""
    where = parser.add_argument_group("where it runs").add_mutually_exclusive_group()
    where.add_argument(
        "--jobs", type=at_least(0), default=0, metavar="J", help="processes; 0 for one per core (default)"
    )
    where.add_argument("--scheduler", metavar="ADDRESS", help="Dask scheduler, as tcp://host:8786, instead")


def one_thread() -> None:
    """Linear algebra on one thread, as in every worker; before numpy is imported for the first time."""
    from safe_sysid.studies.campaign.runner import THREAD_VARIABLES

    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")


def collect(
    campaign: Campaign,
    total: int,
    out: Path | None,
    is_sound: Callable[[Result], bool],
    options: argparse.Namespace,
    chunk: int | None = None,
    take: Callable[[Result], Result] = lambda result: result,
    redo: Callable[[Result], bool] = lambda result: False,
) -> tuple[list[Result], bool]:
    """Run the trials that are missing, show how far things are, keep every result that there is.

    Returns results by index, those of an earlier run included, and whether Ctrl-C (or SIGTERM) came before the end.

    Args:
        total: trials 0 .. total - 1.
        out: file of results as they come; None to keep none.
        is_sound: whether nothing is wrong with a trial, for the progress bar.
        options: of the command line: ``jobs``, ``scheduler`` and ``resume``.
        chunk: trials that a worker takes at once; None for the runner's choice.
        take: puts away what does not belong in the file; returns what does.
        redo: whether a result of an earlier run is not to be kept but run again.

    Raises:
        CampaignError: the file is that of another campaign or exists and is not to be continued, a worker died, or
            a cluster does not answer.
    """
    from rich.console import Console

    from safe_sysid.studies.campaign.results import ResultFile

    trials: dict[int, Result] = {}
    interrupted = False
    file = ResultFile(out, campaign.header(), options.resume) if out is not None else None
    try:
        if file is not None:
            trials |= {i: trial for i, trial in file.done.items() if i < total and not redo(trial)}
        missing = [i for i in range(total) if i not in trials]
        console = Console(stderr=True)
        with _stopping(console):
            parts = _executed(campaign, missing, options, {} if chunk is None else {"chunk": chunk})
            with closing(_shown(parts, is_sound, total, len(trials), console)) as shown:
                for results in shown:
                    results = [take(result) for result in results]
                    trials |= {result["index"]: result for result in results}  # first: what is in the file is told
                    if file is not None:
                        file.append(results)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if file is not None:
            file.__exit__(None, None, None)
    return [trials[i] for i in sorted(trials)], interrupted


def show_table(console: Console, table: Table) -> None:
    """Print a table, its title and caption on lines of their own: a narrow table would break them up.

    ``console``: where to; ``table``: with or without them; they are taken from it.
    """
    title, caption = table.title, table.caption
    table.title = table.caption = None
    for what in (title, table, caption):
        if isinstance(what, str):
            console.print(what, soft_wrap=True, markup=False, style="italic")
        elif what is not None:
            console.print(what)


@contextmanager
def _stopping(console: Console) -> Iterator[None]:
    """Within, Ctrl-C and what a batch system sends at the end of its patience are answered at once, and stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first = -math.inf

    def stop(*_: object) -> None:
        nonlocal first
        now = time.monotonic()
        if now - first < _IMPATIENCE:
            return  # stopping takes moments; whoever hits the keys twice must not break it off
        if first == -math.inf:
            with suppress(RuntimeError):  # in the middle of another output: the exit tells
                console.print("interrupted: stopping", soft_wrap=True)
        first = now
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _executed(
    campaign: Campaign, indices: list[int], options: argparse.Namespace, chunk: dict[str, int]
) -> Iterator[list[Result]]:
    from safe_sysid.studies.campaign import runner

    campaign.function()  # what cannot be imported is said here, once
    if not indices:
        return iter(())
    if options.scheduler:
        return runner.in_dask(campaign, indices, options.scheduler, **chunk)
    jobs = options.jobs or os.cpu_count() or 1
    return runner.in_processes(campaign, indices, min(jobs, len(indices)), **chunk)


def _shown(
    parts: Iterator[list[Result]], is_sound: Callable[[Result], bool], total: int, done: int, console: Console
) -> Generator[list[Result], None, None]:
    """Pass results on and show how far things are; closes the source in any case, so that workers end."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from safe_sysid.apps.progress import lines

    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[wrong]}"),
    )  # fmt: skip
    new = wrong = 0
    plain = nullcontext() if console.is_terminal else lines(lambda: f"{done + new} of {total} trials, {wrong} wrong")
    with plain, Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("trials", total=total, completed=done, rate="", wrong="")
        try:
            for results in parts:
                yield results
                new += len(results)
                wrong += sum(not is_sound(result) for result in results)
                elapsed = progress.tasks[0].elapsed or 1e-9
                progress.update(
                    task, advance=len(results), rate=f"{new / elapsed:.1f}/s",
                    wrong=f"[bold red]{wrong} wrong" if wrong else "",
                )  # fmt: skip
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
