"""What the user sees while the environment is made."""

from __future__ import annotations

import os
import shutil
import sys
import time

HEARTBEAT = 5.0  # seconds between progress lines where the output is not a terminal


class Progress:
    """Tells what is going on: one moving line on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last = self._start
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        print(f"safe-sysid: {text}", file=sys.stderr, flush=True)
        self._last = time.monotonic()

    def tick(self, text: str) -> None:
        """What is being done now; cheap to call often."""
        now = time.monotonic()
        if not self._live and now - self._last < HEARTBEAT:
            return
        line = f"  [{now - self._start:4.0f} s] {text}"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + line[:width], end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            print(line, file=sys.stderr, flush=True)
        self._last = now

    def clear(self) -> None:
        """Remove the moving line, if there is one."""
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._drawn = False

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start


class SetupError(Exception):
    """The environment cannot be made; the text says why and what helps."""
