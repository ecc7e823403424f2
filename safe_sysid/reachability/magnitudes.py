r"""Sums of many ``radius_p |w_p|`` for forms w_p with common symbols, from above: compiled kernels.

A parabola lies above the absolute value: ``|y| <= (y^2 + a^2) / (2 a)`` for any a > 0. So a sum of absolute values of
affine forms is at most *one* quadratic in the symbols: its affine part keeps the correlation, and the largest
eigenvalues of its blocks know that the forms cannot all be at their worst at once.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.reachability.affine import add_scaled, affine_range, reach

__all__ = ["add_magnitude", "add_quadratic", "ball_eigenvalue", "quadratic_bound", "weighted_measure"]

FloatArray = NDArray[np.float64]
_EPS = 2.0**-52
_TINY = 1e-150


@njit(cache=True)
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
        for i in range(n):
            for k in range(n):
                total = 0.0
                for h in range(n):
                    total += block[i, h] * block[h, k]
                square[i, k] = total
        block[:] = square
        power *= 0.5
    top = 0.0
    for i in range(n):
        for k in range(n):
            top += block[i, k] * block[i, k]
    return norm * math.sqrt(top) ** power * (1.0 + 1e-11)


@njit(cache=True)
def add_quadratic(w: FloatArray, weight: float, timed: float, block: FloatArray) -> float:
    """Add ``weight d d^T`` for the symbols' part d of a form: lower triangles of its balls' own blocks (2, n, n).

    Returns ``timed`` plus the time symbol's own element; what lies between balls is not needed.
    """
    n = block.shape[1]
    for i in range(n):
        first, second = weight * w[2 + i], weight * w[2 + n + i]
        for k in range(i + 1):
            block[0, i, k] += first * w[2 + k]
            block[1, i, k] += second * w[2 + n + k]
    return timed + weight * w[1] * w[1]


@njit(cache=True)
def quadratic_bound(timed: float, block: FloatArray, square: FloatArray) -> float:
    """Upper bound of ``eps^T M eps`` for M positive semidefinite, given as by :func:`add_quadratic`.

    ``|eps|_M <= sum over balls of |part|_M``: the triangle inequality in a semi-norm. ``block`` is destroyed.
    """
    n = block.shape[1]
    for i in range(n):
        for k in range(i):
            block[0, k, i], block[1, k, i] = block[0, i, k], block[1, i, k]
    root = math.sqrt(timed)
    root += math.sqrt(ball_eigenvalue(block[0], square)) + math.sqrt(ball_eigenvalue(block[1], square))
    return root * root * (1.0 + 1e-13)


@njit(cache=True)
def add_magnitude(
    w: FloatArray, radius: float, n: int, timed: float, block: FloatArray, out: FloatArray
) -> tuple[float, float, float]:
    """``out`` + quadratic += ``radius |w|`` from above: w itself where its sign is known, else a parabola.

    With ``w = y + rho`` and any a > 0, ``radius |y| <= t (y^2 + a^2)`` if ``2 t a >= radius``: affine terms go to
    ``out``, ``t (d.eps)^2`` to the quadratic (see :func:`add_quadratic`), so that columns need not all be at their
    worst at once.

    Returns:
        The range of w, and the new ``timed``.
    """
    lo, hi = affine_range(w, n)
    if radius == 0.0:
        return lo, hi, timed
    if lo >= 0.0:
        add_scaled(w, radius, out)
    elif hi <= 0.0:
        add_scaled(w, -radius, out)
    else:
        last = w.shape[0] - 1
        c, size = w[0], reach(w, n)
        # Any a > 0 will do; this one is good for eps somewhere inside. NaN passes through and certifies nothing.
        a = math.sqrt(c * c + 0.3 * size * size) + 1e-100
        t = 0.5 * radius / a * (1.0 + 8.0 * _EPS)
        total = 0.0
        for k in range(1, last):
            step = 2.0 * t * c * w[k]
            out[k] += step
            total += abs(out[k]) + abs(step)
        out[0] += t * (c * c + a * a)
        out[last] = (
            (out[last] + radius * w[last]) * (1.0 + 4.0 * _EPS) + 8.0 * _EPS * (total + abs(out[0])) + _TINY
        )
        timed = add_quadratic(w, t, timed, block)
    return lo, hi, timed


@njit(cache=True)
def weighted_measure(
    entries: FloatArray,
    rad: FloatArray,
    inverse_inertia: FloatArray,
    linear: FloatArray,
    block: FloatArray,
    square: FloatArray,
) -> float:
    r"""Upper bound of ``S = sum_p rad_p |W_p|``, ``|W_p|^2 = sum_j W_jp^2 / inertia_j``, from forms (n, 14 n, K + 2).

    Columns cannot all be at their worst at once. With ``W_p = c + D eps + rho`` and any a > 0,
    ``|c + D eps| <= (|c + D eps|^2 + a^2) / (2 a)``: summed over p that is one quadratic in eps, bounded by its linear
    part's reach plus :func:`quadratic_bound`. The sum of the columns' own bounds is the fall-back: the smaller counts.
    ``linear`` (K + 2), ``block`` (2, n, n) and ``square`` (n, n) are work space.
    """
    n, count, size = entries.shape
    last = size - 1
    single, constant, timed, magnitude = 0.0, 0.0, 0.0, 0.0
    linear[:] = 0.0
    block[:] = 0.0
    for p in range(count):
        if rad[p] == 0.0:
            continue
        centre, radius, rest = 0.0, 0.0, 0.0
        sup = 0.0
        # A link moves only the joints before it; the last four columns of a joint are on the diagonal.
        first_row, rows = (0, p // 10 + 1) if p < 10 * n else (p % n, p % n + 1)
        for j in range(first_row, rows):
            w = entries[j, p]
            r = reach(w, n)
            centre += w[0] * w[0] * inverse_inertia[j]
            radius += r * r * inverse_inertia[j]
            rest += w[last] * w[last] * inverse_inertia[j]
            top = abs(w[0]) + r + w[last]
            sup += top * top * inverse_inertia[j]
        single += rad[p] * math.sqrt(sup)
        # Any a > 0 will do; this one is good if eps is somewhere inside.
        a = math.sqrt(centre + 0.3 * radius) + 1e-100
        t = rad[p] / (2.0 * a)
        constant += t * (centre + a * a) + rad[p] * math.sqrt(rest)
        magnitude += t * (centre + radius) + rad[p] * (a + math.sqrt(rest))
        for j in range(first_row, rows):
            w = entries[j, p]
            weight = t * inverse_inertia[j]
            for k in range(1, last):
                linear[k] += 2.0 * weight * w[0] * w[k]
            timed = add_quadratic(w, weight, timed, block)
    quadratic = quadratic_bound(timed, block, square)
    joint = constant + reach(linear, n) + quadratic
    # Fewer than 2000 roundings on any term; the terms of `linear` are below 2 t |c| |D| <= t (|c|^2 + |D|^2).
    slack = 1e-12 * (magnitude + single + quadratic) + _TINY
    # A NaN in one of them must not be dropped by the comparison.
    if single != single or joint != joint:
        return math.nan
    return min(single, joint) + slack
