"""What the middleware leaves in /dev/shm when a node is killed, found and removed: this run's, and ports of nobody."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["mapped_segments", "port_segments", "remove_leftovers"]

_DIRECTORY = Path("/dev/shm")
_PORT = re.compile(
    r"fastrtps_port\d+|sem\.fastrtps_port\d+_mutex"
)  # not the lock files: those are never mapped
_SEGMENT = re.compile(r"/dev/shm/((?:sem\.)?fastrtps_[A-Za-z0-9_]+)")


def mapped_segments(pids: Iterable[int]) -> set[str]:
    """Names of the middleware's segments that these processes have in their memory now."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            found.update(_SEGMENT.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))
    return found


def port_segments() -> set[str]:
    """All ports of the middleware: numbered for the whole machine, so whose one was cannot be told from its name.

    A process that was killed may have made one a moment before. One that no process has in its memory is nobody's.
    """
    return {path.name for path in _DIRECTORY.glob("*fastrtps_port*") if _PORT.fullmatch(path.name)}


def remove_leftovers(segments: set[str]) -> list[str]:
    """Remove segments (with their lock files) that no other process uses; returns what was removed.

    Call it when this process has left the network: its own view of a segment does not count.
    """
    if not segments:
        return []
    others = (int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid())
    used = mapped_segments(others)
    removed = []
    for name in sorted(segments - used):
        for path in (_DIRECTORY / name, _DIRECTORY / f"{name}_el"):
            with suppress(OSError):
                if path.stat().st_uid == os.getuid():
                    path.unlink()
                    removed.append(path.name)
    return removed
