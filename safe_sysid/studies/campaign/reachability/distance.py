r"""Distance of two convex bodies, from above: the nearest pair of points found, each a convex combination of corners.

Every answer is a distance of two points *of* the bodies, so it is never less than the true one, whatever the algorithm
does (Gilbert's with Wolfe's corral of at most four corners): an enclosure that claims more is refuted.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray

__all__ = ["nearest_points"]


@njit(cache=True)
def _affine_minimum(points: FloatArray, mask: int, weights: FloatArray) -> float:
    """Least squared norm over the affine hull of some of four points; inf if it lies outside of their convex hull."""
    index = np.empty(4, np.int64)
    m = 0
    for i in range(4):
        weights[i] = 0.0
        if mask >> i & 1:
            index[m] = i
            m += 1
    base = points[index[0]]
    size = m - 1
    gram = np.zeros((3, 4))
    for i in range(size):
        for k in range(size):
            for c in range(3):
                gram[i, k] += (points[index[i + 1], c] - base[c]) * (points[index[k + 1], c] - base[c])
        for c in range(3):
            gram[i, 3] -= (points[index[i + 1], c] - base[c]) * base[c]
    for i in range(size):  # Gauss with pivots on the diagonal: the matrix is positive semidefinite
        if not gram[i, i] > 1e-300:
            return math.inf
        for k in range(i + 1, size):
            factor = gram[k, i] / gram[i, i]
            for c in range(i, 4):
                gram[k, c] -= factor * gram[i, c]
    total = 0.0
    for i in range(size - 1, -1, -1):
        value = gram[i, 3]
        for k in range(i + 1, size):
            value -= gram[i, k] * weights[index[k + 1]]
        value /= gram[i, i]
        if not value >= 0.0:
            return math.inf
        weights[index[i + 1]] = value
        total += value
    if not total <= 1.0:
        return math.inf
    weights[index[0]] = 1.0 - total
    squared = 0.0
    for c in range(3):
        value = 0.0
        for i in range(m):
            value += weights[index[i]] * points[index[i], c]
        squared += value * value
    return squared


@njit(cache=True)
def nearest_points(a: FloatArray, b: FloatArray, weight_a: FloatArray, weight_b: FloatArray) -> float:
    """Distance of the hulls of a (m, 3) and b (k, 3); fills the weights (m,), (k,) of a pair of points that have it.

    Arrays that may not be written are another type, for which it would be compiled anew.
    """
    corral, weights, best_weights = np.zeros((4, 3)), np.zeros(4), np.zeros(4)
    first, second = np.zeros(4, np.int64), np.zeros(4, np.int64)
    used = 1
    best_weights[0] = 1.0
    v = np.empty(3)
    for c in range(3):
        corral[0, c] = a[0, c] - b[0, c]
        v[c] = corral[0, c]
    for _ in range(100):
        norm = v[0] * v[0] + v[1] * v[1] + v[2] * v[2]
        i, k = 0, 0
        low, high = math.inf, -math.inf
        for p in range(a.shape[0]):
            x = a[p, 0] * v[0] + a[p, 1] * v[1] + a[p, 2] * v[2]
            if x < low:
                low, i = x, p
        for p in range(b.shape[0]):
            x = b[p, 0] * v[0] + b[p, 1] * v[1] + b[p, 2] * v[2]
            if x > high:
                high, k = x, p
        known = False
        for s in range(used):
            known = known or (first[s] == i and second[s] == k)
        if known or norm - (low - high) <= 1e-15 * norm or used == 4:
            break
        for c in range(3):
            corral[used, c] = a[i, c] - b[k, c]
        first[used], second[used] = i, k
        used += 1
        best = math.inf
        for mask in range(1, 1 << used):
            value = _affine_minimum(corral, mask, weights)
            if value < best:
                best = value
                for s in range(4):
                    best_weights[s] = weights[s]
        if not best < norm:
            best_weights[used - 1] = 0.0
            break
        kept = 0
        for s in range(used):
            if best_weights[s] > 0.0:
                for c in range(3):
                    corral[kept, c] = corral[s, c]
                first[kept], second[kept], best_weights[kept] = first[s], second[s], best_weights[s]
                kept += 1
        best_weights[kept:] = 0.0
        used = kept
        for c in range(3):
            v[c] = 0.0
            for s in range(used):
                v[c] += best_weights[s] * corral[s, c]
    weight_a[:] = 0.0
    weight_b[:] = 0.0
    for s in range(used):
        weight_a[first[s]] += best_weights[s]
        weight_b[second[s]] += best_weights[s]
    return math.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])
