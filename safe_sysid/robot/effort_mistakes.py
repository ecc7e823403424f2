"""What efforts may be instead of what was declared: one list for the check at rest and for the checks of logs.

Both try these until what is impossible becomes possible; each has its own evidence: one pose and a box of parameters
(:mod:`safe_sysid.control.checks`), or the windows of a log (:mod:`safe_sysid.logs.effort_checks`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.robot.model import RobotModel

__all__ = ["other_source", "wrong_units"]


def wrong_units(model: RobotModel) -> dict[str, NDArray[np.float64]]:
    """By the unit that efforts may be in: factors (n,) that make N m of them."""
    one, limit = np.ones(model.n), np.asarray(model.limits.torque)
    return {
        "mN m": 1e-3 * one,
        "kN m": 1e3 * one,
        "kgf m": 9.80665 * one,
        "per cent of the torque limit": 0.01 * limit,
        "fractions of the torque limit": limit,
    }


def other_source(declared: str) -> str:
    """The torque source on the other side of the gears: ``command`` and ``motor`` are on one."""
    return "motor" if declared == "link" else "link"
