"""Cheap signed distances for the optimiser: bodies as balls, obstacles as boxes. Approximate, with gradients.

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

__all__ = ["BallCover", "box_distance_kernel", "cover", "pair_distance_kernel"]

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
    point: FloatArray,
    rotation: FloatArray,
    centre: FloatArray,
    half: FloatArray,
    normal: FloatArray,
    work: FloatArray,
) -> float:
    """Signed distance of a point to a box and its gradient (in ``normal``); ``work`` (3,)."""
    inside, square, worst, sign = -1e30, 0.0, 0, 1.0
    for i in range(3):
        x = 0.0
        for c in range(3):
            x += rotation[c, i] * (point[c] - centre[c])
        gap = abs(x) - half[i]
        if gap > inside:
            inside, worst, sign = gap, i, (1.0 if x >= 0.0 else -1.0)
        work[i] = 0.0
        if gap > 0.0:
            work[i] = gap if x >= 0.0 else -gap
            square += gap * gap
    if square > 0.0:
        distance = np.sqrt(square)
        for i in range(3):
            work[i] /= distance
    else:
        distance = inside
        work[worst] = sign
    for i in range(3):
        normal[i] = rotation[i, 0] * work[0] + rotation[i, 1] * work[1] + rotation[i, 2] * work[2]
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
    """Smallest distance ball to box at each of N samples, less the tracking error's reach there; and d/dq (N, n)."""
    world = np.empty((joint.shape[0], 3))
    normal, work = np.empty(3), np.empty(3)
    around = np.empty(box_half.shape[0])
    nearest, box = -1, -1
    for o in range(box_half.shape[0]):
        around[o] = np.sqrt(box_half[o, 0] ** 2 + box_half[o, 1] ** 2 + box_half[o, 2] ** 2)
    for k in range(r.shape[0]):
        _place(r[k], p[k], joint, centre, world)
        value[k] = 1e3
        slope[k] = 0.0
        if nearest >= 0:
            # Most likely still the nearest: a good bound from the start.
            d = _box_distance(world[nearest], box_rotation[box], box_centre[box], box_half[box], normal, work)
            value[k] = d - radius[nearest]
        for b in range(joint.shape[0]):
            if joint[b] < 0:
                continue
            for o in range(box_half.shape[0]):
                # A ball outside of the box's circumscribed sphere by more than the best so far needs no closer look.
                reach = value[k] + radius[b] + around[o]
                square = 0.0
                for i in range(3):
                    square += (world[b, i] - box_centre[o, i]) ** 2
                if reach > 0.0 and square >= reach * reach:
                    continue
                d = (
                    _box_distance(world[b], box_rotation[o], box_centre[o], box_half[o], normal, work)
                    - radius[b]
                )
                if d < value[k]:
                    value[k], nearest, box = d, b, o
        if nearest >= 0:
            _box_distance(world[nearest], box_rotation[box], box_centre[box], box_half[box], normal, work)
            for i in range(joint[nearest] + 1):
                slope[k, i] = _slope(r[k], p[k], axis, i, world[nearest], normal)
                value[k] -= e_bound[i] * abs(slope[k, i])


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
    normal = np.empty(3)
    for k in range(r.shape[0]):
        _place(r[k], p[k], joint, centre, world)
        value[k] = 1e3
        slope[k] = 0.0
        nearest = -1
        for c in range(pairs.shape[0]):
            a, b = pairs[c, 0], pairs[c, 1]
            square = 0.0
            for i in range(3):
                square += (world[a, i] - world[b, i]) ** 2
            reach = value[k] + radius[a] + radius[b]
            if (reach > 0.0 and square >= reach * reach) or square < 1e-18:
                continue
            d = np.sqrt(square) - radius[a] - radius[b]
            if d < value[k]:
                value[k], nearest = d, c
        if nearest >= 0:
            a, b = pairs[nearest, 0], pairs[nearest, 1]
            length = value[k] + radius[a] + radius[b]
            for i in range(3):
                normal[i] = (world[a, i] - world[b, i]) / length
            for i in range(n):
                if i <= joint[a]:
                    slope[k, i] += _slope(r[k], p[k], axis, i, world[a], normal)
                if i <= joint[b]:
                    slope[k, i] -= _slope(r[k], p[k], axis, i, world[b], normal)
                value[k] -= e_bound[i] * abs(slope[k, i])
