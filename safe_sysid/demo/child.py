"""``python -m safe_sysid.demo.child NODE ...``: a node that ends when the demo ends, even if the demo is killed."""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
PARENT = "SAFE_SYSID_DEMO_PID"


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the demo is gone (Linux; elsewhere nothing happens)."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    except (AttributeError, OSError):
        return
    if str(os.getppid()) != os.environ.get(PARENT, str(os.getppid())):
        sys.exit(1)  # it was gone before we asked


def main() -> None:
    """Become the node that the first argument names."""
    name = sys.argv[1]
    die_with_parent()
    sys.argv[:] = [name, *sys.argv[2:]]
    runpy.run_module(f"safe_sysid.nodes.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
