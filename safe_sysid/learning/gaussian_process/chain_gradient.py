r"""Reverse mode of the chain's kernel by hand: from a derivative by its entries to one by its parameters.

For a pair of samples and ``S = sum_ab G_ab K_ab`` of their block K (:mod:`.chain_kernel`), S is a sum over b of
``L L'_b (k_T + k_V)`` with ``L = sum_a G_ab G_a``, and what L does to a product of functions of x is what
multiplication does to numbers with two parts whose squares vanish: to f belong ``f + (D f) d + f_g g + (L f) d g`` with
``f_g = sum_a G_ab df/dv_a``. A position's function has ``f, v f_q, 0, -G_ib f_q``, a velocity ``v, A, G_ib, 0``. With
the same for x', functions of both are 16 numbers, ``h_i = p_i h_(i-1) + w_i v_i v'_i`` holds for them, and ``(h^2)``
at d g d' g' is what is looked for. The way back follows from that in a few lines. Nothing is divided by. The tests hold
the derivatives against differences of the kernel, also where p vanishes. Sixteen samples x' at once, as there.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES, LANES, load_lanes

__all__ = ["sum_chain_gradients"]

_L = np.uint64(LANES)
# Rows of LANES numbers for a joint: what is looked for, summed over pairs; features of x'; G_ib; factors of the kinetic
# (at 1, d, dg of x, then of x') and of the potential energy (at 1, dg); numbers before the joint, of x at 1, d, g, dg,
# and derivatives by them.
_ROWS: Final = 69
_JOINT = np.uint64(_ROWS * LANES)
_KEPT: Final = 9
# fmt: off
(TO_SPEED, TO_LINK, TO_HEIGHT, TO_SIGMA, TO_C, TO_S, TO_SIGMA_V, TO_C_V, TO_S_V,
 F, DF, G, DG, VEL, ACC, LEFT,
 P00, P01, P03, P10, P11, P13, P30, P31, P33, V00, V03, V30, V33,
 H00, H01, H02, H03, H10, H11, H12, H13, H20, H21, H22, H23, H30, H31, H32, H33, M00, M03, M30, M33,
 B00, B01, B02, B03, B10, B11, B12, B13, B20, B21, B22, B23, B30, B31, B32, B33, N00, N03, N30, N33) = (
    np.uint64(LANES * k) for k in range(_ROWS))
# fmt: on
_Four = tuple[float, float, float, float]


@njit(inline="always")
def _times(p: tuple[float, float, float], h: _Four) -> _Four:
    """Product of numbers at (1, d, dg) with ones at (1, d, g, dg)."""
    return p[0] * h[0], p[0] * h[1] + p[1] * h[0], p[0] * h[2], p[0] * h[3] + p[1] * h[2] + p[2] * h[0]


@njit(inline="always")
def _times_back(p: tuple[float, float, float], b: _Four) -> _Four:
    """Derivative by h of :func:`_times`, b that by the product."""
    return p[0] * b[0] + p[1] * b[1] + p[2] * b[3], p[0] * b[1], p[0] * b[2] + p[1] * b[3], p[0] * b[3]


@njit(inline="always")
def _times_factor(h: _Four, b: _Four) -> tuple[float, float, float]:
    """Derivative by p of :func:`_times`."""
    return h[0] * b[0] + h[1] * b[1] + h[2] * b[2] + h[3] * b[3], h[0] * b[1] + h[2] * b[3], h[0] * b[3]


@njit(inline="always")
def _four(w: FloatArray, o: np.uint64) -> _Four:
    return w[o], w[o + _L], w[o + _L + _L], w[o + _L + _L + _L]


@njit(inline="always")
def _three(w: FloatArray, o: np.uint64) -> tuple[float, float, float]:
    return w[o], w[o + _L], w[o + _L + _L]


@njit(inline="always")
def _put(w: FloatArray, o: np.uint64, a: _Four, b: _Four, c: _Four) -> None:
    """Write the sum of three."""
    w[o], w[o + _L] = a[0] + b[0] + c[0], a[1] + b[1] + c[1]
    w[o + _L + _L], w[o + _L + _L + _L] = a[2] + b[2] + c[2], a[3] + b[3] + c[3]


@njit(cache=True, nogil=True)
def _out(
    n: int, chosen: int, row: FloatArray, speeds: FloatArray, position: FloatArray, potential: FloatArray, w: FloatArray
) -> None:
    """Along the chain: factors, and numbers before every joint; x' has one for joint `chosen`."""
    zero = (0.0, 0.0, 0.0, 0.0)
    for k in range(H00, M00):
        w[k] = 0.0
    for j in range(_L):
        w[M00 + j], w[M03 + j], w[M30 + j], w[M33 + j] = 1.0, 0.0, 0.0, 0.0
    for i in range(n):
        o, k = np.uint64(i) * _JOINT, i * FEATURES
        t = o + _JOINT
        a = 1.0 if i == chosen else 0.0
        f, df, g, dg, v, acc = row[k], row[k + 1], row[k + 2], row[k + 3], row[k + 4], row[k + 5]
        sigma, c, s = position[i, 0], position[i, 1], position[i, 2]
        for j in range(_L):
            left, vel = w[o + LEFT + j], w[o + VEL + j]
            f0, f1, g0, g1 = c * w[o + F + j], c * w[o + DF + j], s * w[o + G + j], s * w[o + DG + j]
            p, p_r, p_l, p_b = sigma + f * f0 + g * g0, f * f1 + g * g1, df * f0 + dg * g0, df * f1 + dg * g1
            w[o + P00 + j], w[o + P01 + j], w[o + P03 + j] = p, vel * p_r, -a * p_r
            w[o + P10 + j], w[o + P11 + j], w[o + P13 + j] = v * p_l, v * vel * p_b, -a * v * p_b
            w[o + P30 + j], w[o + P31 + j], w[o + P33 + j] = -left * p_l, -left * vel * p_b, a * left * p_b
        sigma, c, s = potential[i, 0], potential[i, 1], potential[i, 2]
        for j in range(_L):
            left = w[o + LEFT + j]
            f0, f1, g0, g1 = c * w[o + F + j], c * w[o + DF + j], s * w[o + G + j], s * w[o + DG + j]
            w[o + V00 + j], w[o + V03 + j] = sigma + f * f0 + g * g0, -a * (f * f1 + g * g1)
            w[o + V30 + j], w[o + V33 + j] = -left * (df * f0 + dg * g0), a * left * (df * f1 + dg * g1)
        weight = speeds[i]
        for j in range(_L):
            p0, p1, p3 = _three(w, o + P00 + j), _three(w, o + P10 + j), _three(w, o + P30 + j)
            h0, h1, h2, h3 = _four(w, o + H00 + j), _four(w, o + H10 + j), _four(w, o + H20 + j), _four(w, o + H30 + j)
            u = weight * w[o + VEL + j], weight * w[o + ACC + j], weight * a
            left = w[o + LEFT + j]
            _put(w, t + H00 + j, _times(p0, h0), zero, (v * u[0], v * u[1], v * u[2], 0.0))
            _put(w, t + H10 + j, _times(p0, h1), _times(p1, h0), (acc * u[0], acc * u[1], acc * u[2], 0.0))
            _put(w, t + H20 + j, _times(p0, h2), zero, (left * u[0], left * u[1], left * u[2], 0.0))
            _put(w, t + H30 + j, _times(p0, h3), _times(p1, h2), _times(p3, h0))
            m00, m03, m30, m33 = _four(w, o + M00 + j)
            v00, v03, v30, v33 = _four(w, o + V00 + j)
            w[t + M00 + j], w[t + M03 + j] = v00 * m00, v00 * m03 + v03 * m00
            w[t + M30 + j], w[t + M33 + j] = v00 * m30 + v30 * m00, v00 * m33 + v03 * m30 + v30 * m03 + v33 * m00


@njit(cache=True, nogil=True)
def _back(
    n: int, chosen: int, row: FloatArray, speeds: FloatArray, links: FloatArray, heights: FloatArray, w: FloatArray
) -> None:
    """Back to the base: derivatives are added to every joint's; `_out` went before."""
    zero = (0.0, 0.0, 0.0, 0.0)
    for k in range(B00, _JOINT):
        w[np.uint64(n) * _JOINT + k] = 0.0
    for c in range(n):
        i = n - 1 - c
        o, k = np.uint64(i) * _JOINT, i * FEATURES
        t = o + _JOINT
        a = 1.0 if i == chosen else 0.0
        f, df, g, dg, v, acc = row[k], row[k + 1], row[k + 2], row[k + 3], row[k + 4], row[k + 5]
        twice, z, weight = 2.0 * links[i], heights[i], speeds[i]
        for j in range(_L):  # of the link's own energies
            h0, h1, h2, h3 = _four(w, t + H00 + j), _four(w, t + H10 + j), _four(w, t + H20 + j), _four(w, t + H30 + j)
            w[o + TO_LINK + j] += twice * (
                (h0[0] * h3[3] + h0[1] * h3[2] + h0[2] * h3[1] + h0[3] * h3[0])
                + (h1[0] * h2[3] + h1[1] * h2[2] + h1[2] * h2[1] + h1[3] * h2[0])
            )
            w[o + TO_HEIGHT + j] += z * w[t + M33 + j]
            w[t + N33 + j] += z
            for_0, for_1 = (h3[3], h3[2], h3[1], h3[0]), (h2[3], h2[2], h2[1], h2[0])
            for_2, for_3 = (h1[3], h1[2], h1[1], h1[0]), (h0[3], h0[2], h0[1], h0[0])
            for e in range(4):
                m = np.uint64(e) * _L + j
                w[t + B00 + m] += twice * for_0[e]
                w[t + B10 + m] += twice * for_1[e]
                w[t + B20 + m] += twice * for_2[e]
                w[t + B30 + m] += twice * for_3[e]
        for j in range(_L):
            b0, b1, b2, b3 = _four(w, t + B00 + j), _four(w, t + B10 + j), _four(w, t + B20 + j), _four(w, t + B30 + j)
            p0, p1, p3 = _three(w, o + P00 + j), _three(w, o + P10 + j), _three(w, o + P30 + j)
            _put(w, o + B00 + j, _times_back(p0, b0), _times_back(p1, b1), _times_back(p3, b3))
            _put(w, o + B10 + j, _times_back(p0, b1), zero, zero)
            _put(w, o + B20 + j, _times_back(p0, b2), _times_back(p1, b3), zero)
            _put(w, o + B30 + j, _times_back(p0, b3), zero, zero)
            left, vel, acc2 = w[o + LEFT + j], w[o + VEL + j], w[o + ACC + j]
            w[o + TO_SPEED + j] += weight * (
                v * (b0[0] * vel + b0[1] * acc2 + b0[2] * a)
                + acc * (b1[0] * vel + b1[1] * acc2 + b1[2] * a)
                + left * (b2[0] * vel + b2[1] * acc2 + b2[2] * a)
            )
        for j in range(_L):
            b0, b1, b2, b3 = _four(w, t + B00 + j), _four(w, t + B10 + j), _four(w, t + B20 + j), _four(w, t + B30 + j)
            h0, h1, h2, h3 = _four(w, o + H00 + j), _four(w, o + H10 + j), _four(w, o + H20 + j), _four(w, o + H30 + j)
            first, second, third = _times_factor(h0, b0), _times_factor(h1, b1), _times_factor(h2, b2)
            fourth, d1, d2, d3 = (
                _times_factor(h3, b3), _times_factor(h0, b1), _times_factor(h2, b3), _times_factor(h0, b3)
            )  # fmt: skip
            left, vel = w[o + LEFT + j], w[o + VEL + j]
            # by p, by what belongs to its derivatives by q', by q and by both
            at_p = first[0] + second[0] + third[0] + fourth[0]
            at_r = vel * (first[1] + second[1] + third[1] + fourth[1]) - a * (
                first[2] + second[2] + third[2] + fourth[2]
            )
            at_l = v * (d1[0] + d2[0]) - left * d3[0]
            at_b = v * (vel * (d1[1] + d2[1]) - a * (d1[2] + d2[2])) - left * (vel * d3[1] - a * d3[2])
            w[o + TO_SIGMA + j] += at_p
            w[o + TO_C + j] += w[o + F + j] * (f * at_p + df * at_l) + w[o + DF + j] * (f * at_r + df * at_b)
            w[o + TO_S + j] += w[o + G + j] * (g * at_p + dg * at_l) + w[o + DG + j] * (g * at_r + dg * at_b)
        for j in range(_L):
            n00, n03, n30, n33 = _four(w, t + N00 + j)
            m00, m03, m30, m33 = _four(w, o + M00 + j)
            v00, v03, v30, v33 = _four(w, o + V00 + j)
            w[o + N00 + j], w[o + N03 + j] = v00 * n00 + v03 * n03 + v30 * n30 + v33 * n33, v00 * n03 + v30 * n33
            w[o + N30 + j], w[o + N33 + j] = v00 * n30 + v03 * n33, v00 * n33
            at_p, left = m00 * n00 + m03 * n03 + m30 * n30 + m33 * n33, w[o + LEFT + j]
            at_r, at_l, at_b = -a * (m00 * n03 + m30 * n33), -left * (m00 * n30 + m03 * n33), a * left * m00 * n33
            w[o + TO_SIGMA_V + j] += at_p
            w[o + TO_C_V + j] += w[o + F + j] * (f * at_p + df * at_l) + w[o + DF + j] * (f * at_r + df * at_b)
            w[o + TO_S_V + j] += w[o + G + j] * (g * at_p + dg * at_l) + w[o + DG + j] * (g * at_r + dg * at_b)


@njit(cache=True, nogil=True)
def _choose(
    r: int, start: int, count: int, b: int, n: int, inverse: FloatArray, dual: FloatArray, w: FloatArray
) -> None:
    """Derivative by the entries of column b of the blocks of sample r and the lanes; a pair counts in both orders."""
    for a in range(n):
        ra, o = r * n + a, a * _ROWS * LANES + LEFT
        for j in range(LANES):
            w[o + j] = 0.0
        for j in range(count):
            jb = (start + j) * n + b
            entry = inverse[ra, jb] if ra >= jb else inverse[jb, ra]
            w[o + j] = (0.5 if start + j == r else 1.0) * (entry - dual[ra] * dual[jb])


@njit(cache=True, nogil=True)
def sum_chain_gradients(
    first: int,
    step: int,
    rows: FloatArray,
    columns: FloatArray,
    speeds: FloatArray,
    links: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    heights: FloatArray,
    inverse: FloatArray,
    dual: FloatArray,
    out: FloatArray,
) -> None:
    """Add the derivatives of ``(log det C + y^T C^-1 y) / 2`` by the kernel's parameters, for a share of the rows.

    Args:
        first: row of the share, 0..step - 1.
        rows: (N, n * FEATURES) samples.
        columns: (n * FEATURES, N), the same.
        speeds: (n,), see :func:`.chain_kernel.torque_block`.
        links: (n,).
        position: (n, 3).
        potential: (n, 3).
        heights: (n,).
        inverse: (N n, N n) ``C^-1``, of which the triangle at and below the diagonal is read.
        dual: (N n,) ``C^-1 y``.
        out: (n, 9), added to: by the logarithms of speeds, links and heights, by position and by potential.
    """
    n = len(speeds)
    w = np.zeros((n + 1) * _ROWS * LANES)
    for r in range(first, rows.shape[0], step):
        for start in range(0, r + 1, LANES):
            count = load_lanes(n, columns, start, r + 1, F, _ROWS, w)
            for b in range(n):
                _choose(r, start, count, b, n, inverse, dual, w)
                _out(n, b, rows[r], speeds, position, potential, w)
                _back(n, b, rows[r], speeds, links, heights, w)
    for b in range(n):
        for k in range(_KEPT):
            for j in range(LANES):
                out[b, k] += w[(b * _ROWS + k) * LANES + j]
