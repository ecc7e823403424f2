r"""Swept volume: for every body and group of time cells a box in the world that holds it, tracking error included.

A point x of joint frame j is ``p_j + R_j x`` in the world; row i of R_j is the world's axis i seen from the frame, a
vector turned down the chain as in :mod:`safe_sysid.reachability.turns`. So every coordinate of every point is one
affine form in (time, e), whose range is exact to first order; a hull of points inflated by a radius needs no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import PlanError
from safe_sysid.reachability.cells import ErrorBox, TimeCells, TrackingSet, affine_motion
from safe_sysid.reachability.rotations import rotation_parts
from safe_sysid.reachability.turns import apply_matrix, joint_matrix, small_turn
from safe_sysid.robot.model import RobotModel

__all__ = ["SweptVolume", "swept_boxes"]

_EPS = 2.0**-52
_TINY = 1e-150


@dataclass(frozen=True, eq=False)
class SweptVolume:
    """Boxes in the world, B bodies and G groups of cells."""

    names: tuple[str, ...]
    #: lower, upper: (G, B, 3) corners, m; read-only
    lower: FloatArray
    upper: FloatArray
    times: FloatArray  #: (G, 2) first and last time of each group, s; read-only


@njit(cache=True, nogil=True)
def _kernel(
    parts: FloatArray,
    error: float,
    stretch: float,
    translation: FloatArray,
    axis: FloatArray,
    q: FloatArray,
    points: FloatArray,
    first: IntArray,
    joint: IntArray,
    out: FloatArray,
) -> None:
    """Fill ``out`` (M, B, 3, 2) with the ranges of bodies' points ``points[first[b] : first[b + 1]]`` in joint frames.

    ``q`` (M, n, 5) are centre, time, e, 0, remainder of the joints' angles.
    """
    cells, n, zero = q.shape[0], q.shape[1], np.int64(0)
    size = n + 3
    rows, origin = np.zeros((n + 1, 3, 3, size)), np.zeros((n + 1, 3, size))
    matrix = np.zeros((3, 3))
    for i in range(3):
        rows[0, i, i, 0] = 1.0
    for m in range(cells):
        for j in range(n):
            joint_matrix(parts[j], q[m, j, 0], matrix)
            t = translation[j]
            length = math.sqrt(t[0] * t[0] + t[1] * t[1] + t[2] * t[2])
            for i in range(3):
                above, row = rows[j, i], rows[j + 1, i]
                total = 0.0
                for k in range(2 + j):
                    a, b, c = above[0, k] * t[0], above[1, k] * t[1], above[2, k] * t[2]
                    origin[j + 1, i, k] = origin[j, i, k] + (a + b + c)
                    total += abs(origin[j, i, k]) + abs(a) + abs(b) + abs(c)
                rest = (origin[j, i, -1] + length * above[0, -1]) * (1.0 + 16.0 * _EPS)
                origin[j + 1, i, -1] = rest + 8.0 * _EPS * total + _TINY
                row[:] = 0.0
                apply_matrix(matrix, np.bool_(True), error, stretch, above, n, zero, j, zero, row)
                small_turn(row, axis[j], q[m, j], -1.0, j, n, zero, j, zero)
        for b in range(len(joint)):
            frame = joint[b] + 1
            for i in range(3):
                row, p = rows[frame, i], origin[frame, i]
                lowest, highest = math.inf, -math.inf
                for x in range(first[b], first[b + 1]):
                    x0, x1, x2 = points[x, 0], points[x, 1], points[x, 2]
                    centre, time, squares, total = 0.0, 0.0, 0.0, 0.0
                    for k in range(2 + frame):
                        value = p[k] + (row[0, k] * x0 + row[1, k] * x1 + row[2, k] * x2)
                        total += abs(p[k]) + abs(row[0, k] * x0) + abs(row[1, k] * x1) + abs(row[2, k] * x2)
                        if k == 0:
                            centre = value
                        elif k == 1:
                            time = abs(value)
                        else:
                            squares += value * value
                    away = math.sqrt(x0 * x0 + x1 * x1 + x2 * x2)
                    reach = time + math.sqrt(squares) + p[-1] + away * row[0, -1]
                    # Each term passes through fewer than size + 16 roundings.
                    reach += (size + 24) * _EPS * (total + reach) + _TINY
                    # NaN must survive: a comparison with it is False.
                    if not centre - reach >= lowest:
                        lowest = centre - reach
                    if not centre + reach <= highest:
                        highest = centre + reach
                    if reach != reach or centre != centre:
                        lowest, highest = math.nan, math.nan
                        break
                out[m, b, i, 0], out[m, b, i, 1] = lowest, highest


@np.errstate(invalid="ignore", over="ignore")  # what breaks down becomes NaN, and bounds nothing
def swept_boxes(model: RobotModel, cells: TimeCells, tracking: TrackingSet | ErrorBox, group: int = 8) -> SweptVolume:
    """Boxes that hold every body at every instant of a group of cells, for every true tracking error in the set.

    ``tracking``: bounds of the true errors; ``group``: cells that share a box.

    Raises:
        PlanError: ``group`` is not a positive number.
    """
    if not (isinstance(group, int) and group >= 1):
        raise PlanError(f"group = {group!r}: expected a positive number of cells")
    (q,) = affine_motion(cells, tracking, with_r=False)
    n, bodies = model.n, model.bodies
    j = np.arange(n)
    own = (q[..., 0], q[..., 1], q[:, j, 2 + j], np.zeros(q.shape[:2]), q[..., -1])
    parts, error, stretch = rotation_parts(model.kinematics)
    found = np.empty((cells.count, len(bodies), 3, 2))
    if bodies:
        _kernel(
            parts,
            error + 64.0 * _EPS,
            stretch,
            np.array(model.kinematics.translation),
            np.array(model.kinematics.axis),
            np.stack(own, axis=-1),
            np.concatenate([b.points for b in bodies]),
            np.concatenate([[0], np.cumsum([len(b.points) for b in bodies])]),
            np.array([b.joint for b in bodies]),
            found,
        )
    radius = np.array([b.radius for b in bodies])[:, None]
    starts = np.arange(0, cells.count, group)
    lower = np.minimum.reduceat(found[..., 0], starts, axis=0) - radius
    upper = np.maximum.reduceat(found[..., 1], starts, axis=0) + radius
    ends = np.append(starts[1:], cells.count) - 1
    arrays = [
        lower - 2.0 * _EPS * np.abs(lower),
        upper + 2.0 * _EPS * np.abs(upper),
        np.stack([cells.borders[starts, 0], cells.borders[ends, 1]], axis=1),
    ]
    for array in arrays:
        array.setflags(write=False)
    return SweptVolume(tuple(b.name for b in bodies), *arrays)
