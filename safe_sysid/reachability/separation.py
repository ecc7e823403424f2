r"""Verified lower bounds of the distance of two convex bodies over a time cell: compiled kernels.

For any direction n (a float vector of any length), bodies A and B that are hulls of points inflated by radii:

``dist(A, B) >= (min_b n.b - max_a n.a) / |n| - radius_A - radius_B``.

A rests in its own frame, B's points are ``p + R b`` with the relative pose (R, p) an affine form; ``n.(p + R b)`` is
formed before its range is taken. A bad direction gives a weak bound, never a wrong one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.reachability.affine import add, add_scaled, affine_range
from safe_sysid.reachability.rotations import vector_add_scaled, vector_project

__all__ = ["separation_kernel"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_EPS = 2.0**-52
_TINY = 1e-150


@njit(cache=True)
def _separation(
    rotation: FloatArray,
    origin: FloatArray,
    points_a: FloatArray,
    points_b: FloatArray,
    radii: float,
    direction: FloatArray,
    work: FloatArray,
) -> float:
    """Lower bound for one pair in one cell and direction; -inf for a direction that is no direction."""
    squared = direction[0] * direction[0] + direction[1] * direction[1] + direction[2] * direction[2]
    if not 1e-12 < squared < 1e12:
        return -math.inf
    norm = math.sqrt(squared)
    highest = -math.inf
    for i in range(points_a.shape[0]):
        x = direction[0] * points_a[i, 0]
        y = direction[1] * points_a[i, 1]
        z = direction[2] * points_a[i, 2]
        highest = max(highest, x + y + z + 6.0 * _EPS * (abs(x) + abs(y) + abs(z)) + _TINY)
    # work: three forms n.R e_k, one n.p, one sum.
    work[:] = 0.0
    for i in range(3):
        vector_add_scaled(rotation[i], direction[i], work[:3])
        add_scaled(origin[i], direction[i], work[3])
    lowest = math.inf
    for b in range(points_b.shape[0]):
        vector_project(work[:3], points_b[b], work[4])
        add(work[4], work[3], work[4])
        lo, _ = affine_range(work[4], work.shape[1] - 3)
        if lo != lo:
            return math.nan
        lowest = min(lowest, lo)
    gap = lowest - highest
    gap -= 2.0 * _EPS * (abs(lowest) + abs(highest))
    ratio = gap / norm
    # norm has at most four roundings, the quotient one.
    return ratio - radii - 8.0 * _EPS * (abs(ratio) + radii) - _TINY


@njit(cache=True)
def separation_kernel(
    rotations: FloatArray,
    origins: FloatArray,
    points: FloatArray,
    first: IntArray,
    frames: IntArray,
    radius: FloatArray,
    tasks: IntArray,
    directions: FloatArray,
    out: FloatArray,
) -> None:
    """``out[t] = max(out[t], bound)`` for tasks (T, 3) of cell, shape A, shape B and directions (T, 3) in A's frame.

    ``rotations`` and ``origins`` come from :func:`relative_poses`; ``points`` (P, 3) are all shapes', of which shape s
    has rows ``first[s] : first[s + 1]``; ``frames`` (S,) is each shape's frame (0 the world, j + 1 joint j), ``radius``
    (S,) its radius in m. A NaN bound stays NaN.
    """
    work = np.zeros((5, origins.shape[-1]))
    for t in range(tasks.shape[0]):
        m, a, b = tasks[t, 0], tasks[t, 1], tasks[t, 2]
        bound = _separation(
            rotations[m, frames[a], frames[b]],
            origins[m, frames[a], frames[b]],
            points[first[a] : first[a + 1]],
            points[first[b] : first[b + 1]],
            (radius[a] + radius[b]) * (1.0 + 2.0 * _EPS),
            directions[t],
            work,
        )
        if bound != bound or bound > out[t]:
            out[t] = bound
