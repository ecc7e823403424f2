"""What the optimiser asks of a cost, and the sample times that all of them use."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import PlanError
from safe_sysid.planning.family import TrajectoryFamily

__all__ = ["Cost", "check_horizon", "midpoints", "psd_hessian"]

FloatArray = NDArray[np.float64]


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


def psd_hessian(cost: Cost, k: FloatArray, step: float = 1e-4) -> FloatArray:
    """Second derivative (n, n) of a cost by differences of its exact gradient, made positive semidefinite.

    Curvature along which the cost bends down is taken as its absolute value: a step along it is then as long as a
    quadratic of the same size would allow. Costs n + 1 gradients; meant to start a quasi-Newton method with.

    Args:
        cost: to differentiate.
        k: (n,) where.
        step: of the differences.
    """
    k = np.asarray(k, float)
    centre = cost.value_and_gradient(k)[1]
    # Inwards, so that only parameters in [-1, 1] are asked for.
    signs = np.where(k > 0.0, -1.0, 1.0)
    rows = [
        (cost.value_and_gradient(k + s * step * direction)[1] - centre) / (s * step)
        for s, direction in zip(signs, np.eye(len(k)), strict=True)
    ]
    hessian = np.array(rows)
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return np.asarray((vectors * np.abs(values)) @ vectors.T, dtype=np.float64)
