"""Progress on stderr: bars, steps and lines that say how much is done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["bar", "lines", "steps"]

_PERIOD = 10.0  # s between lines where nobody can draw


@contextmanager
def bar(what: str, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """One step of :func:`steps`, which is told the share that is done."""
    with steps(what, quiet) as tell:
        yield lambda share: tell(what, share)


@contextmanager
def steps(what: str, quiet: bool = False) -> Iterator[Callable[[str, float | None], None]]:
    """A bar on a terminal, elsewhere a line every 10 s; yields what takes the step's name, and the share that is done.

    ``what``: the first step; ``quiet``: show nothing.
    """
    console, now = Console(stderr=True, highlight=False), what
    if not quiet and not console.is_terminal:
        with lines(lambda: now):

            def note(what: str, share: float | None) -> None:
                nonlocal now
                now = what if share is None else f"{what}: {share:.0%}"

            yield note
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=quiet) as shown:
        task = shown.add_task(what, total=None)
        yield lambda what, share: shown.update(
            task, description=what, total=None if share is None else 1.0, completed=share or 0.0
        )


@contextmanager
def lines(text: Callable[[], str]) -> Iterator[None]:
    """Within, a line on stderr every 10 s, of a thread of its own: no step is too long for it."""
    done = threading.Event()

    def say() -> None:
        while not done.wait(_PERIOD):
            print(text(), file=sys.stderr, flush=True)

    thread = threading.Thread(target=say, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
