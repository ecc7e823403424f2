"""One prediction at a time, compiled, without allocation: what a control loop needs of a learned process.

The mean torque at x is ``sum_s K(x, x_s) a_s`` with the duals ``a_s``: for every sample one walk along the chain and
back (:mod:`.chain_kernel`). Friction is linear, its mean weights are found once. All kernels write into arrays that are
given to them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.learning.gaussian_process.chain_kernel import (
    OUT,
    PER_SAMPLE,
    WALKED,
    clear_torques,
    load_samples,
    torque_block,
    walk_back,
    walk_dual,
    walk_motion,
)
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES, LANES
from safe_sysid.learning.gaussian_process.motions import MotionSamples

__all__ = [
    "add_cross_squared_exponential",
    "add_mean_squared_exponential",
    "cross_torques",
    "features_of",
    "lanes_of",
    "mean_torques",
]


_L = np.uint64(LANES)


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
def mean_torques(
    row: FloatArray,
    blocks: FloatArray,
    speeds: FloatArray,
    links: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    heights: FloatArray,
    w: FloatArray,
    out: FloatArray,
) -> None:
    """Mean of the Lagrangian part of the torque.

    Args:
        row: (n * FEATURES,) of x.
        blocks: (groups, n, PER_SAMPLE * LANES) of the samples x', features and dual by lane; zeros fill the last group.
        speeds: (n,), see :func:`.chain_kernel.torque_block`.
        links: (n,).
        position: (n, 3).
        potential: (n, 3).
        heights: (n,).
        w: (walk_size(n),).
        out: (n,), written.
    """
    n = len(speeds)
    flat = blocks.reshape(-1)
    clear_torques(n, w)
    for group in range(blocks.shape[0]):
        base = np.uint64(group * n * PER_SAMPLE * LANES)
        walk_motion(n, base, row, flat, speeds, position, potential, w)
        walk_dual(n, 0, base, row, flat, speeds, w)
        walk_back(n, row, speeds, links, heights, w)
    for b in range(n):
        o, total = np.uint64(b * WALKED * LANES) + OUT, 0.0
        for j in range(_L):
            total += w[o + j]
        out[b] = total


@njit(cache=True, nogil=True)
def cross_torques(
    row: FloatArray,
    columns: FloatArray,
    direction: FloatArray,
    speeds: FloatArray,
    links: FloatArray,
    position: FloatArray,
    potential: FloatArray,
    heights: FloatArray,
    friction: FloatArray,
    w: FloatArray,
    out: FloatArray,
) -> None:
    """Covariance of torques at samples with that at x, of the Lagrangian part and friction.

    Args:
        row: (n * FEATURES,) of x.
        columns: (n * FEATURES, M) of the samples.
        direction: (M, n) of the samples, for Coulomb friction; at x it is the sign of the velocity.
        speeds: (n,), see :func:`.chain_kernel.torque_block`.
        links: (n,).
        position: (n, 3).
        potential: (n, 3).
        heights: (n,).
        friction: (n, 2) variances of viscous and Coulomb friction.
        w: (chain_workspace(n),).
        out: (M n, n), written.
    """
    n = len(speeds)
    for start in range(0, columns.shape[1], LANES):
        count = load_samples(n, columns, start, w)
        k = torque_block(n, row, speeds, links, position, potential, heights, w)
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
