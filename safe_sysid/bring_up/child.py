"""``python -m safe_sysid.bring_up.child NODE ...``: a node that ends with its parent, even if that is killed."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Sequence

from safe_sysid.parent import end_with_parent, name_process

__all__ = ["PARENT", "become_node"]

PARENT = "SAFE_SYSID_DEMO_PID"


def become_node(name: str, arguments: Sequence[str]) -> None:
    """Run the node ``name`` as its executable would, until it ends.

    Raises SystemExit: with its status, at its end.
    """
    name_process(name)
    sys.argv[:] = [name, *arguments]
    runpy.run_module(f"safe_sysid.nodes.{name}.node", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if not end_with_parent(int(os.environ.get(PARENT, os.getppid())), signal.SIGTERM):
        sys.exit(1)  # it was gone before we asked
    become_node(sys.argv[1], sys.argv[2:])
