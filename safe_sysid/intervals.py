r"""Outward-rounded interval arithmetic: scalar kernels for numba, and products of arrays with proved error.

Every operation returns bounds that hold the exact real result. IEEE-754 operations are correctly rounded, so
moving a result by one relative unit (:func:`down`, :func:`up`) gives a bound. libm's sine and cosine are *not*
correctly rounded; glibc documents below 1 ulp, we allow :data:`TRIG_ERROR` (8 ulp of 1): docs/understand/guarantees.md.

Scalar intervals are pairs ``(lo, hi)`` of floats; array routines take and return numpy arrays.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError

__all__ = [
    "TRIG_ERROR",
    "check_interval",
    "cos_interval",
    "down",
    "iadd",
    "imul",
    "isub",
    "matvec_bounds",
    "mid_rad",
    "sin_interval",
    "up",
]

#: Declared absolute error bound of libm sin/cos (values in [-1, 1]); 8 ulp of 1.
TRIG_ERROR = 2.0**-50
_EPS = 2.0**-52
_TINY = 1e-300
#: 2 pi from below and above: range reduction must not trust one float.
_PI_LO, _PI_HI = math.nextafter(math.pi, 0.0), math.nextafter(math.pi, 4.0)


@njit(cache=True)
def down(x: float) -> float:
    """Return a lower bound of every real that rounds to ``x`` (units of ``x``)."""
    return x - (abs(x) * _EPS + _TINY)


@njit(cache=True)
def up(x: float) -> float:
    """Return an upper bound of every real that rounds to ``x``."""
    return x + (abs(x) * _EPS + _TINY)


@njit(cache=True)
def iadd(al: float, ah: float, bl: float, bh: float) -> tuple[float, float]:
    """Sum of two intervals."""
    return down(al + bl), up(ah + bh)


@njit(cache=True)
def isub(al: float, ah: float, bl: float, bh: float) -> tuple[float, float]:
    """Difference of two intervals."""
    return down(al - bh), up(ah - bl)


@njit(cache=True)
def imul(al: float, ah: float, bl: float, bh: float) -> tuple[float, float]:
    """Product of two intervals."""
    p1, p2, p3, p4 = al * bl, al * bh, ah * bl, ah * bh
    return down(min(min(p1, p2), min(p3, p4))), up(max(max(p1, p2), max(p3, p4)))


@njit(cache=True)
def cos_interval(lo: float, hi: float) -> tuple[float, float]:
    """Enclose ``cos`` over ``[lo, hi]`` (radians)."""
    if not (hi - lo < 6.0) or not (abs(lo) < 1e6 and abs(hi) < 1e6):
        return -1.0, 1.0
    cl, ch = math.cos(lo), math.cos(hi)
    low, high = min(cl, ch) - TRIG_ERROR, max(cl, ch) + TRIG_ERROR
    # Extrema lie at k pi; test with pi widened so that a multiple near an end is never missed.
    k = math.floor(lo / math.pi) - 1.0
    while k * math.pi <= hi + 7.0:
        a, b = min(k * _PI_LO, k * _PI_HI), max(k * _PI_LO, k * _PI_HI)
        if up(b) >= lo and down(a) <= hi:
            if k % 2.0 == 0.0:
                high = 1.0
            else:
                low = -1.0
        k += 1.0
    return max(low, -1.0), min(high, 1.0)


@njit(cache=True)
def sin_interval(lo: float, hi: float) -> tuple[float, float]:
    """Enclose ``sin`` over ``[lo, hi]`` (radians)."""
    if not (hi - lo < 6.0) or not (abs(lo) < 1e6 and abs(hi) < 1e6):
        return -1.0, 1.0
    sl, sh = math.sin(lo), math.sin(hi)
    low, high = min(sl, sh) - TRIG_ERROR, max(sl, sh) + TRIG_ERROR
    k = math.floor(lo / math.pi) - 2.0
    while k * math.pi <= hi + 7.0:
        m = k + 0.5
        a, b = min(m * _PI_LO, m * _PI_HI), max(m * _PI_LO, m * _PI_HI)
        if up(b) >= lo and down(a) <= hi:
            if k % 2.0 == 0.0:
                high = 1.0
            else:
                low = -1.0
        k += 1.0
    return max(low, -1.0), min(high, 1.0)


def check_interval(lower: FloatArray, upper: FloatArray, what: str) -> None:
    """Raise :class:`ParameterError` unless ``lower <= upper`` componentwise, naming the first bad entry."""
    bad = np.flatnonzero(~(np.asarray(lower) <= np.asarray(upper)))
    if bad.size:
        i = int(bad[0])
        raise ParameterError(
            f"{what}[{i}]: lower {np.ravel(lower)[i]!r} and upper {np.ravel(upper)[i]!r}: expected lower <= upper"
        )


def mid_rad(lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Midpoint and radius with ``mid - rad <= lower`` and ``upper <= mid + rad`` in exact arithmetic."""
    mid = 0.5 * np.asarray(lower) + 0.5 * np.asarray(upper)
    rad = np.maximum(mid - lower, upper - mid)
    # A point interval keeps radius zero: the subtraction of equal floats is exact.
    return mid, np.where(rad > 0.0, rad * (1.0 + _EPS) + _TINY, 0.0)


def _gamma(n: int) -> float:
    """Higham's gamma_n with the unit roundoff doubled: also covers evaluation of the bound itself."""
    return (n + 2) * _EPS / (1.0 - (n + 2) * _EPS)


def matvec_bounds(matrix: FloatArray, vector: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of the exact product ``matrix @ vector`` (any summation order; Higham 3.5).

    ``matrix``: (m, n), exact floats; ``vector``: (n,), exact floats.
    """
    matrix, vector = np.asarray(matrix, float), np.asarray(vector, float)
    value = matrix @ vector
    error = _gamma(vector.size) * (np.abs(matrix) @ np.abs(vector)) * (1.0 + 1e-12) + _TINY
    return value - error * (1 + _EPS) - np.abs(value) * _EPS, value + error * (1 + _EPS) + np.abs(value) * _EPS
