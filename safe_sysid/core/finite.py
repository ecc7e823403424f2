"""Whether all numbers of an array are finite: a quarter of numpy's time for the few numbers of an arm."""

from __future__ import annotations

import math

from numba import njit

from safe_sysid.core.arrays import FloatArray

__all__ = ["all_finite"]


@njit(cache=True)
def all_finite(values: FloatArray) -> bool:
    """``values``: (n,) or (.., n)."""
    finite = True
    for value in values.flat:
        finite &= math.isfinite(value)
    return finite
