"""Parts that several laws share: the time between steps, and the inertia that gains are scaled by."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import RobotModel

__all__ = ["StepTime", "joint_inertia"]


def joint_inertia(model: RobotModel) -> FloatArray:
    """Diagonal of the nominal H at home (n,), kg m^2, rotors included."""
    home = np.asarray(model.settings.home, float)
    inertia = np.empty(model.n)
    for j in range(model.n):
        unit = np.zeros(model.n)
        unit[j] = 1.0
        inertia[j] = np.ravel(dynamics_of(model.kinematics).momentum_regressor(home, unit) @ model.theta_nominal)[j]
    return inertia


class StepTime:
    """Time since the step before, never negative, and bounded: after a gap nothing is integrated that was not seen."""

    def __init__(self, longest: float) -> None:
        """``longest``: s."""
        self._longest = longest
        self._last: float | None = None

    def reset(self) -> None:
        """The next step is the first."""
        self._last = None

    @property
    def is_first(self) -> bool:
        """Whether no step was made since the reset."""
        return self._last is None

    def since_last(self, t: float) -> float:
        """Time since the last call, s; 0 at the first after a reset. ``t``: now, s."""
        last, self._last = self._last, t
        return 0.0 if last is None else min(max(t - last, 0.0), self._longest)
