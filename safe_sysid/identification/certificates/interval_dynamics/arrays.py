"""Arrays of intervals with outward rounding, in plain numpy: for what is computed once per sample or step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError

__all__ = ["INFLATE", "TWO_PI", "IntervalArray", "added", "exactly", "inflate"]

_EPS, _TINY = 2.0**-52, 1e-300

#: An expression of sums, products, quotients and square roots of non-negative floats, at most 4000 operations deep and
#: without subtraction, is computed with a relative error below (1 + 2^-53)^4000 - 1 < 4.5e-13.
INFLATE = 1.0 + 5e-13


def inflate(values: ArrayLike) -> FloatArray:
    """Upper bound of an expression of non-negative numbers as described at :data:`INFLATE`."""
    return np.asarray(values, float) * INFLATE + _TINY


def added(values: FloatArray) -> FloatArray:
    """Upper bound of the sum of non-negative numbers over the first axis, however many and in whatever order.

    ``values``: (N, ..), N below 2^50; k additions are off by a factor of (1 + 2^-53)^k at most.
    """
    return values.sum(axis=0) * (1.0 + (len(values) + 2) * _EPS)


def _down(values: FloatArray) -> FloatArray:
    return values - (np.abs(values) * _EPS + _TINY)


def _up(values: FloatArray) -> FloatArray:
    return values + (np.abs(values) * _EPS + _TINY)


@dataclass(frozen=True, eq=False)
class IntervalArray:
    """``lo <= exact value <= hi``, entry by entry; shapes broadcast as numpy's do."""

    lo: FloatArray
    hi: FloatArray

    def __add__(self, other: IntervalArray) -> IntervalArray:
        return IntervalArray(_down(self.lo + other.lo), _up(self.hi + other.hi))

    def __sub__(self, other: IntervalArray) -> IntervalArray:
        return IntervalArray(_down(self.lo - other.hi), _up(self.hi - other.lo))

    def __neg__(self) -> IntervalArray:
        return IntervalArray(-self.hi, -self.lo)

    def __mul__(self, other: IntervalArray) -> IntervalArray:
        corners = (self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi)
        return IntervalArray(_down(np.minimum.reduce(corners)), _up(np.maximum.reduce(corners)))

    def __truediv__(self, other: IntervalArray) -> IntervalArray:
        """Quotient.

        Raises:
            ParameterError: the divisor is not positive.
        """
        if not np.all(other.lo > 0.0):
            raise ParameterError("division of intervals: expected a positive divisor")
        corners = (self.lo / other.lo, self.lo / other.hi, self.hi / other.lo, self.hi / other.hi)
        return IntervalArray(_down(np.minimum.reduce(corners)), _up(np.maximum.reduce(corners)))

    def __getitem__(self, part: Any) -> IntervalArray:
        return IntervalArray(np.asarray(self.lo[part]), np.asarray(self.hi[part]))

    def halved(self) -> IntervalArray:
        """Half of the interval. This is exact, because nothing here is near underflow."""
        return IntervalArray(0.5 * self.lo, 0.5 * self.hi)

    def transposed(self) -> IntervalArray:
        """Axes in reverse order."""
        return IntervalArray(self.lo.T, self.hi.T)

    def size(self) -> FloatArray:
        """Largest absolute value."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    def total(self) -> IntervalArray:
        """Sum over the first axis, in whatever order numpy adds."""
        error = (len(self.lo) + 2) * _EPS * INFLATE
        low, high = self.lo.sum(axis=0), self.hi.sum(axis=0)
        return IntervalArray(
            _down(low - (error * np.abs(self.lo).sum(axis=0) + _TINY)),
            _up(high + (error * np.abs(self.hi).sum(axis=0) + _TINY)),
        )

    def stacked(self) -> FloatArray:
        """The bounds as a last axis of length 2, C order."""
        return np.ascontiguousarray(np.stack([self.lo, self.hi], axis=-1))


def exactly(values: ArrayLike) -> IntervalArray:
    """Interpret floats as exact numbers."""
    array = np.asarray(values, float)
    return IntervalArray(array, array)


TWO_PI = IntervalArray(np.nextafter(2.0 * np.array(np.pi), 0.0), np.nextafter(2.0 * np.array(np.pi), 7.0))
