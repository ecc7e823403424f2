r"""Safe dual bounds of a linear function over a polytope: true for any multipliers. Imports no solver.

For *any* multipliers y and every x with ``lower <= A x <= upper`` and ``l <= x <= u``,

``c.x = y.(A x) + r.x <= sum_i max(y_i lower_i, y_i upper_i) + sum_j max(r_j l_j, r_j u_j)``, ``r = c - A^T y``

[Jansson2004; NeumaierShcherbina2004]. Good multipliers make it tight, bad ones only loose. All rounding is bounded.
With ``c = 0`` a value below zero proves that no such x exists.
"""

from __future__ import annotations

import math

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.intervals import matvec_bounds

__all__ = ["is_proved_empty", "safe_lower", "safe_upper"]

_EPS = 2.0**-52


def safe_upper(
    c: FloatArray,
    matrix: FloatArray,
    row_lower: FloatArray,
    row_upper: FloatArray,
    box_lower: FloatArray,
    box_upper: FloatArray,
    multipliers: FloatArray,
) -> float:
    """Proved upper bound of ``c.x``, infinite only if the data are.

    Args:
        c: (P,).
        matrix: (M, P), exact floats, as everything else.
        row_lower: (M,) sides; may be infinite.
        row_upper: (M,) sides; may be infinite.
        box_lower: (P,) finite.
        box_upper: (P,) finite.
        multipliers: (M,) any numbers; those that are not finite, or ask for an infinite side, count as zero.
    """
    c, multipliers = np.asarray(c, float), np.array(multipliers, float)
    with np.errstate(invalid="ignore", over="ignore"):
        side = np.where(multipliers > 0.0, row_upper, row_lower)
        usable = np.isfinite(multipliers) & (np.abs(multipliers) < 1e100) & np.isfinite(side) & (multipliers != 0.0)
    y, side, rows = multipliers[usable], side[usable], matrix[usable]
    best = _value(c, np.zeros((0, c.size)), y[:0], side[:0], box_lower, box_upper)
    if y.size:
        value = _value(c, rows, y, side, box_lower, box_upper)
        if value < best:  # false for NaN
            best = value
    return best


def safe_lower(
    c: FloatArray,
    matrix: FloatArray,
    row_lower: FloatArray,
    row_upper: FloatArray,
    box_lower: FloatArray,
    box_upper: FloatArray,
    multipliers: FloatArray,
) -> float:
    """Proved lower bound of ``c.x``: minus :func:`safe_upper` of ``-c`` with ``-multipliers`` (a minimiser's sign)."""
    y = -np.asarray(multipliers, float)
    return -safe_upper(-np.asarray(c, float), matrix, row_lower, row_upper, box_lower, box_upper, y)


def is_proved_empty(
    matrix: FloatArray,
    row_lower: FloatArray,
    row_upper: FloatArray,
    box_lower: FloatArray,
    box_upper: FloatArray,
    multipliers: FloatArray,
) -> bool:
    """Whether the multipliers (a Farkas certificate, either sign) prove that no x satisfies rows and box."""
    zero = np.zeros(matrix.shape[1])
    y = np.asarray(multipliers, float)
    args = (matrix, row_lower, row_upper, box_lower, box_upper)
    return safe_upper(zero, *args, y) < 0.0 or safe_upper(zero, *args, -y) < 0.0


def _value(
    c: FloatArray, rows: FloatArray, y: FloatArray, side: FloatArray, lower: FloatArray, upper: FloatArray
) -> float:
    """The dual expression, rounded up."""
    with np.errstate(over="ignore", invalid="ignore"):
        product_lower = product_upper = np.zeros(c.size)
        if y.size:
            product_lower, product_upper = matvec_bounds(rows.T, y)
        r_lower, r_upper = c - product_upper, c - product_lower
        r_lower = r_lower - np.abs(r_lower) * _EPS
        r_upper = r_upper + np.abs(r_upper) * _EPS
        corners = np.maximum.reduce([r_lower * lower, r_lower * upper, r_upper * lower, r_upper * upper])
        terms = np.concatenate([y * side, corners])
        terms = terms + np.abs(terms) * _EPS + 1e-300
        # fsum rounds the exact sum once.
        if not np.all(np.isfinite(terms)):
            return math.nan if y.size else math.inf
        total = math.fsum(terms)
        return total + abs(total) * _EPS + 1e-300
