r"""Relative poses of joint frames over time cells, as affine forms in (time, e).

For a pair of bodies only the joints *between* them matter. So the pose of frame B is enclosed relative to frame A,
for every A: what moves both cancels exactly instead of to first order. Index 0 is the world, j + 1 joint frame j.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.reachability.affine import add, put
from safe_sysid.reachability.cells import ErrorBox, TimeCells, TrackingSet, affine_motion
from safe_sysid.reachability.rotations import fill_rotation, rotate, rotation_parts, to_ball, vector_project
from safe_sysid.reachability.torque import form_ranges
from safe_sysid.robot.model import Kinematics

__all__ = ["point_ranges", "relative_poses"]


@njit(cache=True, nogil=True)
def _pose_kernel(
    parts: FloatArray,
    parts_error: float,
    stretch: float,
    translation: FloatArray,
    q: FloatArray,
    rotations: FloatArray,
    origins: FloatArray,
) -> None:
    """Fill ``rotations`` (M, n+1, n+1, 3, 3, K+2), ``origins`` (M, n+1, n+1, 3, K+2), entries [m, a, b] with a <= b."""
    cells, n, size = q.shape
    rot, inv = np.zeros((n, 3, 3, size)), np.zeros((n, 3, 3, size))
    work, step = np.zeros((2, size)), np.zeros(size)
    for m in range(cells):
        for j in range(n):
            fill_rotation(parts[j], parts_error, q[m, j], n, work, rot[j], inv[j])
        for a in range(n + 1):
            r, p = rotations[m, a, a], origins[m, a, a]
            r[:], p[:] = 0.0, 0.0
            for i in range(3):
                r[i, i, 0] = 1.0
            rotations[m, a, :a], origins[m, a, :a] = np.nan, np.nan
            for b in range(a, n):
                r, p = rotations[m, a, b], origins[m, a, b]
                r_next, p_next = rotations[m, a, b + 1], origins[m, a, b + 1]
                for i in range(3):
                    vector_project(r[i], translation[b], step)
                    add(p[i], step, p_next[i])
                    if a == b:
                        for c in range(3):
                            put(rot[b, i, c], r_next[i, c])
                        to_ball(r_next[i])
                    else:
                        # Row i of the product is the inverse joint rotation of row i.
                        rotate(inv[b], stretch, r[i], n, r_next[i])


def relative_poses(
    kin: Kinematics, cells: TimeCells, tracking: TrackingSet | ErrorBox
) -> tuple[FloatArray, FloatArray]:
    """Enclose the pose of every frame in every frame before it.

    Returns:
        Rotations (M, n+1, n+1, 3, 3, K+2) and origins (M, n+1, n+1, 3, K+2), K = 1 + n; entry [m, a, b] is frame b
        in frame a for a <= b (0 is the world), others are NaN. The private parts of a rotation's *rows* are balls.
    """
    (q,) = affine_motion(cells, tracking, with_r=False)
    count, n, size = q.shape
    parts, error, stretch = rotation_parts(kin)
    rotations = np.empty((count, n + 1, n + 1, 3, 3, size))
    origins = np.empty((count, n + 1, n + 1, 3, size))
    _pose_kernel(parts, error, stretch, np.array(kin.translation), q, rotations, origins)
    return rotations, origins


@njit(cache=True, nogil=True)
def _point_kernel(rotations: FloatArray, origins: FloatArray, points: FloatArray, out: FloatArray) -> None:
    """``out`` (M, P, 3, K+2) = origin + rotation point for poses (M, 3, 3, K+2), (M, 3, K+2)."""
    step = np.zeros(out.shape[-1])
    for m in range(out.shape[0]):
        for p in range(points.shape[0]):
            for i in range(3):
                vector_project(rotations[m, i], points[p], step)
                add(origins[m, i], step, out[m, p, i])


def point_ranges(rotations: FloatArray, origins: FloatArray, points: FloatArray) -> FloatArray:
    """(M, P, 3, 2): boxes that hold the points (P, 3) of one frame, from its poses (M, 3, 3, K+2) and (M, 3, K+2)."""
    out = np.empty((len(origins), len(points), 3, origins.shape[-1]))
    _point_kernel(np.array(rotations), np.array(origins), np.array(points, dtype=float), out)
    return form_ranges(out, out.shape[-1] - 3)
