"""Cheap geometry for the optimiser: signed distances of balls to boxes with gradients, and the joint inertia's size.

The certificate uses the true convex bodies; this only has to point the right way. What it gets wrong at a candidate is
measured against the certificate there and added as a reserve, see :mod:`safe_sysid.planning.constraints`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.robot.model import Body
from safe_sysid.robot.regressors import cross

__all__ = ["BallCover", "box_distance_kernel", "cover", "inertia_share_kernel", "pair_distance_kernel"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: Largest edge of the cells that a body is cut into, m.
_CELL = 0.06


def _cells(points: FloatArray, edge: float) -> tuple[FloatArray, float]:
    """Cut the box around points (m, 3), in its principal axes or the given ones, into cells: centres and their size."""
    _, _, principal = np.linalg.svd(points - points.mean(axis=0), full_matrices=True)
    volumes = [np.prod(np.ptp(points @ axes.T, axis=0) + 1e-3) for axes in (np.eye(3), principal)]
    axes = principal if volumes[1] < volumes[0] * (1.0 - 1e-9) else np.eye(3)
    lower, extent = (points @ axes.T).min(axis=0), np.ptp(points @ axes.T, axis=0)
    count = np.maximum(np.ceil(extent / edge - 1e-9), 1).astype(int)
    size = extent / count
    grid = np.stack(np.meshgrid(*(np.arange(c) + 0.5 for c in count), indexing="ij"), axis=-1).reshape(-1, 3)
    centres = (lower + grid * size) @ axes
    # Between the ball inside the cell and the one around it.
    return centres, 0.25 * float(size.max() + np.linalg.norm(size))


@dataclass(frozen=True, eq=False)
class BallCover:
    """Balls that stand for bodies.

    Attributes:
        joint: (B,) index of the joint frame that each ball moves with, -1 for fixed.
        centre: (B, 3) in that frame, m.
        radius: (B,) m.
        body: (B,) index of the body that it belongs to.
    """

    joint: IntArray
    centre: FloatArray
    radius: FloatArray
    body: IntArray

    def pairs(self, bodies: Sequence[Body], allowed: frozenset[frozenset[str]]) -> IntArray:
        """(P, 2) ball pairs of different, movable against each other, not allowed bodies."""
        out = []
        for a in range(len(self.joint)):
            for b in range(a):
                first, second = bodies[self.body[a]], bodies[self.body[b]]
                if first.joint != second.joint and frozenset((first.name, second.name)) not in allowed:
                    out.append((a, b))
        return np.array(out, dtype=np.int64).reshape(-1, 2)


def cover(bodies: Iterable[Body]) -> BallCover:
    """Balls for all bodies."""
    joint: list[int] = []
    centre: list[FloatArray] = []
    radius: list[float] = []
    owner: list[int] = []
    for index, body in enumerate(bodies):
        centres, size = _cells(np.asarray(body.points), max(_CELL, 1.2 * body.radius))
        # A swept ball of radius r around a short edge s reaches sqrt(r^2 + s^2) at most.
        r = float(np.hypot(body.radius, size)) if body.radius > 0.0 else size
        joint += [body.joint] * len(centres)
        centre += list(centres)
        radius += [r] * len(centres)
        owner += [index] * len(centres)
    return BallCover(
        np.array(joint, dtype=np.int64),
        np.array(centre, dtype=float).reshape(-1, 3),
        np.array(radius, dtype=float),
        np.array(owner, dtype=np.int64),
    )


@njit(cache=True)
def _place(r: FloatArray, p: FloatArray, joint: IntArray, centre: FloatArray, world: FloatArray) -> None:
    for b in range(joint.shape[0]):
        j = joint[b]
        for i in range(3):
            if j < 0:
                world[b, i] = centre[b, i]
            else:
                world[b, i] = (
                    p[j, i]
                    + r[j, i, 0] * centre[b, 0]
                    + r[j, i, 1] * centre[b, 1]
                    + r[j, i, 2] * centre[b, 2]
                )


@njit(cache=True)
def _slope(
    r: FloatArray, p: FloatArray, axis: FloatArray, i: int, point: FloatArray, normal: FloatArray
) -> float:
    """Velocity of ``point`` along ``normal`` per unit velocity of joint i."""
    z0 = r[i, 0, 0] * axis[i, 0] + r[i, 0, 1] * axis[i, 1] + r[i, 0, 2] * axis[i, 2]
    z1 = r[i, 1, 0] * axis[i, 0] + r[i, 1, 1] * axis[i, 1] + r[i, 1, 2] * axis[i, 2]
    z2 = r[i, 2, 0] * axis[i, 0] + r[i, 2, 1] * axis[i, 1] + r[i, 2, 2] * axis[i, 2]
    d0, d1, d2 = point[0] - p[i, 0], point[1] - p[i, 1], point[2] - p[i, 2]
    return (z1 * d2 - z2 * d1) * normal[0] + (z2 * d0 - z0 * d2) * normal[1] + (z0 * d1 - z1 * d0) * normal[2]


@njit(cache=True)
def _box_distance(
    point: FloatArray, rotation: FloatArray, centre: FloatArray, half: FloatArray, normal: FloatArray
):
    """Signed distance of a point to a box and its gradient (in ``normal``)."""
    local, outside = np.empty(3), np.empty(3)
    inside, square, worst = -1e30, 0.0, 0
    for i in range(3):
        local[i] = 0.0
        for c in range(3):
            local[i] += rotation[c, i] * (point[c] - centre[c])
        gap = abs(local[i]) - half[i]
        if gap > inside:
            inside, worst = gap, i
        outside[i] = max(gap, 0.0) * (1.0 if local[i] >= 0.0 else -1.0)
        square += outside[i] * outside[i]
    if square > 0.0:
        distance = np.sqrt(square)
        for i in range(3):
            outside[i] /= distance
    else:
        distance = inside
        for i in range(3):
            outside[i] = 0.0
        outside[worst] = 1.0 if local[worst] >= 0.0 else -1.0
    for i in range(3):
        normal[i] = rotation[i, 0] * outside[0] + rotation[i, 1] * outside[1] + rotation[i, 2] * outside[2]
    return distance


@njit(cache=True)
def box_distance_kernel(
    axis: FloatArray,
    r: FloatArray,
    p: FloatArray,
    joint: IntArray,
    centre: FloatArray,
    radius: FloatArray,
    box_rotation: FloatArray,
    box_centre: FloatArray,
    box_half: FloatArray,
    e_bound: FloatArray,
    value: FloatArray,
    slope: FloatArray,
) -> None:
    """Smallest distance ball to box at each of N samples, less the tracking error's reach; and d/dq (N, n)."""
    n = axis.shape[0]
    world = np.empty((joint.shape[0], 3))
    normal, row = np.empty(3), np.empty(n)
    for k in range(r.shape[0]):
        _place(r[k], p[k], joint, centre, world)
        value[k] = 1e3
        slope[k] = 0.0
        for b in range(joint.shape[0]):
            if joint[b] < 0:
                continue
            for o in range(box_half.shape[0]):
                d = _box_distance(world[b], box_rotation[o], box_centre[o], box_half[o], normal) - radius[b]
                if d >= value[k]:
                    continue
                for i in range(n):
                    row[i] = _slope(r[k], p[k], axis, i, world[b], normal) if i <= joint[b] else 0.0
                    d -= e_bound[i] * abs(row[i])
                if d < value[k]:
                    value[k] = d
                    slope[k] = row


@njit(cache=True)
def pair_distance_kernel(
    axis: FloatArray,
    r: FloatArray,
    p: FloatArray,
    joint: IntArray,
    centre: FloatArray,
    radius: FloatArray,
    pairs: IntArray,
    e_bound: FloatArray,
    value: FloatArray,
    slope: FloatArray,
) -> None:
    """Smallest distance of ball pairs at each of N samples, less the tracking error's reach; and d/dq (N, n)."""
    n = axis.shape[0]
    world = np.empty((joint.shape[0], 3))
    normal, row = np.empty(3), np.empty(n)
    for k in range(r.shape[0]):
        _place(r[k], p[k], joint, centre, world)
        value[k] = 1e3
        slope[k] = 0.0
        for c in range(pairs.shape[0]):
            a, b = pairs[c, 0], pairs[c, 1]
            square = 0.0
            for i in range(3):
                normal[i] = world[a, i] - world[b, i]
                square += normal[i] * normal[i]
            length = np.sqrt(square)
            d = length - radius[a] - radius[b]
            if d >= value[k] or length < 1e-9:
                continue
            for i in range(3):
                normal[i] /= length
            for i in range(n):
                row[i] = 0.0
                if i <= joint[a]:
                    row[i] += _slope(r[k], p[k], axis, i, world[a], normal)
                if i <= joint[b]:
                    row[i] -= _slope(r[k], p[k], axis, i, world[b], normal)
                d -= e_bound[i] * abs(row[i])
            if d < value[k]:
                value[k] = d
                slope[k] = row


@njit(cache=True)
def inertia_share_kernel(
    axis: FloatArray,
    r: FloatArray,
    p: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    spare: FloatArray,
    out: FloatArray,
) -> None:
    """``sum_i M_ii / spare_i`` (N,), M the inertia without rotors; each link's share is its largest in the box."""
    n = axis.shape[0]
    z, d, v, lin, ang = np.empty(3), np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    c = np.empty(10)
    for k in range(r.shape[0]):
        out[k] = 0.0
        for i in range(n):
            for a in range(3):
                z[a] = r[k, i, a, 0] * axis[i, 0] + r[k, i, a, 1] * axis[i, 1] + r[k, i, a, 2] * axis[i, 2]
            for link in range(i, n):
                for a in range(3):
                    d[a] = p[k, link, a] - p[k, i, a]
                cross(z, d, v)
                for a in range(3):
                    lin[a] = r[k, link, 0, a] * v[0] + r[k, link, 1, a] * v[1] + r[k, link, 2, a] * v[2]
                    ang[a] = r[k, link, 0, a] * z[0] + r[k, link, 1, a] * z[1] + r[k, link, 2, a] * z[2]
                cross(lin, ang, v)
                c[0] = lin[0] ** 2 + lin[1] ** 2 + lin[2] ** 2
                c[1], c[2], c[3] = 2 * v[0], 2 * v[1], 2 * v[2]
                c[4], c[6], c[9] = ang[0] ** 2, ang[1] ** 2, ang[2] ** 2
                c[5], c[7], c[8] = 2 * ang[0] * ang[1], 2 * ang[0] * ang[2], 2 * ang[1] * ang[2]
                total = 0.0
                for e in range(10):
                    total += max(c[e] * lower[10 * link + e], c[e] * upper[10 * link + e])
                out[k] += max(total, 0.0) / spare[i]
