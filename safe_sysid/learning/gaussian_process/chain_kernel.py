r"""A kernel of torques for energies of a *chain*: the one of [LIP] without the functions that no chain of links has.

The kinetic energy of a link is a quadratic form of its twist, and a twist is passed on along the chain: every joint
turns or moves that of the link before, and adds its own. So the velocity of joint b meets the positions of the joints
*behind* b only. With ``p_l(q, q') = sigma_l + c_l f_l f'_l + s_l g_l g'_l`` as in :mod:`.lagrangian_kernel`,

    k_T = sum_i t_i h_i^2,    h_i = sum_{b<=i} w_b v_b v'_b prod_{b<l<=i} p_l  =  p_i h_(i-1) + w_i v_i v'_i,
    k_V = sum_i z_i prod_{l<=i} p~_l,

where the kernel of [LIP] has ``prod_{l<=i} p_l`` for every b, and weights of its own for every link. Here weights
belong to joints, for all links behind a joint meet the same rotation; those of the potential (``p~``) are others, for
gravity's direction is fixed and may leave some of the functions out: 9 n parameters instead of 2 n (n + 1) + 3 n.
Every energy that a chain can have is still there: ``h_i^2`` has all quadratic forms of the features that twists are
combinations of.

With ``L' = sum_b a_b G'_b`` for any numbers a, Lagrange's operators ``G_a = D d/dv_a - d/dq_a`` and ``G'_b``, the
vector ``K a`` of a pair of samples is Lagrange's operator at x of the energy ``E = L' (k_T + k_V)``, and both take one
walk along the chain and back. Four numbers are carried, h, ``k = D' h``, ``g = sum_b a_b dh/dv'_b`` and ``l = L' h``,
for ``L'(h^2) = 2 (h l + k g)``:

    h <- p h + w v v',   k <- p k + c1 h + w v A',   g <- p g + w v a,   l <- p l - c2 h + c1 g,
    c1 = v' p_q',        c2 = a p_q',

and their derivatives D along the motion at x; on the way back the derivatives of E by all of them (stars), so that
joint i has

    D dE/dv_i - dE/dq_i,    dE/dv_i = w (v' h* + A' k* + a g*),
    dE/dq_i = p_q (h* h + k* k + g* g + l* l) + p_qq' (v' (k* h + l* g) - a l* h).

With a of one joint after the other that is the block. Nothing is divided by, so a p that vanishes does no harm. The
tests hold all of it against the definition, differentiated numerically in a hundred digits. Sixteen samples x' are
worked on at once (lanes), as in :mod:`.lagrangian_kernel`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.lagrangian_kernel import (
    FEATURES,
    LANES,
    add_block,
    load_lanes,
    write_energies,
)

__all__ = [
    "OUT",
    "PER_SAMPLE",
    "WALKED",
    "chain_workspace",
    "clear_torques",
    "fill_chain_energies",
    "fill_chain_torques",
    "load_samples",
    "torque_block",
    "walk_back",
    "walk_dual",
    "walk_motion",
    "walk_size",
]

_L = np.uint64(LANES)
(_DF, _G, _DG, _VEL, _ACC, _DUAL) = (np.uint64(LANES * k) for k in range(1, 7))
#: Rows of LANES numbers for a joint of samples x': features of :mod:`.lagrangian_kernel`, and a.
PER_SAMPLE: Final = FEATURES + 1
_GIVEN = np.uint64(PER_SAMPLE * LANES)
#: Rows for a joint on a walk: its factor, its torque, and what comes to it along the chain.
WALKED: Final = 35
_JOINT = np.uint64(WALKED * LANES)
(P, P_D, PQ, PQ2, PQQ, C1, C1_D, OUT, H, K, G, GL, H_D, K_D, G_D, GL_D, V, VQ, VQ2, VQQ, M, MA, SPEED, ACCEL, DUAL,
 BH, BK, BG, BL, BH_D, BK_D, BG_D, BL_D, BM, BMA) = (np.uint64(LANES * k) for k in range(WALKED))  # fmt: skip


@njit(cache=True, nogil=True)
def walk_size(n: int) -> int:
    """Numbers of float64 that a walk along n joints needs."""
    return (n + 1) * WALKED * LANES


@njit(cache=True, nogil=True)
def chain_workspace(n: int) -> int:
    """Numbers of float64 that a block needs: a walk, the samples in the lanes, the block."""
    return walk_size(n) + (n * PER_SAMPLE + max(n * n, 2 * n)) * LANES


@njit(cache=True, nogil=True)
def walk_motion(
    n: int,
    base: np.uint64,
    row: FloatArray,
    flat: FloatArray,
    speeds: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    w: FloatArray,
) -> None:
    """From the base to the last link, what does not depend on a: factors, and h, k, their D, and prod p, before joints.

    Args:
        base: where in flat the samples x' begin, (n, PER_SAMPLE * LANES).
        row: (n * FEATURES,) of the sample x.
        flat: samples x'.
        speeds: (n,) w_b.
        position: (n, 3) sigma_l, c_l, s_l.
        potential: (n, 3) those of the potential energy.
        w: (walk_size(n),).
    """
    for j in range(_L):
        w[H + j], w[K + j], w[H_D + j], w[K_D + j], w[M + j] = 0.0, 0.0, 0.0, 0.0, 1.0
    for b in range(n):
        o, s = np.uint64(b) * _JOINT, base + np.uint64(b) * _GIVEN
        t = o + _JOINT
        i = b * FEATURES
        sigma, c, z, v = position[b, 0], position[b, 1], position[b, 2], row[i + 4]
        f, df, g, dg = c * row[i], c * row[i + 1], z * row[i + 2], z * row[i + 3]
        wv, wa = speeds[b] * v, speeds[b] * row[i + 5]
        for j in range(_L):
            F, DF, GG, DG = flat[s + j], flat[s + _DF + j], flat[s + _G + j], flat[s + _DG + j]
            vel, acc = flat[s + _VEL + j], flat[s + _ACC + j]
            p, pq, pq2, pqq = sigma + f * F + g * GG, df * F + dg * GG, f * DF + g * DG, df * DF + dg * DG
            p_d, c1, c1_d = v * pq, vel * pq2, v * vel * pqq
            w[o + P + j], w[o + P_D + j], w[o + PQ + j], w[o + PQ2 + j], w[o + PQQ + j] = p, p_d, pq, pq2, pqq
            w[o + C1 + j], w[o + C1_D + j], w[o + SPEED + j], w[o + ACCEL + j] = c1, c1_d, vel, acc
            h, k, h_d, k_d = w[o + H + j], w[o + K + j], w[o + H_D + j], w[o + K_D + j]
            w[t + H + j], w[t + H_D + j] = p * h + wv * vel, p * h_d + p_d * h + wa * vel
            w[t + K + j] = p * k + c1 * h + wv * acc
            w[t + K_D + j] = p * k_d + p_d * k + c1 * h_d + c1_d * h + wa * acc
        sigma, c, z = potential[b, 0], potential[b, 1], potential[b, 2]
        f, df, g, dg = c * row[i], c * row[i + 1], z * row[i + 2], z * row[i + 3]
        for j in range(_L):
            F, DF, GG, DG = flat[s + j], flat[s + _DF + j], flat[s + _G + j], flat[s + _DG + j]
            p = sigma + f * F + g * GG
            w[o + V + j], w[o + VQ + j] = p, df * F + dg * GG
            w[o + VQ2 + j], w[o + VQQ + j] = f * DF + g * DG, df * DF + dg * DG
            w[t + M + j] = p * w[o + M + j]


@njit(cache=True, nogil=True)
def walk_dual(
    n: int, first: int, base: np.uint64, row: FloatArray, flat: FloatArray, speeds: FloatArray, w: FloatArray
) -> None:
    """The same way, what depends on a: g and l, their D, and L' of prod p; `walk_motion` went before.

    Args:
        first: joint before which all a are zero; walks with the same motion began at every joint before it, so that
            what stands there is zero, too.
        base: see :func:`walk_motion`.
        row: (n * FEATURES,).
        flat: samples x' with a.
        speeds: (n,).
        w: (walk_size(n),).
    """
    for b in range(first):
        o = np.uint64(b) * _JOINT + DUAL
        for j in range(_L):
            w[o + j] = 0.0
    o = np.uint64(first) * _JOINT
    for j in range(_L):
        w[o + G + j], w[o + GL + j], w[o + G_D + j], w[o + GL_D + j], w[o + MA + j] = 0.0, 0.0, 0.0, 0.0, 0.0
    for b in range(first, n):
        o, s = np.uint64(b) * _JOINT, base + np.uint64(b) * _GIVEN
        t = o + _JOINT
        v = row[b * FEATURES + 4]
        wv, wa = speeds[b] * v, speeds[b] * row[b * FEATURES + 5]
        for j in range(_L):
            a, p, p_d, c1, c1_d = flat[s + _DUAL + j], w[o + P + j], w[o + P_D + j], w[o + C1 + j], w[o + C1_D + j]
            w[o + DUAL + j] = a
            c2, c2_d = a * w[o + PQ2 + j], a * v * w[o + PQQ + j]
            h, h_d, g, ll, g_d, l_d = (
                w[o + H + j], w[o + H_D + j], w[o + G + j], w[o + GL + j], w[o + G_D + j], w[o + GL_D + j]
            )  # fmt: skip
            w[t + G + j], w[t + G_D + j] = p * g + wv * a, p * g_d + p_d * g + wa * a
            w[t + GL + j] = p * ll - c2 * h + c1 * g
            w[t + GL_D + j] = p * l_d + p_d * ll - c2 * h_d - c2_d * h + c1 * g_d + c1_d * g
            w[t + MA + j] = w[o + V + j] * w[o + MA + j] + a * w[o + VQ2 + j] * w[o + M + j]


@njit(cache=True, nogil=True)
def walk_back(
    n: int, row: FloatArray, speeds: FloatArray, links: FloatArray, heights: FloatArray, w: FloatArray
) -> None:
    """Back to the base: every joint's share of ``K a`` is added to its OUT; the other walks went before.

    Args:
        row: (n * FEATURES,).
        speeds: (n,) w_b.
        links: (n,) t_i.
        heights: (n,) z_i.
        w: (walk_size(n),).
    """
    e = np.uint64(n) * _JOINT
    for k in range(BH, _JOINT):
        w[e + k] = 0.0
    for b in range(n - 1, -1, -1):
        o = np.uint64(b) * _JOINT
        t = o + _JOINT
        twice, weight, z, v = 2.0 * links[b], speeds[b], heights[b], row[b * FEATURES + 4]
        for j in range(_L):
            vel, acc, a = w[o + SPEED + j], w[o + ACCEL + j], w[o + DUAL + j]
            p, p_d, pq, pqq = w[o + P + j], w[o + P_D + j], w[o + PQ + j], w[o + PQQ + j]
            c1, c1_d, c2, c2_d = w[o + C1 + j], w[o + C1_D + j], a * w[o + PQ2 + j], a * v * pqq
            h, k, g, ll, m, ma = (
                w[o + H + j], w[o + K + j], w[o + G + j], w[o + GL + j], w[o + M + j], w[o + MA + j]
            )  # fmt: skip
            bh, bk = w[t + BH + j] + twice * w[t + GL + j], w[t + BK + j] + twice * w[t + G + j]
            bg, bl = w[t + BG + j] + twice * w[t + K + j], w[t + BL + j] + twice * w[t + H + j]
            bh_d, bk_d = w[t + BH_D + j] + twice * w[t + GL_D + j], w[t + BK_D + j] + twice * w[t + G_D + j]
            bg_d, bl_d = w[t + BG_D + j] + twice * w[t + K_D + j], w[t + BL_D + j] + twice * w[t + H_D + j]
            bm, bma = w[t + BM + j], w[t + BMA + j] + z
            w[o + OUT + j] += (
                weight * (vel * bh_d + acc * bk_d + a * bg_d)
                - pq * (bh * h + bk * k + bg * g + bl * ll)
                - pqq * (vel * (bk * h + bl * g) - a * bl * h)
                + w[o + VQ + j] * (bm * m + bma * ma)
                + a * w[o + VQQ + j] * bma * m
            )
            w[o + BH + j] = p * bh + c1 * bk - c2 * bl
            w[o + BK + j], w[o + BG + j], w[o + BL + j] = p * bk, p * bg + c1 * bl, p * bl
            w[o + BH_D + j] = p * bh_d + p_d * bh + c1 * bk_d + c1_d * bk - c2 * bl_d - c2_d * bl
            w[o + BK_D + j], w[o + BL_D + j] = p * bk_d + p_d * bk, p * bl_d + p_d * bl
            w[o + BG_D + j] = p * bg_d + p_d * bg + c1 * bl_d + c1_d * bl
            w[o + BM + j] = w[o + V + j] * bm + a * w[o + VQ2 + j] * bma
            w[o + BMA + j] = w[o + V + j] * bma


@njit(cache=True, nogil=True)
def load_samples(n: int, columns: FloatArray, start: int, w: FloatArray) -> int:
    """Take up to LANES samples x' into the workspace of a block. Returns samples taken.

    ``columns``: (n * FEATURES, N) of the samples x'; ``w``: (chain_workspace(n),).
    """
    return load_lanes(n, columns, start, columns.shape[1], walk_size(n), PER_SAMPLE, w)


@njit(cache=True, nogil=True)
def clear_torques(n: int, w: FloatArray) -> None:
    """Set what :func:`walk_back` adds to, to zero. ``w``: (walk_size(n),)."""
    for b in range(n):
        o = np.uint64(b) * _JOINT + OUT
        for j in range(_L):
            w[o + j] = 0.0


@njit(cache=True, nogil=True)
def _choose(n: int, b: int, base: np.uint64, w: FloatArray) -> None:
    """Set a to one for joint b, zero for the others."""
    for c in range(n):
        s = base + np.uint64(c) * _GIVEN + _DUAL
        for j in range(_L):
            w[s + j] = 1.0 if c == b else 0.0


@njit(cache=True, nogil=True)
def torque_block(
    n: int,
    row: FloatArray,
    speeds: FloatArray,
    links: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    heights: FloatArray,
    w: FloatArray,
) -> int:
    """Kernel of torques between a sample x and those in the lanes.

    Returns where in the workspace the block (n, n, LANES) lies.

    Args:
        row: (n * FEATURES,) of the sample x.
        speeds: (n,) w_b > 0, of joints.
        links: (n,) t_i > 0, of kinetic energies.
        position: (n, 3) sigma_l, c_l, s_l > 0, of joints.
        potential: (n, 3), the same of potential energies.
        heights: (n,) z_i > 0, of potential energies.
        w: (chain_workspace(n),), samples loaded.
    """
    base = np.uint64(walk_size(n))
    block = base + np.uint64(n) * _GIVEN
    walk_motion(n, base, row, w, speeds, position, potential, w)
    for b in range(n):
        clear_torques(n, w)
        _choose(n, b, base, w)
        walk_dual(n, b, base, row, w, speeds, w)
        walk_back(n, row, speeds, links, heights, w)
        for a in range(n):
            o, d = np.uint64(a) * _JOINT + OUT, block + np.uint64(a * n + b) * _L
            for j in range(_L):
                w[d + j] = w[o + j]
    return int(block)


@njit(cache=True, nogil=True)
def energy_block(
    n: int,
    row: FloatArray,
    speeds: FloatArray,
    links: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    heights: FloatArray,
    w: FloatArray,
) -> int:
    """Covariance of energies at a sample x with torques at those in the lanes, eqs. (27a) and (27b) of [LIP].

    Returns where in the workspace the rows (2, n, LANES) of kinetic and potential energy lie; arguments as of
    :func:`torque_block`.

    Args:
        row: (n * FEATURES,); its accelerations do not matter.
        speeds: (n,).
        links: (n,).
        position: (n, 3).
        potential: (n, 3).
        heights: (n,).
        w: (chain_workspace(n),), samples loaded.
    """
    base = np.uint64(walk_size(n))
    block = base + np.uint64(n) * _GIVEN
    walk_motion(n, base, row, w, speeds, position, potential, w)
    for b in range(n):
        rows, lifts = block + np.uint64(b) * _L, block + np.uint64(n + b) * _L
        for j in range(_L):
            w[rows + j], w[lifts + j] = 0.0, 0.0
        _choose(n, b, base, w)
        walk_dual(n, b, base, row, w, speeds, w)
        for i in range(b, n):
            t, twice = np.uint64(i + 1) * _JOINT, 2.0 * links[i]
            for j in range(_L):
                w[rows + j] += twice * (w[t + H + j] * w[t + GL + j] + w[t + K + j] * w[t + G + j])
                w[lifts + j] += heights[i] * w[t + MA + j]
    return int(block)


@njit(cache=True, nogil=True)
def fill_chain_torques(
    first: int,
    step: int,
    triangle: bool,
    rows: FloatArray,
    columns: FloatArray,
    speeds: FloatArray,
    links: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    heights: FloatArray,
    out: FloatArray,
) -> None:
    """Add a share of a kernel matrix of torques: every ``step``-th group of LANES columns.

    Args:
        first: group of the share, 0..step - 1.
        triangle: rows and columns are the same samples, and entries above the diagonal's blocks are left as they are.
        rows: (N, n * FEATURES) of x.
        columns: (n * FEATURES, M) of x'.
        speeds: (n,), see :func:`torque_block`.
        links: (n,).
        position: (n, 3).
        potential: (n, 3).
        heights: (n,).
        out: (N * n, M * n), added to.
    """
    n = len(speeds)
    w = np.empty(chain_workspace(n))
    for start in range(first * LANES, columns.shape[1], step * LANES):
        count = load_samples(n, columns, start, w)
        for r in range(start if triangle else 0, rows.shape[0]):
            k = torque_block(n, rows[r], speeds, links, position, potential, heights, w)
            many = min(count, r - start + 1) if triangle else count
            add_block(n, r, start, many, k, w, out)


@njit(cache=True, nogil=True)
def fill_chain_energies(
    first: int,
    step: int,
    rows: FloatArray,
    columns: FloatArray,
    speeds: FloatArray,
    links: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    heights: FloatArray,
    out: FloatArray,
) -> None:
    """Fill a share of the covariance of energies with torques; arguments as :func:`fill_chain_torques`.

    Args:
        first: group of the share.
        rows: (N, n * FEATURES) of x.
        columns: (n * FEATURES, M) of x'.
        speeds: (n,).
        links: (n,).
        position: (n, 3).
        potential: (n, 3).
        heights: (n,).
        out: (2, N, M * n) kinetic and potential energy, written.
    """
    n = len(speeds)
    w = np.empty(chain_workspace(n))
    for start in range(first * LANES, columns.shape[1], step * LANES):
        count = load_samples(n, columns, start, w)
        for r in range(rows.shape[0]):
            k = energy_block(n, rows[r], speeds, links, position, potential, heights, w)
            write_energies(n, r, start, count, k, w, out)
