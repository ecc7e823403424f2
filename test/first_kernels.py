"""``python first_kernels.py 0|1``: compile what many tests need, each half in a process of its own.

Before the first worker begins: else each of three would compile most of it for itself.
"""

from __future__ import annotations

import sys


def identification() -> None:
    """Equations, bounds, estimates, and what checks their certificates."""
    from frozen_set import LOGS, log_outcome

    log_outcome(next(case for case in LOGS if case.checked and case.arm == "three_joint"))


def run() -> None:
    """Plans and their certificates, laws, the simulated arm."""
    import safe_sysid

    safe_sysid.simulate(safe_sysid.load_arm("three_joint"), plans=1)


if __name__ == "__main__":
    (identification, run)[int(sys.argv[1])]()
