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
from numba import njit
from numpy.typing import NDArray

from safe_sysid.learning.gaussian_process.lagrangian_kernel import (
    FEATURES,
    LANES,
    load_lanes,
    torque_block,
)
from safe_sysid.learning.gaussian_process.motions import Motions

__all__ = [
    "add_cross_squared_exponential",
    "add_mean_squared_exponential",
    "cross_torques",
    "features_of",
    "lanes_of",
    "mean_torques",
    "work_size",
]

FloatArray = NDArray[np.float64]

_TINY: Final = 1e-100
_L = np.uint64(LANES)
_PER_JOINT = np.uint64(3 * LANES)
(U1, MIX, OUT) = (np.uint64(LANES * k) for k in range(3))
(P, SU1, SU2, SM, H, H1, H2, H12, BA, AA, UA, VMA) = (np.uint64(LANES * k) for k in range(12))
_SHARED = np.uint64(12 * LANES)
#: Of a sample x': features of :mod:`.lagrangian_kernel`, and its dual.
PER_SAMPLE: Final = FEATURES + 1


def work_size(n: int) -> int:
    """Numbers of float64 that :func:`mean_torques` works in.

    Args:
        n: joints.
    """
    return (3 * n + 12) * LANES


def lanes_of(x: Motions, dual: FloatArray) -> FloatArray:
    """Samples as :func:`mean_torques` reads them, (groups, n, PER_SAMPLE * LANES).

    Args:
        x: N samples in the process's units.
        dual: (N, n).
    """
    groups = -(-len(x) // LANES)
    padded = np.zeros((groups * LANES, x.n, PER_SAMPLE))
    padded[: len(x), :, :FEATURES] = x.rows.reshape(len(x), x.n, FEATURES)
    padded[: len(x), :, FEATURES] = dual
    grouped = padded.reshape(groups, LANES, x.n, PER_SAMPLE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(grouped).reshape(groups, x.n, PER_SAMPLE * LANES)


@njit(cache=True, nogil=True)
def features_of(
    q: FloatArray, qd: FloatArray, qdd: FloatArray, slides: NDArray[np.bool_], row: FloatArray
) -> None:
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


@njit(cache=True, nogil=True, error_model="numpy")
def mean_torques(
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
        row: (n * FEATURES,) of x.
        blocks: (groups, n, PER_SAMPLE * LANES) of the samples x', features and dual by lane; zeros fill the last group.
        weights: (n, n), see :func:`.lagrangian_kernel.torque_block`.
        position: (n, n, 3).
        potential: (n, 3).
        w: (work_size(n),).
        out: (n,), written.
    """
    n = potential.shape[0]
    s = np.uint64(n) * _PER_JOINT
    flat = blocks.reshape(-1)
    for k in range(s):
        w[k] = 0.0
    for group in range(blocks.shape[0]):
        base = np.uint64(group * n * PER_SAMPLE * LANES)
        for i in range(n):
            for j in range(_L):
                w[s + P + j] = 1.0
            for j in range(_L, _SHARED):
                w[s + j] = 0.0
            for b in range(i + 1):
                o, d = np.uint64(b) * _PER_JOINT, base + np.uint64(b * PER_SAMPLE * LANES)
                k = b * FEATURES
                sigma, c, z = position[i, b, 0], position[i, b, 1], position[i, b, 2]
                f, df, g, dg = c * row[k], c * row[k + 1], z * row[k + 2], z * row[k + 3]
                v = row[k + 4]
                wv, wa = weights[i, b] * v, weights[i, b] * row[k + 5]
                for j in range(_L):
                    F, DF, G, DG = flat[d + j], flat[d + _L + j], flat[d + 2 * _L + j], flat[d + 3 * _L + j]
                    vel, a = flat[d + 4 * _L + j], flat[d + 6 * _L + j]
                    p = sigma + f * F + g * G
                    if abs(p) < _TINY:
                        p = _TINY
                    inverse = 2.0 / p
                    u1 = inverse * (df * F + dg * G)
                    u2 = inverse * (f * DF + g * DG)
                    mix = inverse * (df * DF + dg * DG) - 0.5 * u1 * u2
                    w[o + U1 + j], w[o + MIX + j] = u1, mix
                    w[s + P + j] *= p * p
                    w[s + SU1 + j] += v * u1
                    w[s + SU2 + j] += vel * u2
                    w[s + SM + j] += v * vel * mix
                    w[s + UA + j] += u2 * a
                    w[s + VMA + j] += v * mix * a
                for j in range(_L):
                    vel, acc, a = flat[d + 4 * _L + j], flat[d + 5 * _L + j], flat[d + 6 * _L + j]
                    w[s + H + j] += wv * vel
                    w[s + H1 + j] += wa * vel
                    w[s + H2 + j] += wv * acc
                    w[s + H12 + j] += wa * acc
                    w[s + BA + j] += wa * a
                    w[s + AA + j] += wv * a
            for j in range(_L):  # the sums are not needed any more: their places take what is made of them
                twice, h, su1, su2 = 2.0 * w[s + P + j], w[s + H + j], w[s + SU1 + j], w[s + SU2 + j]
                sm, h1, aa = w[s + SM + j], w[s + H1 + j], w[s + AA + j]
                d1, d2 = h1 + h * su1, w[s + H2 + j] + h * su2
                both = w[s + H12 + j] + h1 * su2 + d2 * su1 + h * sm
                w[s + BA + j] = twice * (w[s + BA + j] + su1 * aa)
                w[s + VMA + j] = twice * (sm * aa - d1 * w[s + UA + j] - h * w[s + VMA + j])
                w[s + UA + j] = twice * (0.5 * h * h * w[s + UA + j] - d2 * aa)
                w[s + AA + j] = twice * h * aa
                w[s + H12 + j] = twice * both
                w[s + P + j] = 0.5 * twice * h * h
            for b in range(i + 1):
                o, d = np.uint64(b) * _PER_JOINT, base + np.uint64(b * PER_SAMPLE * LANES)
                weight = weights[i, b]
                for j in range(_L):
                    vel, acc, a = flat[d + 4 * _L + j], flat[d + 5 * _L + j], flat[d + 6 * _L + j]
                    u1, mix = w[o + U1 + j], w[o + MIX + j]
                    w[o + OUT + j] += (
                        weight * ((acc + w[s + SU2 + j] * vel) * w[s + BA + j] + vel * w[s + VMA + j])
                        + u1 * w[s + UA + j]
                        - vel * mix * w[s + AA + j]
                        + (weight * w[s + H12 + j] + mix * w[s + P + j]) * a
                    )
        for j in range(_L):
            w[s + P + j] = 1.0
            w[s + UA + j] = 0.0
        for b in range(n):
            o, d = np.uint64(b) * _PER_JOINT, base + np.uint64(b * PER_SAMPLE * LANES)
            k = b * FEATURES
            sigma, c, z = potential[b, 0], potential[b, 1], potential[b, 2]
            f, df, g, dg = c * row[k], c * row[k + 1], z * row[k + 2], z * row[k + 3]
            for j in range(_L):
                F, DF, G, DG = flat[d + j], flat[d + _L + j], flat[d + 2 * _L + j], flat[d + 3 * _L + j]
                a = flat[d + 6 * _L + j]
                p = sigma + f * F + g * G
                if abs(p) < _TINY:
                    p = _TINY
                inverse = 1.0 / p
                u1, u2 = inverse * (df * F + dg * G), inverse * (f * DF + g * DG)
                w[o + U1 + j] = u1
                w[o + MIX + j] = (inverse * (df * DF + dg * DG) - u1 * u2) * a
                w[s + UA + j] += u2 * a
                w[s + P + j] *= p
        for b in range(n):
            o = np.uint64(b) * _PER_JOINT
            for j in range(_L):
                w[o + OUT + j] += w[s + P + j] * (w[o + U1 + j] * w[s + UA + j] + w[o + MIX + j])
    for b in range(n):
        o, total = np.uint64(b) * _PER_JOINT, 0.0
        for j in range(_L):
            total += w[o + OUT + j]
        out[b] = total


@njit(cache=True, nogil=True)
def cross_torques(
    row: FloatArray,
    columns: FloatArray,
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
                other = columns[a * FEATURES + 4, start + j]
                out[(start + j) * n + a, a] += friction[a, 0] * v * other + friction[a, 1] * np.sign(
                    v
                ) * np.sign(other)


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
    x: FloatArray,
    inputs: FloatArray,
    dual: FloatArray,
    variance: FloatArray,
    rates: FloatArray,
    out: FloatArray,
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
