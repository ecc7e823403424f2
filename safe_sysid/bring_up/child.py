"""``python -m safe_sysid.bring_up.child NODE ...``: a node that ends with its parent, even if that is killed."""

from __future__ import annotations

import os
import runpy
import signal
import sys

from safe_sysid.parent import end_with_parent

__all__ = ["main"]

PARENT = "SAFE_SYSID_DEMO_PID"


def main() -> None:
    """Become the node that the first argument names."""
    name = sys.argv[1]
    if not end_with_parent(int(os.environ.get(PARENT, os.getppid())), signal.SIGTERM):
        sys.exit(1)  # it was gone before we asked
    sys.argv[:] = [name, *sys.argv[2:]]
    runpy.run_module(f"safe_sysid.nodes.{name}.node", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
