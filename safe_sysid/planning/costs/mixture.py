"""Weighted sums of costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.costs.base import Cost
from safe_sysid.planning.optimiser.family import TrajectoryFamily

__all__ = ["MixedCost"]


@dataclass(frozen=True, eq=False)
class MixedCost:
    """``sum_i weight_i cost_i`` over one family. ``terms``: (weight, cost) pairs, at least one."""

    terms: tuple[tuple[float, Cost], ...]

    @property
    def family(self) -> TrajectoryFamily:
        """The trajectories that k selects from."""
        return self.terms[0][1].family

    def value(self, k: FloatArray) -> float:
        """The cost."""
        return float(sum(weight * cost.value(k) for weight, cost in self.terms))

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """The cost and its derivative (n,)."""
        value, gradient = 0.0, np.zeros(np.size(k))
        for weight, cost in self.terms:
            part, slope = cost.value_and_gradient(k)
            value += weight * part
            gradient += weight * slope
        return float(value), gradient

    def gauss_newton(self, k: FloatArray) -> FloatArray | None:
        """The sum of the terms' (n, n); None unless every term has one."""
        parts = [(weight, cost.gauss_newton(k)) for weight, cost in self.terms]
        total = np.zeros((np.size(k), np.size(k)))
        for weight, part in parts:
            if part is None:
                return None
            total += weight * part
        return total
