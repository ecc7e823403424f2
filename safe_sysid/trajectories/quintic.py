"""Piecewise quintic joint trajectories through knots (t, q, qd, qdd); their ranges: :mod:`.extrema`.

Two knots with position, velocity and acceleration define a quintic exactly, so a JointTrajectory message with two or
three points *is* the trajectory; nothing is resampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.robot.parameters import frozen_array

__all__ = ["QuinticTrajectory"]


def _segment(duration: float, start: FloatArray, end: FloatArray) -> FloatArray:
    """Coefficients (n, 6), ascending in local time, of the quintic with given ends (3, n): q, qd, qdd."""
    q0, v0, a0 = start
    q1, v1, a1 = end
    h = duration
    dq = q1 - q0 - v0 * h - 0.5 * a0 * h * h
    dv = v1 - v0 - a0 * h
    da = a1 - a0
    c3 = (10 * dq - 4 * dv * h + 0.5 * da * h * h) / h**3
    c4 = (-15 * dq + 7 * dv * h - da * h * h) / h**4
    c5 = (6 * dq - 3 * dv * h + 0.5 * da * h * h) / h**5
    return np.stack([q0, v0, 0.5 * a0, c3, c4, c5], axis=-1)


@njit(cache=True)
def _state(times: FloatArray, coefficients: FloatArray, end: FloatArray, t: float, out: FloatArray) -> None:
    """Horner's scheme for position .. jerk; compiled, because it runs in the control loop."""
    if t >= times[-1]:
        for j in range(end.size):
            out[0, j] = end[j]
        out[1:] = 0.0
        return
    s = 0
    while s + 1 < coefficients.shape[0] and t >= times[s + 1]:
        s += 1
    x = max(t - times[s], 0.0)
    for j in range(coefficients.shape[1]):
        for order in range(4):
            value = 0.0
            for i in range(5, order - 1, -1):
                factor = 1.0
                for k in range(i - order + 1, i + 1):
                    factor *= k
                value = value * x + coefficients[s, j, i] * factor
            out[order, j] = value


@dataclass(frozen=True, eq=False)
class QuinticTrajectory:
    """Quintic segments through 2 or more knots; holds the last position after the end."""

    times: FloatArray  #: (K,) knot times from 0, s, strictly increasing
    knots: FloatArray  #: (K, 3, n) position, velocity, acceleration at the knots; the last one at rest
    coefficients: FloatArray = field(init=False, repr=False)  #: (K-1, n, 6) ascending powers of local time

    def __post_init__(self) -> None:
        """Validate, solve for the coefficients, freeze.

        Raises:
            PlanError: fewer than two knots, times not increasing from 0, or the end not at rest.
        """
        times = frozen_array(self.times, None, "trajectory times")
        knots = frozen_array(self.knots, None, "trajectory knots")
        if times.ndim != 1 or len(times) < 2 or knots.ndim != 3 or knots.shape[:2] != (len(times), 3):
            raise PlanError(f"knots {knots.shape} at times {times.shape}: expected (K, 3, n) at (K,), K >= 2")
        if times[0] != 0.0 or np.any(np.diff(times) < 1e-6):
            raise PlanError(f"trajectory times {times.tolist()}: expected 0 first, then increasing by 1e-6 s or more")
        if np.any(knots[-1, 1:] != 0.0):
            raise PlanError("last knot: expected velocity and acceleration zero, the arm must end at rest")
        coefficients = np.stack(
            [_segment(times[i + 1] - times[i], knots[i], knots[i + 1]) for i in range(len(times) - 1)]
        )
        coefficients.setflags(write=False)
        for name, value in (("times", times), ("knots", knots), ("coefficients", coefficients)):
            object.__setattr__(self, name, value)

    @classmethod
    def to_rest(cls, start: ArrayLike, goal: ArrayLike, duration: float) -> QuinticTrajectory:
        """One quintic from ``start`` (3, n) to rest at ``goal`` (n,) after ``duration`` s."""
        start = np.asarray(start, float)
        end = np.zeros_like(start)
        end[0] = goal
        return cls(np.array([0.0, duration]), np.stack([start, end]))

    @classmethod
    def hold(cls, q: ArrayLike, duration: float = 1.0) -> QuinticTrajectory:
        """Rest at ``q`` (n,)."""
        q = np.asarray(q, float)
        return cls.to_rest(np.stack([q, 0 * q, 0 * q]), q, duration)

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.knots.shape[2])

    @property
    def duration(self) -> float:
        """Time of the last knot, s."""
        return float(self.times[-1])

    def state(self, t: float) -> FloatArray:
        """(4, n): position, velocity, acceleration, jerk at time ``t`` s; rest outside of [0, duration]."""
        out = np.empty((4, self.n))
        _state(self.times, self.coefficients, self.knots[-1, 0], t, out)
        return out

    def states(self, t: ArrayLike) -> FloatArray:
        """(N, 4, n) states at times (N,)."""
        return np.stack([self.state(float(x)) for x in np.atleast_1d(t)])
