r"""Rigorous affine arithmetic: compiled kernels on zonotopes with shared symbols.

A form is a float array ``[c, g_1 .. g_K, rho]`` and stands for the set

.. math:: \{ c + \sum_k g_k \epsilon_k + \rho\, u : \epsilon \in [-1, 1]^K,\ u \in [-1, 1] \},

with the symbols ``epsilon`` shared by all forms of a computation (so correlations survive) and ``u`` private. An
operation's result holds the exact real result for *every* value of the symbols: what it cannot keep (second-order
terms, rounding) is **added** to ``rho``; nothing is ever assigned over a remainder that an operand brought.

Rounding is bounded term by term [Higham2002, 3.1]: if the exact result is a sum of products, and every such product
passes through at most N roundings on its way into the result, the error of all floats together is at most
``gamma_N sum |products|``. :func:`_slack` is that bound with room for its own evaluation.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.intervals import TRIG_ERROR

__all__ = [
    "add",
    "add_constant",
    "add_scaled",
    "affine_range",
    "dot",
    "magnitude",
    "mul",
    "scale",
    "sin_cos",
    "sub",
]

FloatArray = NDArray[np.float64]
_EPS = 2.0**-52
_TINY = 1e-300


@njit(cache=True)
def _slack(total: float, roundings: int) -> float:
    """Bound of the rounding error of terms whose magnitudes sum to ``total`` (itself a rounded float)."""
    return (roundings + 4) * _EPS * total + _TINY


@njit(cache=True)
def magnitude(x: FloatArray) -> float:
    """``|c| + sum |g_k| + rho``, in plain rounding (relative error below ``len(x)`` units)."""
    total = 0.0
    for i in range(x.shape[0]):
        total += abs(x[i])
    return total


@njit(cache=True)
def affine_range(x: FloatArray) -> tuple[float, float]:
    """Interval that holds every value of the form."""
    last = x.shape[0] - 1
    radius = x[last]
    for i in range(1, last):
        radius += abs(x[i])
    radius += _slack(abs(x[0]) + radius, last + 2)
    return x[0] - radius, x[0] + radius


@njit(cache=True)
def add(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """``out = x + y``; out may alias either."""
    last = x.shape[0] - 1
    total = 0.0
    for i in range(last):
        out[i] = x[i] + y[i]
        total += abs(out[i])
    rho = x[last] + y[last]
    out[last] = rho + _slack(total + rho, last + 2)


@njit(cache=True)
def sub(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """``out = x - y``; out may alias either. Both remainders are private, so they *add*."""
    last = x.shape[0] - 1
    total = 0.0
    for i in range(last):
        out[i] = x[i] - y[i]
        total += abs(out[i])
    rho = x[last] + y[last]
    out[last] = rho + _slack(total + rho, last + 2)


@njit(cache=True)
def scale(x: FloatArray, factor: float, out: FloatArray) -> None:
    """``out = factor x`` for an exact float; out may alias x."""
    last = x.shape[0] - 1
    total = 0.0
    for i in range(last):
        out[i] = factor * x[i]
        total += abs(out[i])
    rho = abs(factor) * x[last]
    out[last] = rho + _slack(total + rho, last + 2)


@njit(cache=True)
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


@njit(cache=True)
def add_constant(value: float, out: FloatArray) -> None:
    """``out += value`` for an exact float."""
    last = out.shape[0] - 1
    out[0] += value
    out[last] += _slack(abs(out[0]) + out[last], 2)


@njit(cache=True)
def dot(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    r"""``out = sum_i x_i y_i`` for forms x, y (m, K + 2); out must not alias.

    With ``M_kl = sum_i g^x_ik g^y_il`` the second-order part is ``sum_kl M_kl eps_k eps_l``. Its diagonal ``eps_k^2 in
    [0, 1]`` gives a shift of the centre by half; each pair ``k < l`` gives ``|M_kl + M_lk|``: summed over i and
    symmetrised *before* the absolute value, so that what cancels in a rotated vector does cancel. Cheap if x has few
    symbols (a joint's rotation has two): put the sparse factor first.
    """
    m, last = x.shape[0], x.shape[1] - 1
    total, rho, centre = 0.0, 0.0, 0.0
    for i in range(m):
        xc, yc = x[i, 0], y[i, 0]
        x_abs, y_abs = magnitude(x[i]), magnitude(y[i])
        total += x_abs * y_abs
        # (x - rho_x) rho_y + rho_x |y|: all products with at least one private remainder.
        rho += x[i, last] * y_abs + (x_abs - x[i, last]) * y[i, last]
        centre += xc * yc
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
        centre += 0.5 * square
        rho += 0.5 * abs(square)
        for other in range(1, last):
            if other == k:
                continue
            pair, counted = 0.0, False
            for i in range(m):
                pair += x[i, k] * y[i, other] + x[i, other] * y[i, k]
                counted = counted or x[i, other] != 0.0
            # A pair of two active symbols is met twice: count it at the larger index.
            if not (counted and other > k):
                rho += abs(pair)
    out[0] = centre
    out[last] = rho + _slack(total, last * last + 6 * m + 16)


@njit(cache=True)
def mul(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """``out = x y``; out must not alias. The sparser factor first is faster."""
    size = x.shape[0]
    dot(x.reshape(1, size), y.reshape(1, size), out)


@njit(cache=True)
def sin_cos(x: FloatArray, sin_out: FloatArray, cos_out: FloatArray) -> None:
    r"""Sine and cosine of a form (radians); outputs must not alias x.

    With ``x = c + d``, ``|d| <= D`` over the whole form: ``cos d in [1 - D^2/2, 1]``, and by the Chebyshev polynomial
    T_3, ``|sin d - (1 - D^2/8) d| <= D^3/24 + D^5/120``; then the addition theorem. The remainders are those of the
    range, not of the centre.
    """
    last = x.shape[0] - 1
    radius = x[last]
    for k in range(1, last):
        radius += abs(x[k])
    radius += _slack(radius, last + 2)
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
