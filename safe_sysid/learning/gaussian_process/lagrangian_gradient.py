r"""Reverse mode of the LIP kernel by hand: from a derivative by its entries to one by its parameters.

For a pair of samples with ``S = sum_ab G_ab K_ab`` of their block K (symbols: :mod:`.lagrangian_kernel`), link i gives
``S_i = P Phi``, with ``x.G.y`` for ``x^T G y``:

    Phi = 2 { beta'.G.beta + U beta'.G.alpha + U' alpha'.G.beta + (U U' + M) alpha'.G.alpha - (h1 + h U) alpha'.G.u'
              - h alpha'.G.(v m) - (h2 + h U') u.G.alpha - h (v' m).G.alpha + g E } + h^2 (u.G.u' + sum_a G_aa m_a),
    g = sum_a G_aa w_a,    E = h12 + h1 U' + h2 U + h (U U' + M),

whose derivatives by w and by ``p, p_q, p_q', p_qq'`` are written out below: eight products of G with a vector for each
link. The tests hold them against differences of the kernel.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES

__all__ = ["sum_gradients"]


_SMALL: Final = 1e-8  # of a factor p, relative to its weights: below, its derivatives are those at this value
# Rows of the scratch.
_P, _P1, _P2, _P12, _U1, _U2, _MIX, _Y1, _Y2, _GU, _GM, _Z1, _Z2, _TU, _TM, _WV, _WA, _VM, _R = range(19)


@njit(cache=True, nogil=True, error_model="numpy")
def _factors(
    i: int, count: int, x: FloatArray, y: FloatArray, position: FloatArray, power: float, s: FloatArray
) -> None:
    """``p``, its derivatives over p, 1 / p, and those of ``log p^power`` by q, q' and both, of a link's joints."""
    for b in range(count):
        k = b * FEATURES
        sigma, c, z = position[i, b, 0], position[i, b, 1], position[i, b, 2]
        p = sigma + c * x[k] * y[k] + z * x[k + 2] * y[k + 2]
        least = _SMALL * (sigma + c + z)
        if abs(p) < least:
            p = least
        p1 = c * x[k + 1] * y[k] + z * x[k + 3] * y[k + 2]
        p2 = c * x[k] * y[k + 1] + z * x[k + 2] * y[k + 3]
        p12 = c * x[k + 1] * y[k + 1] + z * x[k + 3] * y[k + 3]
        r = 1.0 / p
        s[_P, b], s[_P1, b], s[_P2, b], s[_P12, b], s[_R, b] = p, p1 * r, p2 * r, p12 * r, r
        s[_U1, b], s[_U2, b] = power * s[_P1, b], power * s[_P2, b]
        s[_MIX, b] = power * (s[_P12, b] - s[_P1, b] * s[_P2, b])


@njit(cache=True, nogil=True, error_model="numpy")
def _to_position(
    i: int,
    b: int,
    x: FloatArray,
    y: FloatArray,
    power: float,
    by_log: float,
    by_u1: float,
    by_u2: float,
    by_mix: float,
    s: FloatArray,
    out: FloatArray,
) -> None:
    """Add to ``out[i, b]`` (3,) the derivative by a joint's sigma, c, s, given those by log p, u, u' and m."""
    p1, p2, p12, k = s[_P1, b], s[_P2, b], s[_P12, b], b * FEATURES
    r = power * s[_R, b]
    by_p = s[_R, b] * by_log + r * (by_mix * (2.0 * p1 * p2 - p12) - by_u1 * p1 - by_u2 * p2)
    by_1 = r * (by_u1 - by_mix * p2)
    by_2 = r * (by_u2 - by_mix * p1)
    by_12 = r * by_mix
    out[i, b, 0] += by_p
    out[i, b, 1] += by_p * x[k] * y[k] + by_1 * x[k + 1] * y[k] + by_2 * x[k] * y[k + 1] + by_12 * x[k + 1] * y[k + 1]
    k += 2
    out[i, b, 2] += by_p * x[k] * y[k] + by_1 * x[k + 1] * y[k] + by_2 * x[k] * y[k + 1] + by_12 * x[k + 1] * y[k + 1]


@njit(cache=True, nogil=True, error_model="numpy")
def _link(
    i: int,
    x: FloatArray,
    y: FloatArray,
    weights: FloatArray,
    position: FloatArray,
    G: FloatArray,
    s: FloatArray,
    d_weights: FloatArray,
    d_position: FloatArray,
) -> None:
    """Add the derivatives of ``S_i``; G (n, n), s the scratch (19, n), the rest as in :func:`sum_gradients`."""
    m = i + 1
    _factors(i, m, x, y, position, 2.0, s)
    P, U1, U2, M, h, h1, h2, h12 = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for b in range(m):
        k = b * FEATURES + 4
        w, v, acc, v2, acc2 = weights[i, b], x[k], x[k + 1], y[k], y[k + 1]
        P *= s[_P, b] * s[_P, b]
        U1 += v * s[_U1, b]
        U2 += v2 * s[_U2, b]
        M += v * v2 * s[_MIX, b]
        h, h1, h2, h12 = h + w * v * v2, h1 + w * acc * v2, h2 + w * v * acc2, h12 + w * acc * acc2
        s[_WV, b], s[_WA, b], s[_VM, b] = w * v, w * acc, v * s[_MIX, b]
        for r in range(_Z1, _TM + 1):
            s[r, b] = 0.0
    for a in range(m):
        ka = a * FEATURES + 4
        va, aa = weights[i, a] * y[ka], weights[i, a] * y[ka + 1]
        ua, ma = s[_U1, a], y[ka] * s[_MIX, a]
        y1, y2, gu, gm = 0.0, 0.0, 0.0, 0.0
        for b in range(m):
            g = G[a, b]
            y1 += g * s[_WV, b]
            y2 += g * s[_WA, b]
            gu += g * s[_U2, b]
            gm += g * s[_VM, b]
            s[_Z1, b] += g * va
            s[_Z2, b] += g * aa
            s[_TU, b] += g * ua
            s[_TM, b] += g * ma
        s[_Y1, a], s[_Y2, a], s[_GU, a], s[_GM, a] = y1, y2, gu, gm
    bb, ba, ab, aa2, e1, e2, f1, f2, q, g = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for b in range(m):
        k = b * FEATURES + 4
        w = weights[i, b]
        bb += w * y[k + 1] * s[_Y2, b]
        ba += w * y[k + 1] * s[_Y1, b]
        ab += w * y[k] * s[_Y2, b]
        aa2 += w * y[k] * s[_Y1, b]
        e1 += s[_Z1, b] * s[_U2, b]
        e2 += s[_Y1, b] * s[_U1, b]
        f1 += s[_Z1, b] * s[_VM, b]
        f2 += s[_Y1, b] * y[k] * s[_MIX, b]
        q += s[_U1, b] * s[_GU, b] + G[b, b] * s[_MIX, b]
        g += G[b, b] * w
    D1, D2, UM = h1 + h * U1, h2 + h * U2, U1 * U2 + M
    E = h12 + h1 * U2 + h2 * U1 + h * UM
    phi = 2.0 * (bb + U1 * ba + U2 * ab + UM * aa2 - D1 * e1 - h * f1 - D2 * e2 - h * f2 + g * E) + h * h * q
    by_U1 = 2.0 * P * (ba + U2 * aa2 - h * e1 + g * D2)
    by_U2 = 2.0 * P * (ab + U1 * aa2 - h * e2 + g * D1)
    by_M = 2.0 * P * (aa2 + g * h)
    by_h = 2.0 * P * (g * UM - U1 * e1 - f1 - U2 * e2 - f2 + h * q)
    by_h1, by_h2, by_h12 = 2.0 * P * (g * U2 - e1), 2.0 * P * (g * U1 - e2), 2.0 * P * g
    for b in range(m):
        k = b * FEATURES + 4
        v, acc, v2, acc2 = x[k], x[k + 1], y[k], y[k + 1]
        y1, z1, gu, tu = s[_Y1, b], s[_Z1, b], s[_GU, b], s[_TU, b]
        alpha = U1 * s[_Z2, b] + UM * z1 - D2 * tu - h * s[_TM, b]
        beta = s[_Z2, b] + U2 * z1
        alpha2 = U2 * s[_Y2, b] + UM * y1 - D1 * gu - h * s[_GM, b]
        beta2 = s[_Y2, b] + U1 * y1
        d_weights[i, b] += (
            2.0 * P * (v * alpha + acc * beta + v2 * alpha2 + acc2 * beta2 + E * G[b, b])
            + v * v2 * by_h
            + acc * v2 * by_h1
            + v * acc2 * by_h2
            + acc * acc2 * by_h12
        )
        by_u1 = by_U1 * v + P * (h * h * gu - 2.0 * D2 * y1)
        by_u2 = by_U2 * v2 + P * (h * h * tu - 2.0 * D1 * z1)
        by_mix = by_M * v * v2 + P * (h * h * G[b, b] - 2.0 * h * (z1 * v + y1 * v2))
        _to_position(i, b, x, y, 2.0, 2.0 * P * phi, by_u1, by_u2, by_mix, s, d_position)


@njit(cache=True, nogil=True, error_model="numpy")
def _potential(
    n: int, x: FloatArray, y: FloatArray, potential: FloatArray, G: FloatArray, s: FloatArray, out: FloatArray
) -> None:
    """Add the derivatives of the potential energy's share ``V (u'G u' + sum_a G_aa m_a)`` by its weights (1, n, 3)."""
    _factors(0, n, x, y, potential, 1.0, s)
    V, q = 1.0, 0.0
    for a in range(n):
        V *= s[_P, a]
        s[_GU, a] = 0.0
        s[_TU, a] = 0.0
    for a in range(n):
        for b in range(n):
            s[_GU, a] += G[a, b] * s[_U2, b]
            s[_TU, b] += G[a, b] * s[_U1, a]
    for a in range(n):
        q += s[_U1, a] * s[_GU, a] + G[a, a] * s[_MIX, a]
    for b in range(n):
        _to_position(0, b, x, y, 1.0, V * q, V * s[_GU, b], V * s[_TU, b], V * G[b, b], s, out)


@njit(cache=True, nogil=True, error_model="numpy")
def sum_gradients(
    first: int,
    step: int,
    rows: FloatArray,
    weights: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    inverse: FloatArray,
    dual: FloatArray,
    d_weights: FloatArray,
    d_position: FloatArray,
    d_potential: FloatArray,
) -> None:
    """Add the derivatives of ``(log det C + y^T C^-1 y) / 2`` by the kernel's parameters, for a share of the rows.

    Args:
        first: row of the share, 0..step - 1.
        rows: (N, n * FEATURES) samples.
        weights: (n, n), see :func:`.lagrangian_kernel.torque_block`.
        position: (n, n, 3).
        potential: (n, 3).
        inverse: (N n, N n) ``C^-1``, of which the triangle at and below the diagonal is read.
        dual: (N n,) ``C^-1 y``.
        d_weights: (n, n), added to.
        d_position: (n, n, 3), added to.
        d_potential: (n, 3), added to.
    """
    n = potential.shape[0]
    s, G = np.zeros((19, n)), np.zeros((n, n))
    only, d_only = potential.reshape(1, n, 3), d_potential.reshape(1, n, 3)
    for r in range(first, rows.shape[0], step):
        x = rows[r]
        for j in range(r + 1):
            share = 0.5 if r == j else 1.0  # a pair counts in both orders
            for a in range(n):
                for b in range(n):
                    ra, jb = r * n + a, j * n + b
                    entry = inverse[ra, jb] if ra >= jb else inverse[jb, ra]
                    G[a, b] = share * (entry - dual[ra] * dual[jb])
            y = rows[j]
            for i in range(n):
                _link(i, x, y, weights, position, G, s, d_weights, d_position)
            _potential(n, x, y, only, G, s, d_only)
