r"""One prediction at a time, compiled, without allocation: what a control loop needs of a learned process.

The mean torque at x is ``sum_s K(x, x_s) a_s`` with the duals ``a_s``. The block of :mod:`.lagrangian_kernel` is
made of products of two vectors and a diagonal, so multiplied by ``a`` from the right before anything else it costs O(n)
for a link and a sample, not O(n^2). With ``. a`` for the sum over joints of a product with the duals, link i gives

    2 P { w (A' + U' v') [(w A).a + U (w v).a] + w v' [M (w v).a - (h1 + h U) u'.a - h (v m).a]
          + u [h^2/2 u'.a - (h2 + h U') (w v).a] - h v' m (w v).a + w E a } + h^2 P m a,
    E = h12 + h1 U' + h2 U + h (U U' + M).

Friction is linear, its mean weights are found once. All kernels write into arrays that are given to them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import literal_unroll, njit

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES, LANES, load_lanes, torque_block
from safe_sysid.learning.gaussian_process.motions import MotionSamples

__all__ = [
    "add_cross_squared_exponential",
    "add_mean_squared_exponential",
    "cross_torques",
    "features_of",
    "lanes_of",
    "links_of",
    "mean_torques",
    "work_size",
]


_TINY: Final = 1e-100
_L = np.uint64(LANES)
_PER_JOINT = np.uint64(3 * LANES)
_SHARED: Final = 7
(BA, AA, UA, VMA, E, P2, SU2) = (np.uint64(LANES * k) for k in range(_SHARED))
(U1, MIX, OUT) = (np.uint64(LANES * (_SHARED + k)) for k in range(3))
_HEAD: Final = 4  # joints whose loop the compiler unrolls; twice as many it does not
(_G, _DG, _VEL, _ACC, _DUAL) = (np.uint64(LANES * k) for k in range(2, 7))
#: Of a sample x': features of :mod:`.lagrangian_kernel`, and its dual.
PER_SAMPLE: Final = FEATURES + 1


def work_size(n: int) -> int:
    """Numbers of float64 that :func:`mean_torques` works in."""
    return (3 * n + _SHARED) * LANES + 7 * n


def links_of(n: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """What :func:`mean_torques` takes for the links of an arm: joints by their number, in two parts."""
    return tuple(((0,) * min(m, _HEAD), (0,) * max(m - _HEAD, 0)) for m in range(1, n + 1))


def lanes_of(x: MotionSamples, dual: FloatArray) -> FloatArray:
    """Samples as :func:`mean_torques` reads them, (groups, n, PER_SAMPLE * LANES).

    ``x``: N samples in the process's units; ``dual``: (N, n).
    """
    groups = -(-len(x) // LANES)
    padded = np.zeros((groups * LANES, x.n, PER_SAMPLE))
    padded[: len(x), :, :FEATURES] = x.rows.reshape(len(x), x.n, FEATURES)
    padded[: len(x), :, FEATURES] = dual
    grouped = padded.reshape(groups, LANES, x.n, PER_SAMPLE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(grouped).reshape(groups, x.n, PER_SAMPLE * LANES)


@njit(cache=True, nogil=True)
def features_of(q: FloatArray, qd: FloatArray, qdd: FloatArray, slides: BoolArray, row: FloatArray) -> None:
    """Features of a sample.

    Args:
        q: (n,) rad or m.
        qd: (n,) in the process's units.
        qdd: (n,) in the process's units.
        slides: (n,) joints that slide.
        row: (n * FEATURES,), written.
    """
    for b in range(len(q)):
        k = b * FEATURES
        if slides[b]:
            row[k], row[k + 1], row[k + 2], row[k + 3] = q[b], 1.0, 0.0, 0.0
        else:
            c, s = np.cos(q[b]), np.sin(q[b])
            row[k], row[k + 1], row[k + 2], row[k + 3] = c, -s, s, c
        row[k + 4], row[k + 5] = qd[b], qdd[b]


@njit(cache=True, nogil=True)
def _scale(row: FloatArray, position: FloatArray, own: FloatArray) -> None:
    """Write of each joint (m, 7): offset, features of x times their weights, velocity and acceleration."""
    for b in range(len(position)):
        k, c, z = b * FEATURES, position[b, 1], position[b, 2]
        own[b, 0], own[b, 5], own[b, 6] = position[b, 0], row[k + 4], row[k + 5]
        own[b, 1], own[b, 2], own[b, 3], own[b, 4] = (c * row[k], c * row[k + 1], z * row[k + 2], z * row[k + 3])


@njit(inline="always")
def _link_joint(
    b: int,
    m: int,
    j: np.uint64,
    base: np.uint64,
    flat: FloatArray,
    weights: FloatArray,
    own: FloatArray,
    w: FloatArray,
    sums: tuple[float, ...],
) -> tuple[float, ...]:
    """Joint b of link m - 1 in lane j: what the link sums over joints with its terms, u' and m of the joint in w."""
    P, su1, su2, sm, h, h1, h2, h12, ba, aa, ua, vma = sums
    o, d = np.uint64(b) * _PER_JOINT, base + np.uint64(b * PER_SAMPLE * LANES)
    F, DF, G, DG = flat[d + j], flat[d + _L + j], flat[d + _G + j], flat[d + _DG + j]
    vel, acc, a = flat[d + _VEL + j], flat[d + _ACC + j], flat[d + _DUAL + j]
    p = own[b, 0] + own[b, 1] * F + own[b, 3] * G
    if abs(p) < _TINY:
        p = _TINY
    inverse = 2.0 / p
    u1 = inverse * (own[b, 2] * F + own[b, 4] * G)
    u2 = inverse * (own[b, 1] * DF + own[b, 3] * DG)
    mix = inverse * (own[b, 2] * DF + own[b, 4] * DG) - 0.5 * u1 * u2
    w[o + U1 + j], w[o + MIX + j] = u1, mix
    v, wv, wa = own[b, 5], weights[m - 1, b] * own[b, 5], weights[m - 1, b] * own[b, 6]
    return (
        P * (p * p), su1 + v * u1, su2 + vel * u2, sm + v * vel * mix, h + wv * vel, h1 + wa * vel, h2 + wv * acc,
        h12 + wa * acc, ba + wa * a, aa + wv * a, ua + u2 * a, vma + v * mix * a,
    )  # fmt: skip


@njit(inline="always")
def _potential_joint(
    b: int, j: np.uint64, base: np.uint64, flat: FloatArray, own: FloatArray, w: FloatArray, P: float, ua: float
) -> tuple[float, float]:
    """Joint b of the potential energy in lane j: P and u'.a with its terms, u and m a of the joint in w."""
    o, d = np.uint64(b) * _PER_JOINT, base + np.uint64(b * PER_SAMPLE * LANES)
    F, DF, G, DG = flat[d + j], flat[d + _L + j], flat[d + _G + j], flat[d + _DG + j]
    a = flat[d + _DUAL + j]
    p = own[b, 0] + own[b, 1] * F + own[b, 3] * G
    if abs(p) < _TINY:
        p = _TINY
    inverse = 1.0 / p
    u1 = inverse * (own[b, 2] * F + own[b, 4] * G)
    u2 = inverse * (own[b, 1] * DF + own[b, 3] * DG)
    w[o + U1 + j] = u1
    w[o + MIX + j] = (inverse * (own[b, 2] * DF + own[b, 4] * DG) - u1 * u2) * a
    return P * p, ua + u2 * a


@njit(cache=True, nogil=True, error_model="numpy")
def _add_link(
    head: tuple[int, ...],
    tail: tuple[int, ...],
    row: FloatArray,
    flat: FloatArray,
    groups: int,
    stride: int,
    weights: FloatArray,
    position: FloatArray,
    own: FloatArray,
    w: FloatArray,
) -> None:
    """Add a link's share to the sums by joint and lane in w; the link's joints are as many as head and tail are long.

    The compiler knows how long they are, so it unrolls the loops over joints and keeps all sums in registers.
    """
    m = len(head) + len(tail)
    _scale(row, position[m - 1, :m], own)
    for group in range(groups):
        base = np.uint64(group * stride)
        for j in range(_L):
            sums = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            for b in range(len(head)):
                sums = _link_joint(b, m, j, base, flat, weights, own, w, sums)
            for k in range(len(tail)):
                sums = _link_joint(len(head) + k, m, j, base, flat, weights, own, w, sums)
            P, su1, su2, sm, h, h1, h2, h12, ba, aa, ua, vma = sums
            twice, d1, d2 = 2.0 * P, h1 + h * su1, h2 + h * su2
            w[BA + j] = twice * (ba + su1 * aa)
            w[VMA + j] = twice * (sm * aa - d1 * ua - h * vma)
            w[UA + j] = twice * (0.5 * h * h * ua - d2 * aa)
            w[AA + j] = twice * h * aa
            w[E + j] = twice * (h12 + h1 * su2 + d2 * su1 + h * sm)
            w[P2 + j] = P * h * h
            w[SU2 + j] = su2
        for b in range(m):
            o, d, weight = (np.uint64(b) * _PER_JOINT, base + np.uint64(b * PER_SAMPLE * LANES), weights[m - 1, b])
            for j in range(_L):
                vel, acc, a = flat[d + _VEL + j], flat[d + _ACC + j], flat[d + _DUAL + j]
                u1, mix = w[o + U1 + j], w[o + MIX + j]
                w[o + OUT + j] += (
                    weight * ((acc + w[SU2 + j] * vel) * w[BA + j] + vel * w[VMA + j])
                    + u1 * w[UA + j]
                    - vel * mix * w[AA + j]
                    + (weight * w[E + j] + mix * w[P2 + j]) * a
                )


@njit(cache=True, nogil=True, error_model="numpy")
def _add_potential(
    head: tuple[int, ...],
    tail: tuple[int, ...],
    row: FloatArray,
    flat: FloatArray,
    groups: int,
    potential: FloatArray,
    own: FloatArray,
    w: FloatArray,
) -> None:
    """Add the potential energy's share to the sums in w; the arm's joints are as many as head and tail are long."""
    n = len(head) + len(tail)
    _scale(row, potential, own)
    for group in range(groups):
        base = np.uint64(group * n * PER_SAMPLE * LANES)
        for j in range(_L):
            P, ua = 1.0, 0.0
            for b in range(len(head)):
                P, ua = _potential_joint(b, j, base, flat, own, w, P, ua)
            for k in range(len(tail)):
                P, ua = _potential_joint(len(head) + k, j, base, flat, own, w, P, ua)
            w[P2 + j], w[UA + j] = P, ua
        for b in range(n):
            o = np.uint64(b) * _PER_JOINT
            for j in range(_L):
                w[o + OUT + j] += w[P2 + j] * (w[o + U1 + j] * w[UA + j] + w[o + MIX + j])


@njit(cache=True, nogil=True, error_model="numpy")
def mean_torques(
    links: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    row: FloatArray,
    blocks: FloatArray,
    weights: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    w: FloatArray,
    out: FloatArray,
) -> None:
    """Mean of the Lagrangian part of the torque.

    Args:
        links: of :func:`links_of`.
        row: (n * FEATURES,) of x.
        blocks: (groups, n, PER_SAMPLE * LANES) of the samples x', features and dual by lane; zeros fill the last group.
        weights: (n, n), see :func:`.lagrangian_kernel.torque_block`.
        position: (n, n, 3).
        potential: (n, 3).
        w: (work_size(n),).
        out: (n,), written.
    """
    n = potential.shape[0]
    flat, own = blocks.reshape(-1), w[(3 * n + _SHARED) * LANES :].reshape(n, 7)
    w[:] = 0.0
    for joints in literal_unroll(links):
        _add_link(joints[0], joints[1], row, flat, blocks.shape[0], n * PER_SAMPLE * LANES, weights, position, own, w)
    last = links[-1]
    _add_potential(last[0], last[1], row, flat, blocks.shape[0], potential, own, w)
    for b in range(n):
        o, total = np.uint64(b) * _PER_JOINT, 0.0
        for j in range(_L):
            total += w[o + OUT + j]
        out[b] = total


@njit(cache=True, nogil=True)
def cross_torques(
    row: FloatArray,
    columns: FloatArray,
    direction: FloatArray,
    weights: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    friction: FloatArray,
    w: FloatArray,
    out: FloatArray,
) -> None:
    """Covariance of torques at samples with that at x, of the Lagrangian part and friction.

    Args:
        row: (n * FEATURES,) of x.
        columns: (n * FEATURES, M) of the samples.
        direction: (M, n) of the samples, for Coulomb friction; at x it is the sign of the velocity.
        weights: (n, n), see :func:`.lagrangian_kernel.torque_block`.
        position: (n, n, 3).
        potential: (n, 3).
        friction: (n, 2) variances of viscous and Coulomb friction.
        w: (workspace_size(n),).
        out: (M n, n), written.
    """
    n = potential.shape[0]
    for start in range(0, columns.shape[1], LANES):
        count = load_lanes(n, columns, start, w)
        k = torque_block(n, row, weights, position, potential, w)
        for a in range(n):
            v = row[a * FEATURES + 4]
            for j in range(count):
                for b in range(n):
                    out[(start + j) * n + b, a] = w[k + (a * n + b) * LANES + j]
                viscous = friction[a, 0] * v * columns[a * FEATURES + 4, start + j]
                coulomb = friction[a, 1] * np.sign(v) * direction[start + j, a]
                out[(start + j) * n + a, a] += viscous + coulomb


@njit(cache=True, nogil=True)
def add_cross_squared_exponential(
    x: FloatArray, inputs: FloatArray, variance: FloatArray, rates: FloatArray, out: FloatArray
) -> None:
    """Add the covariance of the squared exponentials.

    Args:
        x: (3 n,) q, qd, qdd in the process's units.
        inputs: (M, 3 n) of the samples.
        variance: (n,) of each joint.
        rates: (n, 3 n) one over the lengths.
        out: (M n, n), added to.
    """
    n = len(variance)
    for r in range(inputs.shape[0]):
        for j in range(n):
            distance = 0.0
            for k in range(3 * n):
                step = (x[k] - inputs[r, k]) * rates[j, k]
                distance += step * step
            out[r * n + j, j] += variance[j] * np.exp(-distance)


@njit(cache=True, nogil=True)
def add_mean_squared_exponential(
    x: FloatArray, inputs: FloatArray, dual: FloatArray, variance: FloatArray, rates: FloatArray, out: FloatArray
) -> None:
    """Add the mean of the squared exponentials.

    Args:
        x: (3 n,) q, qd, qdd in the process's units.
        inputs: (N, 3 n) of the samples.
        dual: (N, n).
        variance: (n,) of each joint.
        rates: (n, 3 n) one over the lengths.
        out: (n,), added to.
    """
    n = len(variance)
    for j in range(n):
        total = 0.0
        for r in range(inputs.shape[0]):
            distance = 0.0
            for k in range(3 * n):
                step = (x[k] - inputs[r, k]) * rates[j, k]
                distance += step * step
            total += np.exp(-distance) * dual[r, j]
        out[j] += variance[j] * total
