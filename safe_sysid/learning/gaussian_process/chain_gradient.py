r"""Reverse mode of the chain's kernel by hand: from a derivative by its entries to one by its parameters.

The block of a link (:mod:`.chain_kernel`) in closed form: with ``W = w R``, ``u = p_q/p, u' = p_q'/p, n = p_qq'/p``,
``m = n - u u'`` and, behind joint a, ``r = D log R, r' = D' log R, T = (D D' R)/R``, before it
``C_a = sum_{c<a} W_c v_c v'_c``, C1 and C2 those of its D and D', of the link h, h1, h2, h12, it is, rows those of x,

    2 t { alpha gamma'^T + gamma alpha'^T + beta beta'^T + e e'^T
          - [above the diagonal]  y u'^T + (h alpha) (v m)^T
          - [below the diagonal]  u y'^T + (v' m) (h alpha')^T
          + diag( W (h12 + h1 r' + h2 r + h T) + h n C ) },
    alpha = W v',    beta = W (A' + v' r'),    e = alpha r - u C,    y = h e + h1 alpha,
    gamma = W (r A' + v' T) - u C2 - m v' C,

and the same with a prime for the other sample. For ``S = sum_ab G_ab K_ab`` every vector gets the derivative of S by
it: of ``alpha gamma'^T`` those are ``G gamma'`` and ``G^T alpha``, and so on, sixteen products of G or of one of its
triangles with a vector for each link. They are followed back through the sums along the chain to ``log W``, r, r', T,
and to ``log p, u, u', n`` of the joints, and at last, once for all links, to the weights. The tests hold them against
differences of the kernel. Sixteen samples x' at once, as there.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES, LANES

__all__ = ["sum_chain_gradients"]

_L = np.uint64(LANES)
_SMALL: Final = 1e-8  # of a factor p, relative to its weights: below, its derivatives are those at this value
# Rows of LANES numbers for a joint on the way forward, and sums of a link.
_FORWARD: Final = 32
_JOINT = np.uint64(_FORWARD * LANES)
# fmt: off
(F, DF, G, DG, VEL, ACC, PF, U1, U2, MIX, U12, W, R1, R2, T, C, C1, C2, ALPHA1, BETA1, GAMMA1, E1, Y1, HM1, ALPHA2,
 BETA2, GAMMA2, E2, Y2, HM2, REST, VABOVE) = (np.uint64(LANES * k) for k in range(_FORWARD))
# fmt: on
_SUMS: Final = 5
(H, H1, H2, H12, V) = (np.uint64(LANES * k) for k in range(_SUMS))
# Of a joint, in a workspace of its own: what is looked for, summed over pairs; derivatives by log p, u, u', n, summed
# over links; those of a link; products with G.
_ROWS: Final = 36
_OWN = np.uint64(_ROWS * LANES)
_KEPT: Final = 9
# fmt: off
(TO_SPEED, TO_LINK, TO_HEIGHT, TO_SIGMA, TO_C, TO_S, TO_SIGMA_V, TO_C_V, TO_S_V,
 B_LOG, B_U1, B_U2, B_U12, B_W, B_R1, B_R2, B_T, B_C, B_C1, B_C2,
 G_GAMMA2, G_ALPHA2, G_BETA2, G_E2, T_ALPHA1, T_GAMMA1, T_BETA1, T_E1, UP_U2, UP_HM2, T_UP_Y1, T_UP_ALPHA1, LOW_ALPHA2,
 LOW_Y2, T_LOW_U1, T_LOW_HM1) = (np.uint64(LANES * k) for k in range(_ROWS))
# fmt: on
_SHARED: Final = 4
(B_H, B_H1, B_H2, B_H12) = (np.uint64(LANES * k) for k in range(_SHARED))
(BEHIND, BY_R1, BY_R2, BY_T) = (B_H, B_H1, B_H2, B_H12)  # on the way along the chain, in the same places


@njit(cache=True, nogil=True)
def _load(n: int, columns: FloatArray, start: int, w: FloatArray) -> int:
    """Take up to LANES samples x' into the workspace; lanes without a sample have zeros.

    ``columns``: (n * FEATURES, N) of the samples x'; ``w``: (n * _FORWARD * LANES,). Returns samples taken.
    """
    count = min(LANES, columns.shape[1] - start)
    for b in range(n):
        for k in range(FEATURES):
            o = b * _FORWARD * LANES + k * LANES
            for j in range(count):
                w[o + j] = columns[b * FEATURES + k, start + j]
            for j in range(count, LANES):
                w[o + j] = 0.0
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _joint_factors(n: int, row: FloatArray, position: FloatArray, w: FloatArray) -> None:
    """Of every joint p, u, u', n and m. ``row``: (n * FEATURES,) of x; ``position``: (n, 3)."""
    for b in range(n):
        o = np.uint64(b) * _JOINT
        k = b * FEATURES
        sigma, c, s = position[b, 0], position[b, 1], position[b, 2]
        least = _SMALL * (sigma + c + s)
        f, df, g, dg = c * row[k], c * row[k + 1], s * row[k + 2], s * row[k + 3]
        for j in range(_L):
            p = sigma + f * w[o + F + j] + g * w[o + G + j]
            if abs(p) < least:
                p = least
            w[o + PF + j] = p
            w[o + MIX + j] = 1.0 / p
        for j in range(_L):
            fj, dfj, gj, dgj, inverse = w[o + F + j], w[o + DF + j], w[o + G + j], w[o + DG + j], w[o + MIX + j]
            u1, u2 = inverse * (df * fj + dg * gj), inverse * (f * dfj + g * dgj)
            u12 = inverse * (df * dfj + dg * dgj)
            w[o + U1 + j], w[o + U2 + j], w[o + U12 + j] = u1, u2, u12
            w[o + MIX + j] = u12 - u1 * u2


@njit(cache=True, nogil=True, error_model="numpy")
def _link_terms(m: int, n: int, row: FloatArray, speeds: FloatArray, w: FloatArray) -> None:
    """Vectors and sums of the link that the first m joints move; `_joint_factors` went before.

    ``row``: (n * FEATURES,) of x; ``speeds``: (n,) w_b.
    """
    s = np.uint64(n) * _JOINT
    o = np.uint64(m - 1) * _JOINT
    for j in range(_L):
        w[o + W + j] = 1.0
        w[o + R1 + j], w[o + R2 + j], w[o + T + j] = 0.0, 0.0, 0.0
    for c in range(m - 1, 0, -1):  # from the link towards the base: what lies behind a joint
        o, t = np.uint64(c) * _JOINT, np.uint64(c - 1) * _JOINT
        v = row[c * FEATURES + 4]
        for j in range(_L):
            vel = w[o + VEL + j]
            d1, d2 = v * w[o + U1 + j], vel * w[o + U2 + j]
            r1, r2 = w[o + R1 + j], w[o + R2 + j]
            w[t + W + j] = w[o + W + j] * w[o + PF + j]
            w[t + T + j] = w[o + T + j] + d1 * r2 + d2 * r1 + v * vel * w[o + U12 + j]
            w[t + R1 + j] = r1 + d1
            w[t + R2 + j] = r2 + d2
    for j in range(np.uint64(4) * _L):
        w[s + j] = 0.0
    for b in range(m):  # from the base: what lies before it
        o = np.uint64(b) * _JOINT
        weight, v, acc = speeds[b], row[b * FEATURES + 4], row[b * FEATURES + 5]
        for j in range(_L):
            own = weight * w[o + W + j]
            vel, acc2, r1, r2, t = w[o + VEL + j], w[o + ACC + j], w[o + R1 + j], w[o + R2 + j], w[o + T + j]
            alpha1, alpha2, b1, b2 = own * vel, own * v, acc + v * r1, acc2 + vel * r2
            c, c1, c2 = w[s + H + j], w[s + H1 + j], w[s + H2 + j]
            u1, u2, mix = w[o + U1 + j], w[o + U2 + j], w[o + MIX + j]
            w[o + W + j], w[o + C + j], w[o + C1 + j], w[o + C2 + j] = own, c, c1, c2
            w[o + ALPHA1 + j], w[o + ALPHA2 + j] = alpha1, alpha2
            w[o + BETA1 + j], w[o + BETA2 + j] = own * b2, own * b1
            w[o + E1 + j], w[o + E2 + j] = alpha1 * r1 - u1 * c, alpha2 * r2 - u2 * c
            w[o + GAMMA1 + j] = own * (r1 * acc2 + vel * t) - u1 * c2 - mix * vel * c
            w[o + GAMMA2 + j] = own * (r2 * acc + v * t) - u2 * c1 - mix * v * c
            w[s + H + j] = c + alpha1 * v
            w[s + H1 + j] = c1 + alpha1 * b1
            w[s + H2 + j] = c2 + alpha2 * b2
            w[s + H12 + j] += own * (acc * b2 + v * (acc2 * r1 + vel * t))
    for b in range(m):
        o = np.uint64(b) * _JOINT
        v = row[b * FEATURES + 4]
        for j in range(_L):
            h, h1, h2 = w[s + H + j], w[s + H1 + j], w[s + H2 + j]
            w[o + Y1 + j] = h * w[o + E1 + j] + h1 * w[o + ALPHA1 + j]
            w[o + Y2 + j] = h * w[o + E2 + j] + h2 * w[o + ALPHA2 + j]
            w[o + HM1 + j] = h * w[o + VEL + j] * w[o + MIX + j]
            w[o + HM2 + j] = h * v * w[o + MIX + j]
            w[o + REST + j] = (
                w[o + W + j] * (w[s + H12 + j] + h1 * w[o + R2 + j] + h2 * w[o + R1 + j] + h * w[o + T + j])
                + h * w[o + U12 + j] * w[o + C + j]
            )


@njit(cache=True, nogil=True)
def _potential_terms(n: int, heights: FloatArray, w: FloatArray) -> None:
    """Of every joint the potential energies of the links from it on. ``heights``: (n,) z_i."""
    s = np.uint64(n) * _JOINT
    for j in range(_L):
        w[s + V + j] = 1.0
    for b in range(n):
        o = np.uint64(b) * _JOINT
        for j in range(_L):
            w[s + V + j] *= w[o + PF + j]
            w[o + VABOVE + j] = heights[b] * w[s + V + j]
    for b in range(n - 1, 0, -1):
        o, t = np.uint64(b) * _JOINT, np.uint64(b - 1) * _JOINT
        for j in range(_L):
            w[t + VABOVE + j] += w[o + VABOVE + j]


@njit(cache=True, nogil=True)
def _products(m: int, n: int, w: FloatArray, d: FloatArray, G: FloatArray) -> None:
    """Products of G (n * n * LANES,) and of its triangles with a link's vectors."""
    for b in range(m):
        o = np.uint64(b) * _OWN
        for j in range(G_GAMMA2, _OWN):
            d[o + j] = 0.0
    for a in range(m):
        o, q = np.uint64(a) * _JOINT, np.uint64(a) * _OWN
        for b in range(m):
            t, r, e = np.uint64(b) * _JOINT, np.uint64(b) * _OWN, np.uint64(a * n + b) * _L
            for j in range(_L):
                g = G[e + j]
                d[q + G_GAMMA2 + j] += g * w[t + GAMMA2 + j]
                d[q + G_ALPHA2 + j] += g * w[t + ALPHA2 + j]
                d[q + G_BETA2 + j] += g * w[t + BETA2 + j]
                d[q + G_E2 + j] += g * w[t + E2 + j]
            for j in range(_L):
                g = G[e + j]
                d[r + T_ALPHA1 + j] += g * w[o + ALPHA1 + j]
                d[r + T_GAMMA1 + j] += g * w[o + GAMMA1 + j]
                d[r + T_BETA1 + j] += g * w[o + BETA1 + j]
                d[r + T_E1 + j] += g * w[o + E1 + j]
            if b > a:
                for j in range(_L):
                    g = G[e + j]
                    d[q + UP_U2 + j] += g * w[t + U2 + j]
                    d[q + UP_HM2 + j] += g * w[t + HM2 + j]
                    d[r + T_UP_Y1 + j] += g * w[o + Y1 + j]
                    d[r + T_UP_ALPHA1 + j] += g * w[o + ALPHA1 + j]
            elif b < a:
                for j in range(_L):
                    g = G[e + j]
                    d[q + LOW_ALPHA2 + j] += g * w[t + ALPHA2 + j]
                    d[q + LOW_Y2 + j] += g * w[t + Y2 + j]
                    d[r + T_LOW_U1 + j] += g * w[o + U1 + j]
                    d[r + T_LOW_HM1 + j] += g * w[o + HM1 + j]


@njit(cache=True, nogil=True)
def _link(m: int, n: int, row: FloatArray, w: FloatArray, d: FloatArray, G: FloatArray) -> None:
    """Derivatives by a link's W, r, r', T and C's, and those by u, u', n added; `_products` went before."""
    s, z = np.uint64(n) * _JOINT, np.uint64(n) * _OWN
    for j in range(np.uint64(_SHARED) * _L):
        d[z + j] = 0.0
    for a in range(m):
        o, q, e = np.uint64(a) * _JOINT, np.uint64(a) * _OWN, np.uint64(a * n + a) * _L
        v = row[a * FEATURES + 4]
        for j in range(_L):
            g, own, mix = G[e + j], w[o + W + j], w[o + MIX + j]
            up, low = d[q + UP_U2 + j], d[q + T_LOW_U1 + j]
            d[z + B_H12 + j] += g * own
            d[z + B_H1 + j] += g * own * w[o + R2 + j] - w[o + ALPHA1 + j] * up
            d[z + B_H2 + j] += g * own * w[o + R1 + j] - w[o + ALPHA2 + j] * low
            d[z + B_H + j] += (
                g * (own * w[o + T + j] + w[o + U12 + j] * w[o + C + j])
                - mix * (v * d[q + T_UP_ALPHA1 + j] + w[o + VEL + j] * d[q + LOW_ALPHA2 + j])
                - w[o + E1 + j] * up
                - w[o + E2 + j] * low
            )
    for a in range(m):
        o, q, e = np.uint64(a) * _JOINT, np.uint64(a) * _OWN, np.uint64(a * n + a) * _L
        v, acc = row[a * FEATURES + 4], row[a * FEATURES + 5]
        for j in range(_L):
            h, h1, h2, by_h12 = w[s + H + j], w[s + H1 + j], w[s + H2 + j], d[z + B_H12 + j]
            g, own, r1, r2, t, c = G[e + j], w[o + W + j], w[o + R1 + j], w[o + R2 + j], w[o + T + j], w[o + C + j]
            vel, acc2, mix, u1, u2 = w[o + VEL + j], w[o + ACC + j], w[o + MIX + j], w[o + U1 + j], w[o + U2 + j]
            up, low = d[q + UP_U2 + j], d[q + T_LOW_U1 + j]
            e1, e2 = d[q + G_E2 + j] - h * up, d[q + T_E1 + j] - h * low
            alpha1 = d[q + G_GAMMA2 + j] - h1 * up - d[q + UP_HM2 + j] + e1 * r1
            alpha2 = d[q + T_GAMMA1 + j] - h2 * low - d[q + T_LOW_HM1 + j] + e2 * r2
            beta1, beta2 = d[q + G_BETA2 + j], d[q + T_BETA1 + j]
            gamma1, gamma2 = d[q + G_ALPHA2 + j], d[q + T_ALPHA1 + j]
            b1, b2, t1, t2 = acc + v * r1, acc2 + vel * r2, r1 * acc2 + vel * t, r2 * acc + v * t
            d[q + B_W + j] = (
                g * (w[s + H12 + j] + h1 * r2 + h2 * r1 + h * t)
                + (alpha1 * vel + alpha2 * v + beta1 * b2 + beta2 * b1)
                + (gamma1 * t1 + gamma2 * t2 + by_h12 * (acc * b2 + v * t1))
            )
            d[q + B_R1 + j] = own * (g * h2 + beta2 * v + acc2 * (gamma1 + by_h12 * v)) + e1 * w[o + ALPHA1 + j]
            d[q + B_R2 + j] = own * (g * h1 + beta1 * vel + acc * (gamma2 + by_h12 * vel)) + e2 * w[o + ALPHA2 + j]
            d[q + B_T + j] = own * (g * h + gamma1 * vel + gamma2 * v + by_h12 * v * vel)
            d[q + B_C + j] = g * h * w[o + U12 + j] - e1 * u1 - e2 * u2 - mix * (gamma2 * v + gamma1 * vel)
            d[q + B_C1 + j], d[q + B_C2 + j] = -gamma2 * u2, -gamma1 * u1
            by_mix = -v * (h * d[q + T_UP_ALPHA1 + j] + gamma2 * c) - vel * (h * d[q + LOW_ALPHA2 + j] + gamma1 * c)
            d[q + B_U1 + j] -= d[q + LOW_Y2 + j] + e1 * c + gamma1 * w[o + C2 + j] + by_mix * u2
            d[q + B_U2 + j] -= d[q + T_UP_Y1 + j] + e2 * c + gamma2 * w[o + C1 + j] + by_mix * u1
            d[q + B_U12 + j] += g * h * c + by_mix


@njit(cache=True, nogil=True)
def _along(i: int, n: int, row: FloatArray, w: FloatArray, d: FloatArray) -> None:
    """From a link's sums along the chain to its weights, and to the derivatives by log p, u, u', n."""
    z, link = np.uint64(n) * _OWN, np.uint64(i) * _OWN
    for b in range(i, -1, -1):  # C, C1, C2 and h's: every joint's share is in the sums of all behind it
        o, q = np.uint64(b) * _JOINT, np.uint64(b) * _OWN
        v, acc = row[b * FEATURES + 4], row[b * FEATURES + 5]
        for j in range(_L):
            vel = w[o + VEL + j]
            by_c, by_c1, by_c2 = d[z + B_H + j], d[z + B_H1 + j], d[z + B_H2 + j]
            d[q + B_W + j] += (
                by_c * v * vel
                + by_c1 * vel * (acc + v * w[o + R1 + j])
                + by_c2 * v * (w[o + ACC + j] + vel * w[o + R2 + j])
            )
            d[q + B_R1 + j] += by_c1 * w[o + W + j] * v * vel
            d[q + B_R2 + j] += by_c2 * w[o + W + j] * v * vel
            d[z + B_H + j] = by_c + d[q + B_C + j]
            d[z + B_H1 + j] = by_c1 + d[q + B_C1 + j]
            d[z + B_H2 + j] = by_c2 + d[q + B_C2 + j]
    for j in range(np.uint64(_SHARED) * _L):
        d[z + j] = 0.0
    for b in range(i + 1):  # W, r, r', T: every joint's factor is in those of all before it
        o, q = np.uint64(b) * _JOINT, np.uint64(b) * _OWN
        v = row[b * FEATURES + 4]
        for j in range(_L):
            vel, own = w[o + VEL + j], d[q + B_W + j] * w[o + W + j]
            behind, by_r1, by_r2, by_t = d[z + BEHIND + j], d[z + BY_R1 + j], d[z + BY_R2 + j], d[z + BY_T + j]
            d[q + B_LOG + j] += behind
            d[q + B_U1 + j] += v * (by_r1 + by_t * w[o + R2 + j])
            d[q + B_U2 + j] += vel * (by_r2 + by_t * w[o + R1 + j])
            d[q + B_U12 + j] += by_t * v * vel
            d[q + TO_SPEED + j] += own
            d[link + TO_LINK + j] += 0.5 * own  # every h^2 has two of the weights
            d[z + BEHIND + j] = behind + own
            d[z + BY_R1 + j] = by_r1 + d[q + B_R1 + j] + by_t * vel * w[o + U2 + j]
            d[z + BY_R2 + j] = by_r2 + d[q + B_R2 + j] + by_t * v * w[o + U1 + j]
            d[z + BY_T + j] = by_t + d[q + B_T + j]


@njit(cache=True, nogil=True)
def _potential(n: int, w: FloatArray, d: FloatArray, G: FloatArray) -> None:
    """Add the derivatives of the potential energy's share; `_potential_terms` went before."""
    z = np.uint64(n) * _OWN
    for b in range(n):
        q = np.uint64(b) * _OWN
        for j in range(_L):
            d[q + B_C + j] = 0.0  # by the kernel of the links from b on
    for a in range(n):
        o, q = np.uint64(a) * _JOINT, np.uint64(a) * _OWN
        for b in range(n):
            t, r, e = np.uint64(b) * _JOINT, np.uint64(b) * _OWN, np.uint64(a * n + b) * _L
            last, high = np.uint64(max(a, b)) * _OWN, np.uint64(max(a, b)) * _JOINT
            if a == b:
                for j in range(_L):
                    d[q + B_C + j] += G[e + j] * w[o + U12 + j]
                    d[q + B_U12 + j] += G[e + j] * w[o + VABOVE + j]
            else:
                for j in range(_L):
                    g, above, u1, u2 = G[e + j], w[high + VABOVE + j], w[o + U1 + j], w[t + U2 + j]
                    d[last + B_C + j] += g * u1 * u2
                    d[q + B_U1 + j] += g * above * u2
                    d[r + B_U2 + j] += g * above * u1
    for j in range(_L):
        d[z + B_H + j] = 0.0
    for b in range(n):  # by log of a link's kernel
        o, q = np.uint64(b) * _JOINT, np.uint64(b) * _OWN
        for j in range(_L):
            d[z + B_H + j] += d[q + B_C + j]
            own = w[o + VABOVE + j]
            if b + 1 < n:
                own -= w[o + _JOINT + VABOVE + j]
            d[q + B_C + j] = own * d[z + B_H + j]
            d[q + TO_HEIGHT + j] += d[q + B_C + j]
    for j in range(_L):
        d[z + B_H + j] = 0.0
    for b in range(n - 1, -1, -1):
        q = np.uint64(b) * _OWN
        for j in range(_L):
            d[z + B_H + j] += d[q + B_C + j]
            d[q + B_LOG + j] += d[z + B_H + j]


@njit(cache=True, nogil=True, error_model="numpy")
def _to_position(n: int, row: FloatArray, to: np.uint64, w: FloatArray, d: FloatArray) -> None:
    """From the derivatives by log p, u, u', n to those by sigma, c, s, rows from `to` on; the former are cleared."""
    for b in range(n):
        o, q, k = np.uint64(b) * _JOINT, np.uint64(b) * _OWN, b * FEATURES
        for j in range(_L):
            inverse = 1.0 / w[o + PF + j]
            b1, b2, b12 = d[q + B_U1 + j], d[q + B_U2 + j], d[q + B_U12 + j]
            by_p = inverse * (d[q + B_LOG + j] - b1 * w[o + U1 + j] - b2 * w[o + U2 + j] - b12 * w[o + U12 + j])
            b1, b2, b12 = inverse * b1, inverse * b2, inverse * b12
            f, df, g, dg = w[o + F + j], w[o + DF + j], w[o + G + j], w[o + DG + j]
            d[q + to + j] += by_p
            d[q + to + _L + j] += row[k] * (by_p * f + b2 * df) + row[k + 1] * (b1 * f + b12 * df)
            d[q + to + _L + _L + j] += row[k + 2] * (by_p * g + b2 * dg) + row[k + 3] * (b1 * g + b12 * dg)
            d[q + B_LOG + j], d[q + B_U1 + j], d[q + B_U2 + j], d[q + B_U12 + j] = 0.0, 0.0, 0.0, 0.0


@njit(cache=True, nogil=True)
def _take(r: int, start: int, count: int, n: int, inverse: FloatArray, dual: FloatArray, G: FloatArray) -> None:
    """Derivative by the entries of the block of sample r and those in the lanes; a pair counts in both orders."""
    G[:] = 0.0
    for a in range(n):
        ra = r * n + a
        for j in range(count):
            share = 0.5 if start + j == r else 1.0
            for b in range(n):
                jb = (start + j) * n + b
                entry = inverse[ra, jb] if ra >= jb else inverse[jb, ra]
                G[(a * n + b) * LANES + j] = share * (entry - dual[ra] * dual[jb])


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
    w, d = np.empty((n * _FORWARD + _SUMS) * LANES), np.zeros((n * _ROWS + _SHARED) * LANES)
    G, scaled = np.empty(n * n * LANES), np.empty(n * n * LANES)
    for r in range(first, rows.shape[0], step):
        row = rows[r]
        for start in range(0, r + 1, LANES):
            _load(n, columns, start, w)
            _take(r, start, min(LANES, r + 1 - start), n, inverse, dual, G)
            _joint_factors(n, row, position, w)
            for i in range(n):
                for k in range(np.uint64(n * n) * _L):
                    scaled[k] = 2.0 * links[i] * G[k]
                _link_terms(i + 1, n, row, speeds, w)
                _products(i + 1, n, w, d, scaled)
                _link(i + 1, n, row, w, d, scaled)
                _along(i, n, row, w, d)
            _to_position(n, row, TO_SIGMA, w, d)
            _joint_factors(n, row, potential, w)
            _potential_terms(n, heights, w)
            _potential(n, w, d, G)
            _to_position(n, row, TO_SIGMA_V, w, d)
    for b in range(n):
        for k in range(_KEPT):
            for j in range(LANES):
                out[b, k] += d[(b * _ROWS + k) * LANES + j]
