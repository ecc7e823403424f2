r"""Reaching a goal: how far the end of a trajectory is from it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.robot.parameters import frozen_array

__all__ = ["GoalCost"]


@dataclass(frozen=True, eq=False)
class GoalCost:
    r"""``sqrt(1 + |d|^2) - 1`` with ``d = (end(k) - goal) / k_range``: a paraboloid near the goal, a cone far from it.

    Far away, one full step (k_range) nearer is worth one unit, as "e times narrower" is for the excitation costs;
    convex, and its second derivative is exact and positive definite. Its minimiser under any constraints is that of
    the distance itself.
    """

    family: TrajectoryFamily
    goal: FloatArray  #: (n,) joint positions, rad
    #: (n,) bool: joints of which only the angle modulo a turn matters; the goal is taken in the branch that is nearest
    #: to where k = 0 ends
    continuous: BoolArray
    _offset: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate, choose the branch.

        Raises:
            ParameterError: a goal of another shape, or one that is not finite.
        """
        goal = frozen_array(self.goal, (self.family.n,), "goal")
        away = self.family.centre - goal
        away = np.where(self.continuous, away - 2.0 * np.pi * np.round(away / (2.0 * np.pi)), away)
        object.__setattr__(self, "goal", goal)
        object.__setattr__(self, "_offset", away / self.family.k_range)

    def distance(self, k: FloatArray) -> FloatArray:
        """What is missing (n,), in units of k_range."""
        return self._offset + np.asarray(k, float)

    def value(self, k: FloatArray) -> float:
        """The cost."""
        return self.value_and_gradient(k)[0]

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """The cost and its derivative (n,)."""
        d = self.distance(k)
        square = float(d @ d)
        root = float(np.sqrt(1.0 + square))
        return square / (root + 1.0), d / root

    def gauss_newton(self, k: FloatArray) -> FloatArray:
        """The exact second derivative (n, n)."""
        d = self.distance(k)
        root = np.sqrt(1.0 + d @ d)
        return np.asarray(np.eye(len(d)) / root - np.outer(d, d) / root**3, dtype=np.float64)
