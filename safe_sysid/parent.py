"""Child processes of this package: how they start, and how they end with their parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress

__all__ = [
    "LAUNCH",
    "ONE_THREAD",
    "SAME",
    "child_environment",
    "end_with_parent",
    "end_with_spawner",
    "name_process",
    "thread_count",
]

#: Variable with the id of a launch process: its nodes end as at SIGTERM when it dies, or leaves them alone at SIGTERM.
LAUNCH = "SAFE_SYSID_LAUNCH_PID"
#: One Ctrl-C may be told twice, by terminal and launch file: a signal this soon after the first is the same one, s.
SAME = 1.0
#: One thread each: sums must not depend on how many cores there are, and others need them too.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def child_environment() -> dict[str, str]:
    """Of a Python process that computes in one thread and finds the modules that this one finds."""
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path}


def end_with_parent(parent: int, number: int) -> bool:
    """Ask the kernel (of Linux) for a signal when the parent is gone; returns whether it is there.

    ``parent``: process id of the parent as it was when it started us: it may have gone before we ask.
    """
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    except (AttributeError, OSError):
        return True
    return os.getppid() == parent


def end_with_spawner() -> None:
    """Call first in a worker of multiprocessing: it dies with who started it, even if that was killed."""
    spawner = multiprocessing.parent_process()
    if spawner is not None and spawner.pid is not None and not end_with_parent(spawner.pid, signal.SIGKILL):
        os._exit(1)


def name_process(name: str) -> None:
    """What ``ps -e`` and ``top`` show of this process: at most 15 bytes. Forks have their command line in common."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def thread_count() -> int:
    """Threads of this process, those of libraries, too: a fork has one of them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()
