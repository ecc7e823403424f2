r"""The Lagrangian inspired polynomial (LIP) kernel of torques [LIP], derived by hand and compiled.

Energies are Gaussian processes. With ``p_b(q, q') = sigma_b + c_b f_b f'_b + s_b g_b g'_b``, where
``(f, g) = (cos q, sin q)`` for a joint that turns and ``(q, 0)`` for one that slides,

    k_V = prod_b p_b,        k_T = sum_i h_i^2 P_i,    h_i = sum_{b<=i} w_ib v_b v'_b,    P_i = prod_{b<=i} p_ib^2

(every link ``i`` has weights ``w_ib`` and ``p_ib`` of its own). The torque is ``tau_a = G_a (T - V)`` with Lagrange's
operator ``G_a = D d/dv_a - d/dq_a`` and ``D = d/dt`` along the motion, so its kernel is ``G_a G'_b (k_T + k_V)``.
Applied by hand, with ``u = d log P/dq``, ``u' = d log P/dq'``, ``m_b = d^2 log P/dq_b dq'_b``, ``U = u.v``,
``U' = u'.v'``, ``M = sum_b m_b v_b v'_b``, ``alpha = w v``, ``beta = w A`` (A: accelerations) and
``h1, h2, h12 = D h, D' h, D D' h``, link ``i`` contributes to a pair of samples ``(x, x')`` the block, rows those of x,

    2 P [ (beta' + U' alpha') (beta + U alpha)^T + alpha' (M alpha - (h1 + h U) u' - h v m)^T
          + u (h^2/2 u' - (h2 + h U') alpha)^T - (h v' m) alpha^T ]
    + diag( 2 P w (h12 + h1 U' + h2 U + h (U U' + M)) + h^2 P m ):

four products of two vectors and a diagonal, whatever the number of joints. The tests hold all of it against the
definition, differentiated numerically in a hundred digits.

Sixteen samples x' are worked on at once (lanes), all in one flat workspace, so that the compiler needs few proofs about
overlapping arrays to use the processor's vectors. Rows and columns of matrices are ordered by sample, then joint.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray

__all__ = [
    "FEATURES",
    "LANES",
    "add_block",
    "fill_energies",
    "fill_torques",
    "load_lanes",
    "torque_block",
    "workspace_size",
    "write_energies",
]


LANES: Final = 16
#: f, df/dq, g, dg/dq, velocity, acceleration of a joint.
FEATURES: Final = 6
_TINY: Final = 1e-100  # takes the place of a factor p that is zero; P has p^2, so nothing of it is left

# Offsets in the workspace, unsigned: an index that may be negative keeps the compiler from using vectors.
_LANES = np.uint64(LANES)
_PER_JOINT = np.uint64(15 * LANES)
(F, DF, G, DG, VEL, ACC, U1, U2, MIX, ALPHA, BETA, SLOPE, COL_BETA, COL_ALPHA, COL_U) = (
    np.uint64(LANES * k) for k in range(15)
)
_SHARED = np.uint64(9 * LANES)
(P, SUM_U1, SUM_U2, SUM_MIX, H, H1, H2, H12, PHH) = (np.uint64(LANES * k) for k in range(9))
(PU1, PM, PH, D1, D2) = (SUM_U1, SUM_MIX, H, H1, H2)  # times 2 P, in the same places


@njit(cache=True, nogil=True)
def workspace_size(n: int) -> int:
    """Numbers of float64 that a kernel of n joints works in."""
    return (n * 15 + 9 + max(n * n, 2 * n)) * LANES


@njit(cache=True, nogil=True)
def load_lanes(n: int, columns: FloatArray, start: int, end: int, first: int, rows: int, w: FloatArray) -> int:
    """Take up to LANES samples x' into a workspace; lanes without a sample have zeros. Returns samples taken.

    Args:
        columns: (n * FEATURES, N) of the samples x'.
        start: first sample.
        end: no sample from there on.
        first: where in the workspace the first joint's features begin.
        rows: of LANES numbers from one joint to the next.
        w: the workspace.
    """
    count = min(LANES, end - start)
    for b in range(n):
        for k in range(FEATURES):
            o = first + (b * rows + k) * LANES
            for j in range(count):
                w[o + j] = columns[b * FEATURES + k, start + j]
            for j in range(count, LANES):
                w[o + j] = 0.0
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def link_factors(i: int, n: int, row: FloatArray, weights: FloatArray, position: FloatArray, w: FloatArray) -> None:
    """What a link's kinetic energy needs of each pair: u, u', m by joint, and P, U, U', M, h, h1, h2, h12.

    Args:
        i: link, from 0; joints 0..i move it.
        row: (n * FEATURES,) of the sample x.
        weights: (n, n) of velocities, row i.
        position: (n, n, 3) offset, weight of f, weight of g.
    """
    s = np.uint64(n) * _PER_JOINT
    for j in range(_LANES):
        w[s + P + j] = 1.0
    for j in range(_LANES, _SHARED):
        w[s + j] = 0.0
    for b in range(i + 1):
        o = np.uint64(b) * _PER_JOINT
        k = b * FEATURES
        sigma, c, z = position[i, b, 0], position[i, b, 1], position[i, b, 2]
        f, df, g, dg = c * row[k], c * row[k + 1], z * row[k + 2], z * row[k + 3]
        v = row[k + 4]
        wv, wa = weights[i, b] * v, weights[i, b] * row[k + 5]
        for j in range(_LANES):
            p = sigma + f * w[o + F + j] + g * w[o + G + j]
            if abs(p) < _TINY:
                p = _TINY
            w[s + P + j] *= p * p
            w[o + MIX + j] = 2.0 / p
        for j in range(_LANES):
            fj, dfj, gj, dgj, inverse = w[o + F + j], w[o + DF + j], w[o + G + j], w[o + DG + j], w[o + MIX + j]
            u1, u2 = inverse * (df * fj + dg * gj), inverse * (f * dfj + g * dgj)
            w[o + U1 + j], w[o + U2 + j] = u1, u2
            w[o + MIX + j] = inverse * (df * dfj + dg * dgj) - 0.5 * u1 * u2
        for j in range(_LANES):
            vel = w[o + VEL + j]
            w[s + SUM_U1 + j] += v * w[o + U1 + j]
            w[s + SUM_U2 + j] += vel * w[o + U2 + j]
            w[s + SUM_MIX + j] += v * vel * w[o + MIX + j]
        for j in range(_LANES):
            vel, acc = w[o + VEL + j], w[o + ACC + j]
            w[s + H + j] += wv * vel
            w[s + H1 + j] += wa * vel
            w[s + H2 + j] += wv * acc
            w[s + H12 + j] += wa * acc


@njit(cache=True, nogil=True)
def _add_link(i: int, n: int, row: FloatArray, weights: FloatArray, w: FloatArray) -> None:
    """Add a link's block to the workspace's; `link_factors` went before."""
    s = np.uint64(n) * _PER_JOINT
    k = s + _SHARED
    for j in range(_LANES):
        p, h, su1, su2, sm = 2.0 * w[s + P + j], w[s + H + j], w[s + SUM_U1 + j], w[s + SUM_U2 + j], w[s + SUM_MIX + j]
        h1 = w[s + H1 + j]
        d1, d2 = h1 + h * su1, w[s + H2 + j] + h * su2
        w[s + H12 + j] = p * (w[s + H12 + j] + h1 * su2 + d2 * su1 + h * sm)
        w[s + P + j], w[s + PU1 + j], w[s + PM + j], w[s + PH + j] = p, p * su1, p * sm, p * h
        w[s + PHH + j] = 0.5 * p * h * h
        w[s + D1 + j], w[s + D2 + j] = p * d1, p * d2
    for b in range(i + 1):
        o = np.uint64(b) * _PER_JOINT
        d = k + np.uint64(b * n + b) * _LANES
        weight, v, acc = weights[i, b], row[b * FEATURES + 4], row[b * FEATURES + 5]
        alpha = weight * v
        for j in range(_LANES):
            vel, u2, mix = w[o + VEL + j], w[o + U2 + j], w[o + MIX + j]
            w[o + ALPHA + j] = weight * vel
            w[o + BETA + j] = weight * (w[o + ACC + j] + w[s + SUM_U2 + j] * vel)
            w[o + SLOPE + j] = w[s + PH + j] * vel * mix
            w[o + COL_U + j] = w[s + PHH + j] * u2 - w[s + D2 + j] * alpha
        for j in range(_LANES):
            w[o + COL_BETA + j] = weight * (w[s + P + j] * acc + w[s + PU1 + j] * v)
            w[o + COL_ALPHA + j] = (
                w[s + PM + j] * alpha - w[s + D1 + j] * w[o + U2 + j] - w[s + PH + j] * v * w[o + MIX + j]
            )
        for j in range(_LANES):
            w[d + j] += weight * w[s + H12 + j] + w[s + PHH + j] * w[o + MIX + j]
    for a in range(i + 1):
        o = np.uint64(a) * _PER_JOINT
        for b in range(i + 1):
            t = np.uint64(b) * _PER_JOINT
            d = k + np.uint64(a * n + b) * _LANES
            alpha = weights[i, b] * row[b * FEATURES + 4]
            for j in range(_LANES):
                w[d + j] += (
                    w[o + BETA + j] * w[t + COL_BETA + j]
                    + w[o + ALPHA + j] * w[t + COL_ALPHA + j]
                    + w[o + U1 + j] * w[t + COL_U + j]
                    - w[o + SLOPE + j] * alpha
                )


@njit(cache=True, nogil=True, error_model="numpy")
def potential_factors(n: int, row: FloatArray, potential: FloatArray, w: FloatArray) -> None:
    """Of the potential energy: its kernel, and by joint p_q/p, p_q'/p and p_qq'/p.

    ``row``: (n * FEATURES,) of the sample x; ``potential``: (n, 3) offset, weight of f, weight of g.
    """
    s = np.uint64(n) * _PER_JOINT
    for j in range(_LANES):
        w[s + P + j] = 1.0
    for b in range(n):
        o = np.uint64(b) * _PER_JOINT
        k = b * FEATURES
        sigma, c, z = potential[b, 0], potential[b, 1], potential[b, 2]
        f, df, g, dg = c * row[k], c * row[k + 1], z * row[k + 2], z * row[k + 3]
        for j in range(_LANES):
            p = sigma + f * w[o + F + j] + g * w[o + G + j]
            if abs(p) < _TINY:
                p = _TINY
            inverse = 1.0 / p
            w[o + U1 + j] = inverse * (df * w[o + F + j] + dg * w[o + G + j])
            w[o + U2 + j] = inverse * (f * w[o + DF + j] + g * w[o + DG + j])
            w[o + MIX + j] = inverse * (df * w[o + DF + j] + dg * w[o + DG + j])
            w[s + P + j] *= p


@njit(cache=True, nogil=True)
def torque_block(
    n: int, row: FloatArray, weights: FloatArray, position: FloatArray, potential: FloatArray, w: FloatArray
) -> int:
    """Kernel of torques between a sample x and those in the lanes.

    Returns where in the workspace the block (n, n, LANES) lies.

    Args:
        row: (n * FEATURES,) of the sample x.
        weights: (n, n) w_ib >= 0, joints b <= i.
        position: (n, n, 3) sigma_ib, c_ib, s_ib >= 0, joints b <= i.
        potential: (n, 3) the same of the potential energy.
    """
    s = np.uint64(n) * _PER_JOINT
    k = s + _SHARED
    for j in range(np.uint64(n * n) * _LANES):
        w[k + j] = 0.0
    for i in range(n):
        link_factors(i, n, row, weights, position, w)
        _add_link(i, n, row, weights, w)
    potential_factors(n, row, potential, w)
    for a in range(n):
        o = np.uint64(a) * _PER_JOINT
        for b in range(n):
            t = np.uint64(b) * _PER_JOINT
            d = k + np.uint64(a * n + b) * _LANES
            if a == b:
                for j in range(_LANES):
                    w[d + j] += w[s + P + j] * w[o + MIX + j]
            else:
                for j in range(_LANES):
                    w[d + j] += w[s + P + j] * w[o + U1 + j] * w[t + U2 + j]
    return (n * 15 + 9) * LANES


@njit(cache=True, nogil=True)
def energy_block(
    n: int, row: FloatArray, weights: FloatArray, position: FloatArray, potential: FloatArray, w: FloatArray
) -> int:
    """Covariance of energies at a sample x with torques at those in the lanes, eqs. (27a) and (27b) of [LIP].

    Returns where in the workspace the rows (2, n, LANES) of kinetic and potential energy lie.

    Args:
        row: (n * FEATURES,) of the sample x; its accelerations do not matter.
        weights: (n, n), see :func:`torque_block`.
        position: (n, n, 3).
        potential: (n, 3).
    """
    s = np.uint64(n) * _PER_JOINT
    k = s + _SHARED
    for j in range(np.uint64(2 * n) * _LANES):
        w[k + j] = 0.0
    for i in range(n):
        link_factors(i, n, row, weights, position, w)
        for b in range(i + 1):
            o, d = np.uint64(b) * _PER_JOINT, k + np.uint64(b) * _LANES
            alpha = weights[i, b] * row[b * FEATURES + 4]
            for j in range(_LANES):
                h = w[s + H + j]
                slope = w[s + H2 + j] + h * w[s + SUM_U2 + j]
                w[d + j] += w[s + P + j] * (2.0 * alpha * slope - h * h * w[o + U2 + j])
    potential_factors(n, row, potential, w)
    for b in range(n):
        o, d = np.uint64(b) * _PER_JOINT, k + np.uint64(n + b) * _LANES
        for j in range(_LANES):
            w[d + j] += w[s + P + j] * w[o + U2 + j]
    return (n * 15 + 9) * LANES


@njit(cache=True, nogil=True)
def add_block(n: int, r: int, start: int, many: int, k: int, w: FloatArray, out: FloatArray) -> None:
    """Add a block of sample r and those in the lanes to a kernel matrix of torques.

    Args:
        r: row's sample.
        start: column's first sample.
        many: lanes that are wanted.
        k: where in w the block (n, n, LANES) lies.
        w: the workspace.
        out: (N * n, M * n), added to.
    """
    flat = out.reshape(-1)
    for a in range(n):
        d = np.uint64((r * n + a) * out.shape[1] + start * n)
        for b in range(n):
            t = np.uint64(k + (a * n + b) * LANES)
            for j in range(np.uint64(many)):
                flat[d + np.uint64(b) + j * np.uint64(n)] += w[t + j]


@njit(cache=True, nogil=True)
def write_energies(n: int, r: int, start: int, many: int, k: int, w: FloatArray, out: FloatArray) -> None:
    """The same of the rows (2, n, LANES) of energies; out (2, N, M * n) is written."""
    for e in range(2):
        for j in range(many):
            for b in range(n):
                out[e, r, (start + j) * n + b] = w[k + (e * n + b) * LANES + j]


@njit(cache=True, nogil=True)
def fill_torques(
    first: int,
    step: int,
    triangle: bool,
    rows: FloatArray,
    columns: FloatArray,
    weights: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    out: FloatArray,
) -> None:
    """Add a share of a kernel matrix of torques: every ``step``-th group of LANES columns.

    Args:
        first: group of the share, 0..step - 1.
        triangle: rows and columns are the same samples, and entries above the diagonal's blocks are left as they are.
        rows: (N, n * FEATURES) of x.
        columns: (n * FEATURES, M) of x'.
        weights: (n, n), see :func:`torque_block`.
        position: (n, n, 3).
        potential: (n, 3).
        out: (N * n, M * n), added to.
    """
    n = potential.shape[0]
    w = np.empty(workspace_size(n))
    for start in range(first * LANES, columns.shape[1], step * LANES):
        count = load_lanes(n, columns, start, columns.shape[1], 0, 15, w)
        for r in range(start if triangle else 0, rows.shape[0]):
            k = torque_block(n, rows[r], weights, position, potential, w)
            many = min(count, r - start + 1) if triangle else count
            add_block(n, r, start, many, k, w, out)


@njit(cache=True, nogil=True)
def fill_energies(
    first: int,
    step: int,
    rows: FloatArray,
    columns: FloatArray,
    weights: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    out: FloatArray,
) -> None:
    """Fill a share of the covariance of energies with torques; arguments as :func:`fill_torques`.

    Args:
        first: group of the share.
        rows: (N, n * FEATURES) of x.
        columns: (n * FEATURES, M) of x'.
        weights: (n, n).
        position: (n, n, 3).
        potential: (n, 3).
        out: (2, N, M * n) kinetic and potential energy, written.
    """
    n = potential.shape[0]
    w = np.empty(workspace_size(n))
    for start in range(first * LANES, columns.shape[1], step * LANES):
        count = load_lanes(n, columns, start, columns.shape[1], 0, 15, w)
        for r in range(rows.shape[0]):
            k = energy_block(n, rows[r], weights, position, potential, w)
            write_energies(n, r, start, count, k, w, out)
