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

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.reachability.affine import add, add_scaled, affine_range, reach
from safe_sysid.reachability.rotations import vector_add_scaled, vector_project

__all__ = ["cull_kernel", "separation_kernel"]

_EPS = 2.0**-52
_TINY = 1e-150


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _spread(forms: FloatArray, n: int) -> float:
    """Upper bound of the Euclidean norm of what forms (m, K + 2) may differ from their centres."""
    total, last = 0.0, forms.shape[1] - 1
    for i in range(forms.shape[0]):
        radius = reach(forms[i], n) + forms[i, last]
        total += radius * radius
    return math.sqrt(total) * (1.0 + 4.0 * (last + 8) * _EPS) + _TINY


@njit(cache=True, nogil=True)
def cull_kernel(
    rotations: FloatArray,
    origins: FloatArray,
    spheres: FloatArray,
    frames: IntArray,
    pairs: IntArray,
    near: float,
    bounds: FloatArray,
) -> None:
    r"""Bounds (M, P) from bounding spheres (S, 4), centre and radius in the shape's frame, for pairs (P, 2) of shapes.

    First ``|p_0 + R_0 b - a| - sup|p - p_0| - |b| sup|R - R_0|``, which costs little because both suprema belong to
    frames, not to shapes; below ``near`` the separation along the line of centres. A NaN anywhere gives NaN.
    """
    count, size = frames.max() + 1, origins.shape[4]
    n = size - 3
    moved, turned = np.zeros((count, count)), np.zeros((count, count))
    work, direction = np.zeros((5, size)), np.zeros(3)
    centre_s, centre_t = np.zeros((1, 3)), np.zeros((1, 3))
    for m in range(bounds.shape[0]):
        moved[:] = -1.0
        for k in range(pairs.shape[0]):
            s, t = pairs[k, 0], pairs[k, 1]
            a, b = frames[s], frames[t]
            if moved[a, b] == -1.0:
                moved[a, b] = _spread(origins[m, a, b], n)
                turned[a, b] = _spread(rotations[m, a, b].reshape(9, size), n)
            square, length, total = 0.0, 0.0, 0.0
            for i in range(3):
                centre_s[0, i], centre_t[0, i] = spheres[s, i], spheres[t, i]
                direction[i] = origins[m, a, b, i, 0] - spheres[s, i]
                total += abs(origins[m, a, b, i, 0]) + abs(spheres[s, i]) + abs(spheres[t, i]) * 3.0
                length += spheres[t, i] * spheres[t, i]
                for c in range(3):
                    direction[i] += rotations[m, a, b, i, c, 0] * spheres[t, c]
                square += direction[i] * direction[i]
            radii = spheres[s, 3] + spheres[t, 3]
            length = math.sqrt(length)
            bound = math.sqrt(square) - moved[a, b] - turned[a, b] * length - radii
            bound -= 64.0 * _EPS * (total + radii + moved[a, b] + turned[a, b] * length) + _TINY
            if bound > near:
                bounds[m, k] = bound
                continue
            bounds[m, k] = _separation(
                rotations[m, a, b], origins[m, a, b], centre_s, centre_t, radii * (1.0 + 2.0 * _EPS), direction, work
            )
