"""``python first_kernels.py 0|1``: compile what many tests need, each half in a process of its own.

Before the first worker begins: else each of three would compile most of it for itself.
"""

from __future__ import annotations

import sys

import numpy as np


def identification() -> None:
    """Equations, bounds, estimates, and what checks their certificates; then what a search for plans needs last."""
    from frozen_set import LOGS, log_outcome

    from safe_sysid.planning.costs.excitation import payload_regressor_gradient
    from safe_sysid.planning.distances.proximity import Proximity
    from safe_sysid.robot import load_robot, load_scene
    from safe_sysid.robot.frames import forward_kinematics

    log_outcome(next(case for case in LOGS if case.checked and case.arm == "three_joint"))
    model = load_robot("three_joint")
    q = np.zeros((1, model.n))
    payload_regressor_gradient(model.kinematics, q, q, q, np.zeros((1, model.n, 10)))
    Proximity.build(model, load_scene("six_boxes"), 0.0).distances(*forward_kinematics(model.kinematics, q), q[0])


def run() -> None:
    """Plans and their certificates, laws, the simulated arm."""
    import safe_sysid

    safe_sysid.simulate(safe_sysid.load_arm("three_joint"), plans=1)


if __name__ == "__main__":
    (identification, run)[int(sys.argv[1])]()
