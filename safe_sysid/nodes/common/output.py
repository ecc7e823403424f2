"""Output of a node: limits how often a line is repeated, and writes to stdout in a thread, so that no loop waits.

ROS loggers write with Python's lock held, so a blocked line would stall every thread of the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import sys
import threading
from dataclasses import dataclass

__all__ = ["LogPauses", "OutputPump"]


#: Between two lines of one kind, s: at first, and at most. A kind that was silent for the longest begins anew.
_FIRST, _LONGEST = 1.0, 60.0


@dataclass
class _LineRate:
    """When a kind of line was written and wanted last, s, and how long the next has to wait."""

    written: float
    wanted: float
    pause: float = _FIRST


class LogPauses:
    """The pause between two lines of a kind doubles with each of them."""

    def __init__(self) -> None:
        self._kinds: dict[str, _LineRate] = {}

    def is_due(self, name: str, now: float) -> bool:
        """Whether a line of this kind is to be written now; then the next has to wait.

        ``name``: of the kind; there are few of them; ``now``: s, on a clock that never goes back.
        """
        kind = self._kinds.get(name)
        if kind is None or now - kind.wanted > _LONGEST:
            self._kinds[name] = _LineRate(now, now)
            return True
        kind.wanted = now
        if now - kind.written < kind.pause:
            return False
        kind.written, kind.pause = now, min(2.0 * kind.pause, _LONGEST)
        return True

    def forget(self) -> None:
        """Every kind begins anew."""
        self._kinds.clear()


_SIZE = 1 << 20  # bytes that may wait; what comes beyond that is lost


class OutputPump:
    """Puts a pipe that never blocks before stdout and stderr, and a thread behind it that may."""

    def __init__(self) -> None:
        self._pumps: list[tuple[int, int, threading.Thread]] = []
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):  # closed: nobody listens
                self._put_before(descriptor)
        if self._pumps:
            # A crash leaves no time for a pump.
            faulthandler.enable(self._pumps[-1][1])

    def _put_before(self, descriptor: int) -> None:
        original = os.dup(descriptor)
        reader, writer = os.pipe()
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _SIZE)
        os.set_blocking(writer, False)
        os.dup2(writer, descriptor)
        os.close(writer)
        thread = threading.Thread(target=self._pump, args=(reader, original), name="safe_sysid output", daemon=True)
        thread.start()
        self._pumps.append((descriptor, original, thread))

    @staticmethod
    def _pump(reader: int, original: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(reader, 65536):
                while data:
                    data = data[os.write(original, data) :]

    def close(self, patience: float = 1.0) -> None:
        """Print directly again; what waits is printed first, if that takes no longer than ``patience`` (s)."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for descriptor, original, thread in self._pumps:
            os.dup2(original, descriptor)  # closes the pipe's writing end: the pump ends when it is empty
            thread.join(patience)
        self._pumps = []
        faulthandler.enable()
