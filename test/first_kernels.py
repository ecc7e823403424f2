"""``python first_kernels.py 0|1``: compile what many tests need, each half in a process of its own.

Before the first worker begins: else each of three would compile most of it for itself.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np


def identification_and_loops() -> None:
    """Equations, bounds, estimates; closed chains."""
    from safe_sysid.apps.rehearsal import rehearse_identifier
    from safe_sysid.dynamics.closed_chain import load_mechanism
    from safe_sysid.robot import load_robot

    rehearse_identifier(load_robot("kinova_gen3"))
    loops = load_mechanism("palletiser")
    still = np.zeros((2, len(loops.actuated)))
    loops.regressor(loops.motion(still, still, still))


def run_and_certificates() -> None:
    """Plans and their certificates, laws, the simulated arm; then what checks certificates of bounds."""
    import safe_sysid

    run = safe_sysid.simulate(safe_sysid.load_arm("three_joint"), plans=1)
    with tempfile.TemporaryDirectory(prefix="safe_sysid_test_") as folder:
        safe_sysid.verify(safe_sysid.identify(run.arm, run.log, folder=f"{folder}/found").folder)


if __name__ == "__main__":
    (identification_and_loops, run_and_certificates)[int(sys.argv[1])]()
