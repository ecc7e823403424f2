"""Scaling of gains, so that one bandwidth serves joints of any size."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import RobotModel

__all__ = ["joint_inertia"]


def joint_inertia(model: RobotModel) -> FloatArray:
    """Diagonal of the nominal H at home (n,), kg m^2, rotors included."""
    home = np.asarray(model.settings.home, float)
    inertia = np.empty(model.n)
    for j in range(model.n):
        unit = np.zeros(model.n)
        unit[j] = 1.0
        inertia[j] = np.ravel(dynamics_of(model.kinematics).momentum_regressor(home, unit) @ model.theta_nominal)[j]
    return inertia
