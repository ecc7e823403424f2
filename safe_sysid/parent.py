"""A process that ends with the one that started it, however that one ends (Linux; elsewhere nothing happens)."""

from __future__ import annotations

import ctypes
import os

__all__ = ["LAUNCH", "SAME", "end_with_parent"]

#: Variable with the id of a launch process: its nodes end as at SIGTERM when it dies, or leaves them alone at SIGTERM.
LAUNCH = "SAFE_SYSID_LAUNCH_PID"
#: One Ctrl-C may be told twice, by terminal and launch file: a signal this soon after the first is the same one, s.
SAME = 1.0
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int) -> bool:
    """Ask the kernel for a signal when the parent is gone; returns whether it is there.

    Args:
        parent: process id of the parent as it was when it started us: it may have gone before we ask.
        number: of the signal.
    """
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    except (AttributeError, OSError):
        return True
    return os.getppid() == parent
