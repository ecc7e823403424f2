"""What the middleware leaves in /dev/shm when a node is killed, found and removed: of this run only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["domain_segments", "mapped_segments", "remove_leftovers"]

_DIRECTORY = Path("/dev/shm")
_PORT = re.compile(r"(?:sem\.)?fastrtps_port(\d+)(?:_el|_mutex)?")
_PORT_BASE, _PORTS_PER_DOMAIN = 7400, 250  # RTPS 2.2, section 9.6.1.1
_SEGMENT = re.compile(r"/dev/shm/((?:sem\.)?fastrtps_[A-Za-z0-9_]+)")


def mapped_segments(pids: Iterable[int]) -> set[str]:
    """Names of the middleware's segments that these processes have in their memory now."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            found.update(_SEGMENT.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))
    return found


def domain_segments(domain: int) -> set[str]:
    """Segments named after a port of this ROS domain: a process that was killed may have made one a moment before."""
    first = _PORT_BASE + _PORTS_PER_DOMAIN * domain
    found = set()
    for path in _DIRECTORY.glob("*fastrtps_port*"):
        match = _PORT.fullmatch(path.name)
        if match and first <= int(match[1]) < first + _PORTS_PER_DOMAIN:
            found.add(path.name)
    return found


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
