r"""Analytic centre of the feasible set: rows, boxes and consistency, each by its logarithmic barrier.

``min -sum log(s^2 - (a_i.z - t_i)^2) - sum log(1 - z_j^2) - log det J(payload)``, rows in units of their half width.
Newton's method on a strictly convex, self-concordant function. No feasible start is needed: s begins where the start is
inside, and is lowered as far as the last centre allows, until it is 1. An empty set stops it above 1: at the smallest
scale of the declared errors that agrees with the rows.

Memory is constant: of all rows only those that come nearest to their bounds are kept. The centre of *these* rows lies
inside all of them, but perhaps outside forgotten ones; it is an estimate and claims nothing.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.identification.estimates.projected import SCALED_UNITS

__all__ = ["NearRows", "analytic_centre"]

_STEPS = 60
_CAPACITY = 400  # rows that are kept
_CLOSER = 0.9  # of the way from s to the largest residual at its centre that one stage goes


class NearRows:
    """Rows ``|a.z - t| <= 1`` nearest to their bounds at some point; at most a fixed number."""

    def __init__(self, size: int) -> None:
        """Start empty. ``size``: number of unknowns."""
        self.matrix, self.target = np.empty((0, size)), np.empty(0)

    def add(self, matrix: FloatArray, target: FloatArray, point: FloatArray) -> None:
        """Take rows (M, P), (M,) in and keep those with the largest residual at ``point`` (P,)."""
        matrix, target = np.concatenate([self.matrix, matrix]), np.concatenate([self.target, target])
        if len(target) > _CAPACITY:
            residual = np.abs(matrix @ point - target)
            keep = np.sort(np.argpartition(-residual, _CAPACITY)[:_CAPACITY])
            matrix, target = matrix[keep], target[keep]
        self.matrix, self.target = matrix, target


def analytic_centre(
    rows: NearRows, lower: FloatArray, upper: FloatArray, body: FloatArray, offset: FloatArray, start: FloatArray
) -> tuple[FloatArray, float]:
    """Centre z (P,) and the scale s of the rows at which it is one (1 if they are consistent).

    Args:
        lower: (P,) bounds; equal to upper for what is fixed.
        upper: (P,) bounds.
        body: (10, P) linear part of the parameters that must be a body's.
        offset: (10,) constant part.
        start: (P,) strictly inside the bounds, with a strictly consistent body.
    """
    free = upper > lower
    z = start.copy()
    units = np.einsum("pij,pk->kij", SCALED_UNITS, body[:, free])
    barrier = _Barrier(rows, lower, upper, body, offset, free, units)
    scale = max(1.0, 1.5 * barrier.largest(z))
    while True:
        z = barrier.centre(z, scale)
        if scale == 1.0:
            return z, 1.0
        lowered = max(1.0, scale - _CLOSER * (scale - barrier.largest(z)))
        if lowered > (1.0 - 1e-4) * scale:
            return z, scale
        scale = lowered


class _Barrier:
    """Value, gradient and Hessian of the barrier over the free unknowns."""

    def __init__(
        self,
        rows: NearRows,
        lower: FloatArray,
        upper: FloatArray,
        body: FloatArray,
        offset: FloatArray,
        free: BoolArray,
        units: FloatArray,
    ) -> None:
        self.rows, self.lower, self.upper, self.body, self.offset = rows, lower, upper, body, offset
        self.free, self.units = free, units
        self.active = rows.matrix[:, free]

    def largest(self, z: FloatArray) -> float:
        if not len(self.rows.target):
            return 0.0
        return float(np.max(np.abs(self.rows.matrix @ z - self.rows.target)))

    def _factor(self, z: FloatArray) -> FloatArray | None:
        try:
            return np.linalg.cholesky(np.einsum("p,pij->ij", self.body @ z + self.offset, SCALED_UNITS))
        except np.linalg.LinAlgError:
            return None

    def value(self, z: FloatArray, scale: float) -> float:
        residual = self.rows.matrix @ z - self.rows.target
        low, high = (z - self.lower)[self.free], (self.upper - z)[self.free]
        if np.any(np.abs(residual) >= scale) or np.any(low <= 0.0) or np.any(high <= 0.0):
            return np.inf
        factor = self._factor(z)
        if factor is None:
            return np.inf
        logs = np.log(scale - residual).sum() + np.log(scale + residual).sum()
        return float(-logs - np.log(low).sum() - np.log(high).sum() - 2.0 * np.log(np.diag(factor)).sum())

    def centre(self, z: FloatArray, scale: float) -> FloatArray:
        value = self.value(z, scale)
        for _ in range(_STEPS):
            residual = self.rows.matrix @ z - self.rows.target
            low, high = (z - self.lower)[self.free], (self.upper - z)[self.free]
            up, down = 1.0 / (scale - residual), 1.0 / (scale + residual)
            factor = self._factor(z)
            if factor is None or not np.isfinite(value):
                return z
            inverse = np.linalg.inv(factor)
            whitened = inverse @ self.units @ inverse.T
            gradient = self.active.T @ (up - down) - 1.0 / low + 1.0 / high - np.einsum("kii->k", whitened)
            hessian = (self.active.T * (up**2 + down**2)) @ self.active
            hessian += np.diag(1.0 / low**2 + 1.0 / high**2)
            hessian += np.einsum("kij,lij->kl", whitened, whitened)
            step = -np.linalg.solve(hessian, gradient)
            decrement = float(-gradient @ step)
            if decrement < 1e-6:
                return z
            length = 1.0 if decrement < 0.0625 else 1.0 / (1.0 + np.sqrt(decrement))
            for _ in range(30):
                trial = z.copy()
                trial[self.free] += length * step
                new = self.value(trial, scale)
                if new < value:
                    break
                length *= 0.5
            else:
                return z
            z, value = trial, new
        return z
