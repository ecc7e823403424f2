r"""Rigorous arithmetic on affine forms whose symbols lie in balls: compiled kernels.

A form is a float array ``[c, g_1 .. g_K, rho]`` and stands for the set

.. math:: \{ c + \sum_k g_k \epsilon_k + \rho\, u : \epsilon \in E,\ u \in [-1, 1] \},

with the symbols ``epsilon`` shared by all forms of a computation (so correlations survive) and ``u`` private. ``E`` is
a product of three unit balls: one symbol for time in ``[-1, 1]``, then n (a tracking error) and, if there are more
symbols, n again (the other one) in Euclidean balls. A zonotope would use boxes: the sum of n errors that cannot all
be at their worst at once would count in full, up to ``sqrt(n)`` times too much to first order and n times to second.

An operation's result holds the exact real result for *every* value of the symbols: what it cannot keep (second-order
terms, rounding) is **added** to ``rho``; nothing is ever assigned over a remainder that an operand brought.

Rounding is bounded term by term [Higham2002, 3.1]: if the exact result is a sum of products, and every such product
passes through at most N roundings on its way into the result, the error of all floats together is at most
``gamma_N sum |products|``. :func:`_slack` is that bound with room for its own evaluation.
"""

from __future__ import annotations

import math

from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.intervals import TRIG_ERROR

__all__ = [
    "add",
    "add_constant",
    "add_scaled",
    "affine_range",
    "dot",
    "quadratic_range",
    "reach",
    "scale",
    "sin_cos",
    "sub",
]

_EPS = 2.0**-52
#: Covers underflow, in squares below a root too.
_TINY = 1e-150


@njit(cache=True, nogil=True)
def _slack(total: float, roundings: int) -> float:
    """Bound of the rounding error of terms whose magnitudes sum to ``total`` (itself a rounded float)."""
    return (roundings + 4) * _EPS * total + _TINY


@njit(cache=True, nogil=True)
def reach(x: FloatArray, n: int) -> float:
    """``sup |sum g_k eps_k|``: |time| + two Euclidean norms, in plain rounding (relative error below len(x) units)."""
    last = x.shape[0] - 1
    first, second = 0.0, 0.0
    for k in range(2, min(n + 2, last)):
        first += x[k] * x[k]
    for k in range(n + 2, last):
        second += x[k] * x[k]
    return abs(x[1]) + math.sqrt(first) + math.sqrt(second)


@njit(cache=True, nogil=True)
def affine_range(x: FloatArray, n: int) -> tuple[float, float]:
    """Interval that holds every value of the form."""
    last = x.shape[0] - 1
    radius = x[last] + reach(x, n)
    radius += _slack(abs(x[0]) + radius, last + 6)
    return x[0] - radius, x[0] + radius


@njit(cache=True, nogil=True)
def put(x: FloatArray, out: FloatArray) -> None:
    """``out = x``: a loop, for an assigned slice compiles numba's texts of errors, too, which takes seconds."""
    for i in range(x.shape[0]):
        out[i] = x[i]


@njit(cache=True, nogil=True)
def add(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """``out = x + y``; out may alias either."""
    last = x.shape[0] - 1
    total = 0.0
    for i in range(last):
        out[i] = x[i] + y[i]
        total += abs(out[i])
    rho = x[last] + y[last]
    out[last] = rho + _slack(total + rho, last + 2)


@njit(cache=True, nogil=True)
def sub(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """``out = x - y``; out may alias either. Both remainders are private, so they *add*."""
    last = x.shape[0] - 1
    total = 0.0
    for i in range(last):
        out[i] = x[i] - y[i]
        total += abs(out[i])
    rho = x[last] + y[last]
    out[last] = rho + _slack(total + rho, last + 2)


@njit(cache=True, nogil=True)
def scale(x: FloatArray, factor: float, out: FloatArray) -> None:
    """``out = factor x`` for an exact float; out may alias x."""
    last = x.shape[0] - 1
    total = 0.0
    for i in range(last):
        out[i] = factor * x[i]
        total += abs(out[i])
    rho = abs(factor) * x[last]
    out[last] = rho + _slack(total + rho, last + 2)


@njit(cache=True, nogil=True)
def add_scaled(x: FloatArray, factor: float, out: FloatArray) -> None:
    """``out += factor x`` for an exact float; out must not alias x."""
    if factor == 0.0:
        return
    last = x.shape[0] - 1
    total = 0.0
    for i in range(last):
        step = factor * x[i]
        out[i] += step
        total += abs(out[i]) + abs(step)
    rho = out[last] + abs(factor) * x[last]
    out[last] = rho + _slack(total + rho, last + 4)


@njit(cache=True, nogil=True)
def add_constant(value: float, out: FloatArray) -> None:
    """``out += value`` for an exact float."""
    last = out.shape[0] - 1
    out[0] += value
    out[last] += _slack(abs(out[0]) + out[last], 2)


@njit(cache=True, nogil=True)
def quadratic_range(trace: float, squares: float, rank: int, n: int) -> tuple[float, float]:
    """Centre and radius of ``eps^T S eps`` over the unit ball, S symmetric of given trace, squared norm and rank bound.

    The eigenvalues that are not zero are at most ``rank`` numbers of mean trace / rank and given sum of squares: none
    is further from the mean than ``sqrt(rank - 1)`` standard deviations [WolkowiczStyan1980]; exact for rank 2.
    """
    if rank == 0:
        return 0.0, 0.0
    mean = trace / rank
    variance = max(squares / rank - mean * mean, 0.0) + (n * n + 64) * _EPS * squares
    spread = math.sqrt((rank - 1) * variance)
    lo, hi = min(0.0, mean - spread), max(0.0, mean + spread)
    return 0.5 * (lo + hi), 0.5 * (hi - lo)


@njit(cache=True, nogil=True)
def dot(x: FloatArray, y: FloatArray, n: int, out: FloatArray) -> None:
    r"""``out = sum_i x_i y_i`` for forms x, y (m, K + 2); out must not alias.

    With ``M = sum_i g^x_i g^y_i^T`` the second-order part is ``eps^T M eps``: summed over i and symmetrised *before*
    any absolute value, so that what cancels in a rotated vector does cancel. The time symbol's square lies in [0, 1]; a
    ball's own block is bounded by its eigenvalues, blocks between two balls by their Frobenius norm. Cheap if x has
    few symbols (a joint's rotation has two): put the sparse factor first.
    """
    m, last = x.shape[0], x.shape[1] - 1
    total, rho, centre = 0.0, 0.0, 0.0
    for i in range(m):
        x_sum, y_sum = 0.0, 0.0
        for k in range(last + 1):
            x_sum += abs(x[i, k])
            y_sum += abs(y[i, k])
        total += x_sum * y_sum
        x_abs, y_abs = abs(x[i, 0]) + reach(x[i], n), abs(y[i, 0]) + reach(y[i], n)
        # All products with at least one private remainder.
        rho += x[i, last] * (y_abs + y[i, last]) + x_abs * y[i, last]
        centre += x[i, 0] * y[i, 0]
    # Squared Frobenius norms: blocks of the two balls, between them, between time and each; traces, active rows.
    own1, own2, mixed, time1, time2 = 0.0, 0.0, 0.0, 0.0, 0.0
    trace1, trace2 = 0.0, 0.0
    rows1, rows2 = 0, 0
    for k in range(1, last):
        linear = 0.0
        active = False
        for i in range(m):
            linear += x[i, 0] * y[i, k] + y[i, 0] * x[i, k]
            active = active or x[i, k] != 0.0
        out[k] = linear
        if not active:
            continue
        square = 0.0
        for i in range(m):
            square += x[i, k] * y[i, k]
        group = 0 if k == 1 else (1 if k < n + 2 else 2)
        if group == 0:
            centre += 0.5 * square
            rho += 0.5 * abs(square)
        elif group == 1:
            rows1 += 1
            trace1 += square
            own1 += square * square
        else:
            rows2 += 1
            trace2 += square
            own2 += square * square
        for other in range(1, last):
            if other == k:
                continue
            pair, counted = 0.0, False
            for i in range(m):
                pair += x[i, k] * y[i, other] + x[i, other] * y[i, k]
                counted = counted or x[i, other] != 0.0
            # A pair of two active symbols is met twice: count it at the larger index.
            if counted and other > k:
                continue
            sq = pair * pair
            second = 0 if other == 1 else (1 if other < n + 2 else 2)
            if group == second:
                # An off-diagonal element of the symmetric part is half the pair and occurs twice.
                if group == 1:
                    own1 += 0.5 * sq
                else:
                    own2 += 0.5 * sq
            elif group + second == 1:
                time1 += sq
            elif group + second == 2:
                time2 += sq
            else:
                mixed += sq
    shift1, radius1 = quadratic_range(trace1, own1, min(n, 2 * min(m, rows1)), n)
    shift2, radius2 = quadratic_range(trace2, own2, min(n, 2 * min(m, rows2)), n)
    rho += radius1 + radius2 + math.sqrt(mixed) + math.sqrt(time1) + math.sqrt(time2)
    out[0] = centre + shift1 + shift2
    out[last] = rho + _slack(total, last * last + 8 * m + 64)


@njit(cache=True, nogil=True)
def sin_cos(x: FloatArray, n: int, sin_out: FloatArray, cos_out: FloatArray) -> None:
    r"""Sine and cosine of a form (radians); outputs must not alias x.

    With ``x = c + d``, ``|d| <= D`` over the whole form: ``cos d in [1 - D^2/2, 1]``, and by the Chebyshev polynomial
    T_3, ``|sin d - (1 - D^2/8) d| <= D^3/24 + D^5/120``; then the addition theorem. The remainders are those of the
    range, not of the centre.
    """
    last = x.shape[0] - 1
    radius = x[last] + reach(x, n)
    radius += _slack(radius, last + 6)
    # Written so that NaN takes this branch too.
    if not (radius < 1.5 and abs(x[0]) < 1e6):
        bad = radius != radius or x[0] != x[0]
        for i in range(last):
            sin_out[i] = cos_out[i] = 0.0
        sin_out[last] = cos_out[last] = math.nan if bad else 1.0
        return
    s, c = math.sin(x[0]), math.cos(x[0])
    d2 = radius * radius
    shrink = 1.0 - 0.125 * d2
    mean = 1.0 - 0.25 * d2
    tail = d2 * radius / 24.0 + d2 * d2 * radius / 120.0
    sin_out[0], cos_out[0] = s * mean, c * mean
    for k in range(1, last):
        g = shrink * x[k]
        sin_out[k], cos_out[k] = c * g, -s * g
    # libm's error multiplies cos d and sin d, both at most 1; d's private part is scaled by shrink <= 1.
    common = 2.0 * TRIG_ERROR + _slack(2.0 + 2.0 * radius, 16)
    sin_out[last] = abs(s) * 0.25 * d2 + abs(c) * (tail + x[last]) + common
    cos_out[last] = abs(c) * 0.25 * d2 + abs(s) * (tail + x[last]) + common
