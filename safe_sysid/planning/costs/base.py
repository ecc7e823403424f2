"""Interface of costs, and the sample times that all of them use."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.optimiser.family import TrajectoryFamily

__all__ = ["Cost", "check_horizon", "midpoints"]


class Cost(Protocol):
    """A number to minimise over the trajectories of a family."""

    @property
    def family(self) -> TrajectoryFamily:
        """The trajectories that k selects from."""
        ...

    def value(self, k: FloatArray) -> float:
        """Cost of the parameter k (n,)."""
        ...

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """Cost of k and its derivative (n,)."""
        ...

    def gauss_newton(self, k: FloatArray) -> FloatArray | None:
        """Positive semidefinite stand-in (n, n) for the second derivative, None where there is none for free."""
        ...


def midpoints(horizon: float, count: int) -> FloatArray:
    """Midpoints (count,) of equal cells of [0, horizon], s."""
    return np.asarray((np.arange(count) + 0.5) * (horizon / count), dtype=np.float64)


def check_horizon(horizon: float, family: TrajectoryFamily) -> None:
    """Raise :class:`PlanError` unless the horizon lies within the trajectories' duration."""
    if not 0.0 < horizon <= family.duration:
        raise PlanError(f"cost horizon {horizon!r} s: expected (0, {family.duration}]")
