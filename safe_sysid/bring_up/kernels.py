"""Progress of numba's compilation, which takes most of a first start."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["CompilationNotice", "compiled_kernels", "telling"]

_EVERY = 5.0  # s between two notices


def compiled_kernels() -> int:
    """Number of compiled kernels of this package in numba's cache."""
    package = Path(__file__).resolve().parent.parent
    places = {package}
    if os.environ.get("NUMBA_CACHE_DIR"):
        places = {Path(os.environ["NUMBA_CACHE_DIR"])}
    elif not os.access(package, os.W_OK):
        places = {Path.home() / ".cache" / "numba"}
    return sum(1 for place in places for _ in place.rglob("*.nbc"))


class CompilationNotice:
    """Says now and then what is waited for, and that kernels are being compiled if they are."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """``say`` gets the lines."""
        self._say, self._began = say, time.monotonic()
        self._last, self._before = self._began, compiled_kernels()

    def restart(self) -> None:
        """There was news: wait anew before speaking."""
        self._began = self._last = time.monotonic()

    def tell(self, what: str) -> None:
        """Call often; speaks every few seconds."""
        now = time.monotonic()
        if now - self._last < _EVERY:
            return
        self._last = now
        new = compiled_kernels() - self._before
        if new > 0:
            what += f"; compiling for this machine, once (a minute or two), {new} kernels so far"
        self._say(f"{what}, {now - self._began:.0f} s")


@contextmanager
def telling(say: Callable[[str], None], what: str) -> Iterator[None]:
    """Tell from a thread while the block works."""
    notice, done = CompilationNotice(say), threading.Event()

    def run() -> None:
        while not done.wait(0.5):
            notice.tell(what)

    thread = threading.Thread(target=run, name="notice", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
