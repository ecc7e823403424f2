r"""Joint rotations applied to three-vectors of affine forms: compiled kernels.

A vector is an array (3, K + 2) of forms whose private remainder is one ball (see
:mod:`safe_sysid.reachability.rotations`). A joint's angle is ``q_c + d``, ``d = d_t eps_t + d_e eps_j + rho u``: only
two symbols. So the rotation at q_c is applied as a float matrix, exactly linear, and what is left is a small turn

.. math:: \exp(d [a]) v = v + \sin d\; a \times v + (1 - \cos d)\, a \times (a \times v),

a rotation itself: it leaves balls as they are. With ``v = c + sum v_k eps_k`` the second-order part is

.. math:: (d_t \epsilon_t + d_e \epsilon_j) \sum_k \epsilon_k\, a \times v_k
    + \tfrac12 (d_t \epsilon_t + d_e \epsilon_j)^2\, a \times (a \times c).

Its squares have a mean, which is a shift. Along any unit vector n it is, in a ball's block, a symmetric form with one
row ``b = n^T B`` only, of eigenvalues ``(b_j +- |b|) / 2``: a ball of radius ``|B|_2 / 2``. The columns of B are at
right angles to the axis, so the norm is that of a matrix of rank two, in closed form. Third order, by Taylor's theorem
over the whole range: ``|sin d - d| <= |d|^3 / 6``, ``|1 - cos d - d^2 / 2| <= d^4 / 24``.
"""

from __future__ import annotations

import math

from numba import njit

from safe_sysid.core.arrays import FloatArray

__all__ = ["apply_matrix", "joint_matrix", "rank_two_norm", "small_turn"]

_EPS = 2.0**-52
_TINY = 1e-150
_UP = 1.0 + 16.0 * _EPS


@njit(cache=True, nogil=True)
def joint_matrix(parts: FloatArray, angle: float, out: FloatArray) -> None:
    """``out`` (3, 3) = ``A_0 + A_1 cos + A_2 sin`` of :func:`rotations.rotation_parts`; errors are the caller's."""
    s, c = math.sin(angle), math.cos(angle)
    for i in range(3):
        for k in range(3):
            out[i, k] = parts[0, i, k] + parts[1, i, k] * c + parts[2, i, k] * s


@njit(cache=True, nogil=True)
def rank_two_norm(a: float, b: float, c: float, d: float, e: float, f: float) -> float:
    """Upper bound of ``|B|_2`` from the Gram matrix [[a, d, e], [d, b, f], [e, f, c]] = B B^T of a B of rank two.

    The larger eigenvalue is ``(tr + sqrt(2 tr(G^2) - tr^2)) / 2``. Rounding of G (1e-15 of its trace) moves the
    root's argument by less than what is added to it.
    """
    trace = a + b + c
    squares = a * a + b * b + c * c + 2.0 * (d * d + e * e + f * f)
    spread = max(2.0 * squares - trace * trace, 0.0) + 256.0 * _EPS * trace * trace
    return math.sqrt(0.5 * (trace + math.sqrt(spread))) * _UP


@njit(cache=True, nogil=True)
def small_turn(
    v: FloatArray,
    axis: FloatArray,
    angle: FloatArray,
    sign: float,
    joint: int,
    n: int,
    first: int,
    last: int,
    with_r: int,
) -> None:
    """``v = exp(sign d [axis]) v`` in place, ``angle`` (5,) = centre (ignored), time, e, r (ignored), remainder of d.

    v depends on time, on the errors e of joints ``first`` to before ``last`` and on r of joints before ``with_r``;
    after it on e of ``joint`` as well, even if that lies outside.
    """
    rho = v.shape[1] - 1
    a0, a1, a2 = axis[0], axis[1], axis[2]
    dt, de, dr = sign * angle[1], sign * angle[2], angle[4]
    size = abs(dt) + abs(de) + dr
    c0, c1, c2 = v[0, 0], v[1, 0], v[2, 0]
    x0, x1, x2 = a1 * c2 - a2 * c1, a2 * c0 - a0 * c2, a0 * c1 - a1 * c0
    xx0, xx1, xx2 = a1 * x2 - a2 * x1, a2 * x0 - a0 * x2, a0 * x1 - a1 * x0
    t0, t1, t2 = v[0, 1], v[1, 1], v[2, 1]
    yt0, yt1, yt2 = a1 * t2 - a2 * t1, a2 * t0 - a0 * t2, a0 * t1 - a1 * t0
    total = abs(c0) + abs(c1) + abs(c2) + abs(t0) + abs(t1) + abs(t2)
    # Gram matrices of a x v_k over the other errors e and over r; norms of v_k.
    g00, g11, g22, g01, g02, g12, norm_e = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    yj0, yj1, yj2 = 0.0, 0.0, 0.0
    for k in range(2 + first, 2 + last):
        v0, v1, v2 = v[0, k], v[1, k], v[2, k]
        y0, y1, y2 = a1 * v2 - a2 * v1, a2 * v0 - a0 * v2, a0 * v1 - a1 * v0
        total += abs(v0) + abs(v1) + abs(v2)
        norm_e += v0 * v0 + v1 * v1 + v2 * v2
        if k == 2 + joint:
            yj0, yj1, yj2 = y0, y1, y2
        else:
            g00 += y0 * y0
            g11 += y1 * y1
            g22 += y2 * y2
            g01 += y0 * y1
            g02 += y0 * y2
            g12 += y1 * y2
    r00, r11, r22, r01, r02, r12, norm_r = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(2 + n, 2 + n + with_r):
        v0, v1, v2 = v[0, k], v[1, k], v[2, k]
        y0, y1, y2 = a1 * v2 - a2 * v1, a2 * v0 - a0 * v2, a0 * v1 - a1 * v0
        total += abs(v0) + abs(v1) + abs(v2)
        norm_r += v0 * v0 + v1 * v1 + v2 * v2
        r00 += y0 * y0
        r11 += y1 * y1
        r22 += y2 * y2
        r01 += y0 * y1
        r02 += y0 * y2
        r12 += y1 * y2
    # Squares of time and of e_joint, and their product.
    s0, s1, s2 = dt * (yt0 + 0.5 * dt * xx0), dt * (yt1 + 0.5 * dt * xx1), dt * (yt2 + 0.5 * dt * xx2)
    b0, b1, b2 = de * (yj0 + 0.5 * de * xx0), de * (yj1 + 0.5 * de * xx1), de * (yj2 + 0.5 * de * xx2)
    m0 = dt * yj0 + de * (yt0 + dt * xx0)
    m1 = dt * yj1 + de * (yt1 + dt * xx1)
    m2 = dt * yj2 + de * (yt2 + dt * xx2)
    p, q = de * de, dt * dt
    own = rank_two_norm(
        p * g00 + b0 * b0, p * g11 + b1 * b1, p * g22 + b2 * b2,
        p * g01 + b0 * b1, p * g02 + b0 * b2, p * g12 + b1 * b2,
    )  # fmt: skip
    timed = rank_two_norm(
        q * g00 + m0 * m0, q * g11 + m1 * m1, q * g22 + m2 * m2,
        q * g01 + m0 * m1, q * g02 + m0 * m2, q * g12 + m1 * m2,
    )  # fmt: skip
    by_r = rank_two_norm(r00, r11, r22, r01, r02, r12)
    square = math.sqrt(s0 * s0 + s1 * s1 + s2 * s2)
    second = 0.5 * (own + square) + timed + (abs(dt) + abs(de)) * by_r
    across = math.sqrt(x0 * x0 + x1 * x1 + x2 * x2)
    reach = math.sqrt(t0 * t0 + t1 * t1 + t2 * t2) + math.sqrt(norm_e) + math.sqrt(norm_r)
    private = dr * (across * (1.0 + size) + reach)
    d2 = size * size
    third = 0.5 * d2 * reach + (d2 * size / 6.0 + d2 * d2 / 24.0) * (across + reach)
    v[0, 0] = c0 + 0.5 * (s0 + b0)
    v[1, 0] = c1 + 0.5 * (s1 + b1)
    v[2, 0] = c2 + 0.5 * (s2 + b2)
    v[0, 1], v[1, 1], v[2, 1] = t0 + dt * x0, t1 + dt * x1, t2 + dt * x2
    j = 2 + joint
    v[0, j], v[1, j], v[2, j] = v[0, j] + de * x0, v[1, j] + de * x1, v[2, j] + de * x2
    # The axis is a unit vector but for rounding; no term passes through more than 40 roundings.
    ball = (v[0, rho] + second + private + third) * _UP
    ball += 128.0 * _EPS * total * (1.0 + size) * (1.0 + size) + _TINY
    v[0, rho], v[1, rho], v[2, rho] = ball, ball, ball


@njit(cache=True, nogil=True)
def apply_matrix(
    m: FloatArray,
    transposed: bool,
    error: float,
    stretch: float,
    v: FloatArray,
    n: int,
    first: int,
    last: int,
    with_r: int,
    out: FloatArray,
) -> None:
    """``out = R v`` or ``R^T v`` for a rotation R within ``error`` of m, entry by entry, ``|R| <= stretch``.

    v depends on what it depends on as in :func:`small_turn`; other symbols of ``out`` (not v itself) stay as they are.
    """
    rho = v.shape[1] - 1
    if transposed:
        m00, m01, m02 = m[0, 0], m[1, 0], m[2, 0]
        m10, m11, m12 = m[0, 1], m[1, 1], m[2, 1]
        m20, m21, m22 = m[0, 2], m[1, 2], m[2, 2]
    else:
        m00, m01, m02 = m[0, 0], m[0, 1], m[0, 2]
        m10, m11, m12 = m[1, 0], m[1, 1], m[1, 2]
        m20, m21, m22 = m[2, 0], m[2, 1], m[2, 2]
    total = 0.0
    for part in range(3):
        if part == 0:
            start, stop = 0, 2
        elif part == 1:
            start, stop = 2 + first, 2 + last
        else:
            start, stop = 2 + n, 2 + n + with_r
        for k in range(start, stop):
            x, y, z = v[0, k], v[1, k], v[2, k]
            out[0, k] = m00 * x + m01 * y + m02 * z
            out[1, k] = m10 * x + m11 * y + m12 * z
            out[2, k] = m20 * x + m21 * y + m22 * z
            total += abs(x) + abs(y) + abs(z)
    # |error matrix| <= 3 error; entries of m are below 1 + error: five roundings each.
    ball = v[0, rho] * stretch * _UP + (3.0 * error + 24.0 * _EPS) * total * _UP + _TINY
    out[0, rho], out[1, rho], out[2, rho] = ball, ball, ball
