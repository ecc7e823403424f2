r"""Sums of many ``radius_p |w_p|`` for forms w_p with common symbols, from above: compiled kernels.

A parabola lies above the absolute value: ``|y| <= (y^2 + a^2) / (2 a)`` for any a > 0. So a sum of absolute values of
affine forms is at most *one* quadratic in the symbols: its affine part keeps the correlation, and the largest
eigenvalues of its blocks know that the forms cannot all be at their worst at once.
"""

from __future__ import annotations

import math

from numba import njit

from safe_sysid.core.arrays import FloatArray

__all__ = ["add_magnitude", "add_quadratic", "ball_eigenvalue", "quadratic_bound"]

_EPS = 2.0**-52
_TINY = 1e-150


@njit(cache=True, nogil=True)
def ball_eigenvalue(block: FloatArray, square: FloatArray) -> float:
    """Upper bound of the largest eigenvalue of a positive semidefinite block: ``|B^8|_F^(1/8)``, scaled by |B|_F.

    Rounding: each squaring errs by at most ``n gamma_n`` relative to its norm, which is at least that of the largest
    eigenvalue's power over sqrt(n); 1e-11 covers all. ``square`` is work space; block is destroyed.
    """
    n = block.shape[0]
    norm = 0.0
    for i in range(n):
        for k in range(n):
            norm += block[i, k] * block[i, k]
    norm = math.sqrt(norm)
    if not norm > 1e-100:
        return norm + 1e-100
    for i in range(n):
        for k in range(n):
            block[i, k] /= norm
    power = 1.0
    for _ in range(3):
        # Products of a symmetric matrix: rows with rows, one triangle.
        for i in range(n):
            for k in range(i + 1):
                total = 0.0
                for h in range(n):
                    total += block[i, h] * block[k, h]
                square[i, k] = total
        for i in range(n):
            for k in range(i + 1):
                block[i, k] = square[i, k]
                block[k, i] = square[i, k]
        power *= 0.5
    top = 0.0
    for i in range(n):
        for k in range(n):
            top += block[i, k] * block[i, k]
    return norm * math.sqrt(top) ** power * (1.0 + 1e-11)


@njit(cache=True, nogil=True)
def add_quadratic(
    forms: FloatArray, row: int, column: int, active: int, weight: float, blocks: FloatArray, where: int
) -> float:
    """Add ``weight d d^T`` for the symbols' part d of ``forms[row, column]``: lower triangles of its balls' own blocks.

    They are ``blocks[where]`` (2, n, n); only the first ``active`` joints take part. Returns the time symbol's own
    element; what lies between balls is not needed.
    """
    n = blocks.shape[2]
    for i in range(active):
        first, second = weight * forms[row, column, 2 + i], weight * forms[row, column, 2 + n + i]
        for k in range(i + 1):
            blocks[where, 0, i, k] += first * forms[row, column, 2 + k]
            blocks[where, 1, i, k] += second * forms[row, column, 2 + n + k]
    return weight * forms[row, column, 1] * forms[row, column, 1]


@njit(cache=True, nogil=True)
def quadratic_bound(timed: float, blocks: FloatArray, where: int, square: FloatArray) -> float:
    """Upper bound of ``eps^T M eps`` for M positive semidefinite, given as by :func:`add_quadratic`.

    ``|eps|_M <= sum over balls of |part|_M``: the triangle inequality in a semi-norm. ``blocks[where]`` is destroyed.
    """
    n = blocks.shape[2]
    root = math.sqrt(timed)
    for ball in range(2):
        block = blocks[where, ball]
        for i in range(n):
            for k in range(i):
                block[k, i] = block[i, k]
        root += math.sqrt(ball_eigenvalue(block, square))
    return root * root * (1.0 + 1e-13)


@njit(cache=True, nogil=True)
def add_magnitude(
    forms: FloatArray,
    row: int,
    column: int,
    size: float,
    active: int,
    radius: float,
    timed: FloatArray,
    blocks: FloatArray,
    out: FloatArray,
) -> tuple[float, float]:
    """``out[row]`` + quadratic += ``radius |w|`` from above: w itself where its sign is known, else a parabola.

    With ``w = forms[row, column] = y + rho`` of reach ``size`` and any a > 0, ``radius |y| <= t (y^2 + a^2)`` if
    ``2 t a >= radius``: affine terms go to ``out[row]`` (K + 2), ``t (d.eps)^2`` to the quadratic ``timed[row]``,
    ``blocks[row]`` (see :func:`add_quadratic`), so that columns need not all be at their worst at once. Only the first
    ``active`` joints' symbols of w are looked at.

    Returns the range of w.
    """
    n, last = blocks.shape[2], forms.shape[2] - 1
    c, rho = forms[row, column, 0], forms[row, column, last]
    reach = (rho + size) * (1.0 + (last + 16) * _EPS) + (last + 12) * _EPS * abs(c) + _TINY
    lo, hi = c - reach, c + reach
    if radius == 0.0:
        return lo, hi
    if lo >= 0.0 or hi <= 0.0:
        step = radius if lo >= 0.0 else -radius
        out[row, 0] += step * c
        total = abs(out[row, 0])
    else:
        # Any a > 0 will do; this one is good for eps somewhere inside. NaN passes through and certifies nothing.
        a = math.sqrt(c * c + 0.3 * size * size) + 1e-100
        t = 0.5 * radius / a * (1.0 + 8.0 * _EPS)
        step = 2.0 * t * c
        out[row, 0] += t * (c * c + a * a)
        total = abs(out[row, 0]) + abs(step * c)
        timed[row] += add_quadratic(forms, row, column, active, t, blocks, row)
    for k in range(1, 2 + active):
        out[row, k] += step * forms[row, column, k]
        total += abs(out[row, k])
    for k in range(2 + n, 2 + n + active):
        out[row, k] += step * forms[row, column, k]
        total += abs(out[row, k])
    # Each |step w_k| is at most radius times w's magnitude.
    total += radius * last * (abs(c) + size)
    out[row, last] = (out[row, last] + radius * rho) * (1.0 + 4.0 * _EPS) + 8.0 * _EPS * total + _TINY
    return lo, hi
