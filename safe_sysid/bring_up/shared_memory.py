"""Removal of shared memory in /dev/shm that killed nodes leave behind."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["mapped_segments", "port_segments", "remove_leftovers"]

_DIRECTORY = Path("/dev/shm")
_PORT = re.compile(r"fastrtps_port\d+|sem\.fastrtps_port\d+_mutex")  # not the lock files: those are never mapped
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
    """Remove segments (with their lock files) that nobody uses; returns what was removed.

    Call it when this process has left the network: what it still has in its memory does not count, what it has locked
    does. Locks are also seen where processes are not: in another container that shares /dev/shm.
    """
    if not segments:
        return []
    others = (int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid())
    used = mapped_segments(others)
    removed = []
    for name in sorted(segments):
        # A port's mutex is nowhere mapped while nobody opens the port, and belongs to it all the same.
        port = name.removeprefix("sem.").removesuffix("_mutex")
        if {name, port} & used or _is_locked(port):
            continue
        for path in (_DIRECTORY / name, _DIRECTORY / f"{name}_el"):
            with suppress(OSError):
                if path.stat().st_uid == os.getuid():
                    path.unlink()
                    removed.append(path.name)
    return removed


def _is_locked(segment: str) -> bool:
    """Whether a living process owns it: the middleware holds a lock on a file beside it for that long."""
    for suffix in ("_el", "_sl"):  # exclusive, shared
        try:
            descriptor = os.open(_DIRECTORY / f"{segment}{suffix}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError:
            return True  # somebody else's
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
    return False
