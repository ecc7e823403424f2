r"""Dual bounds of an unknown or a combination, over interval rows, cuts and boxes, as the checker has them: no solver.

For all x in a box with ``lower_i <= a_i.x <= upper_i`` and ``g_k.x >= constant_k``, any y and any ``lambda >= 0``:

``c.x <= sum_i max(y_i lower_i, y_i upper_i) - sum_k lambda_k constant_k + max over the box of r.x``,
``r = c - sum_i y_i a_i + sum_k lambda_k g_k``.

a and g are only known as intervals: r is one, and its product with the box is taken at the worst corner.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.intervals import iadd, imul, isub, up

__all__ = ["LARGEST_MULTIPLIER", "combination_lower", "combination_upper", "proved_lower", "proved_upper"]

#: Beyond it products may overflow, and infinity minus infinity is what comparisons do not see.
LARGEST_MULTIPLIER = 1e100


@njit(cache=True)
def _upper(
    c: FloatArray,
    rows: FloatArray,
    sides: FloatArray,
    y: FloatArray,
    cuts: FloatArray,
    constants: FloatArray,
    multipliers: FloatArray,
    box: FloatArray,
) -> float:
    """Upper bound of ``c.x``; arrays as in :func:`proved_upper`, intervals in a last axis of two.

    NaN as soon as anything on the way is not finite: a later max or min could hide it.
    """
    size = box.shape[0]
    r = np.empty((size, 2))
    for p in range(size):
        r[p, 0] = r[p, 1] = c[p]
    value = 0.0
    for i in range(y.shape[0]):
        if y[i] != 0.0:
            for p in range(size):
                if rows[i, p, 0] != 0.0 or rows[i, p, 1] != 0.0:
                    if not (math.isfinite(rows[i, p, 0]) and math.isfinite(rows[i, p, 1])):
                        return math.nan
                    lo, hi = imul(y[i], y[i], rows[i, p, 0], rows[i, p, 1])
                    r[p, 0], r[p, 1] = isub(r[p, 0], r[p, 1], lo, hi)
            low, high = y[i] * sides[i, 0], y[i] * sides[i, 1]
            if not (math.isfinite(low) and math.isfinite(high)):
                return math.nan
            value = up(value + up(max(low, high)))
    for k in range(multipliers.shape[0]):
        if multipliers[k] != 0.0:
            for p in range(size):
                if cuts[k, p, 0] != 0.0 or cuts[k, p, 1] != 0.0:
                    if not (math.isfinite(cuts[k, p, 0]) and math.isfinite(cuts[k, p, 1])):
                        return math.nan
                    lo, hi = imul(multipliers[k], multipliers[k], cuts[k, p, 0], cuts[k, p, 1])
                    r[p, 0], r[p, 1] = iadd(r[p, 0], r[p, 1], lo, hi)
            value = up(value + up(-multipliers[k] * constants[k]))
    for p in range(size):
        if not (math.isfinite(r[p, 0]) and math.isfinite(r[p, 1])):
            return math.nan
        if r[p, 0] != 0.0 or r[p, 1] != 0.0:
            if math.isnan(box[p, 0]) or math.isnan(box[p, 1]):
                return math.nan
            lo, hi = imul(r[p, 0], r[p, 1], box[p, 0], box[p, 1])
            value = up(value + hi)
    return value


def proved_upper(
    index: int,
    rows: FloatArray,
    sides: FloatArray,
    row_multipliers: FloatArray,
    cuts: FloatArray,
    constants: FloatArray,
    cut_multipliers: FloatArray,
    box: FloatArray,
    sign: float = 1.0,
) -> float:
    """Upper bound of ``x[index]`` (of ``-x[index]`` for sign -1); infinite if a multiplier of a cut is negative.

    Args:
        rows: (M, P, 2) intervals of a.
        sides: (M, 2) lower and upper.
        row_multipliers: (M,) y.
        cuts: (K, P, 2) intervals of g.
        constants: (K,).
        cut_multipliers: (K,) lambda.
        box: (P, 2).
        sign: 1 or -1.
    """
    trivial = float(box[index, 1] if sign > 0.0 else -box[index, 0])
    for multipliers in (row_multipliers, cut_multipliers):
        if not np.all(np.abs(multipliers) < LARGEST_MULTIPLIER):  # NaN neither
            return trivial
    if np.any(cut_multipliers < 0.0):
        return math.inf
    c = sign * np.eye(1, len(box), index)[0]
    value = _upper(c, rows, sides, row_multipliers, cuts, constants, cut_multipliers, box)
    return min(trivial, value) if math.isfinite(value) else trivial


def proved_lower(
    index: int,
    rows: FloatArray,
    sides: FloatArray,
    row_multipliers: FloatArray,
    cuts: FloatArray,
    constants: FloatArray,
    cut_multipliers: FloatArray,
    box: FloatArray,
) -> float:
    """Lower bound of ``x[index]``, by ``x >= -max(-x)``; arguments as :func:`proved_upper`, with a lower bound's y.

    Signs: ``c.x >= sum_i min(y_i lower_i, y_i upper_i) + sum_k lambda_k constant_k + min r.x`` with
    ``r = c - sum_i y_i a_i - sum_k lambda_k g_k``.
    """
    return -proved_upper(index, rows, sides, -row_multipliers, cuts, constants, cut_multipliers, box, sign=-1.0)


def combination_upper(
    c: FloatArray, rows: FloatArray, sides: FloatArray, row_multipliers: FloatArray, box: FloatArray
) -> float:
    """Upper bound of ``c.x``, without cuts; infinite if anything is not finite.

    Args:
        c: (P,) coefficients, exact floats.
        rows: (M, P, 2) intervals of a.
        sides: (M, 2) lower and upper.
        row_multipliers: (M,) y.
        box: (P, 2).
    """
    size, best = len(box), math.inf
    none = np.zeros((0, size, 2)), np.zeros(0), np.zeros(0)
    usable = bool(np.all(np.abs(row_multipliers) < LARGEST_MULTIPLIER))  # NaN is not
    for count in (0, len(rows)) if usable else (0,):
        value = _upper(np.ascontiguousarray(c), rows[:count], sides[:count], row_multipliers[:count], *none, box)
        best = min(best, value) if math.isfinite(value) else best
    return best


def combination_lower(
    c: FloatArray, rows: FloatArray, sides: FloatArray, row_multipliers: FloatArray, box: FloatArray
) -> float:
    """Lower bound of ``c.x``: minus :func:`combination_upper` of ``-c``, with a lower bound's multipliers.

    Args:
        c: (P,) coefficients.
        rows: (M, P, 2) intervals of a.
        sides: (M, 2) lower and upper.
        row_multipliers: (M,) y.
        box: (P, 2).
    """
    return -combination_upper(-c, rows, sides, -row_multipliers, box)
