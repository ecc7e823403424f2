"""Clearance over time cells: which pairs count, which direction separates them, and the verified bound.

coal (GJK/EPA) looks at the middle pose of a cell and proposes a direction; :mod:`safe_sysid.reachability.separation`
verifies it over the whole cell. Pairs whose bounding spheres are far apart are done after the spheres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import coal
import numpy as np
from numpy.typing import NDArray

from safe_sysid.reachability.cells import TimeCells, TrackingSet
from safe_sysid.reachability.pose import relative_poses
from safe_sysid.reachability.separation import separation_kernel
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.scene import Scene

__all__ = ["Clearance", "clearance_pairs", "coal_core", "enclose_clearance"]

FloatArray = NDArray[np.float64]
#: Below this distance a pair gets coal's direction; above it the bound of the spheres is good enough, m.
NEAR = 0.10
#: Corners of turned boxes and float points of the hulls are rounded: far below a nanometre, m.
_ROUNDING = 1e-12
#: Radius of the capsules that stand for segments and points in proposals, m.
_CORE = 1e-4


@dataclass(frozen=True)
class Clearance:
    """Verified lower bounds of distances.

    Attributes:
        bounds: (M, P) lower bound per cell and pair, m; negative where a separation could not be shown.
        pairs: names of the two bodies or boxes, box first.
        is_self: (P,) whether both belong to the robot.
    """

    bounds: FloatArray
    pairs: tuple[tuple[str, str], ...]
    is_self: NDArray[np.bool_]


def clearance_pairs(model: RobotModel, scene: Scene) -> tuple[list[Body], list[tuple[int, int]]]:
    """All shapes (boxes as bodies of the world first) and the index pairs to check, parent frame first.

    Left out: allowed pairs of model and scene, pairs of boxes, and pairs of bodies that move with one joint (their
    distance never changes).
    """
    boxes = [Body(box.name, -1, box.corners, 0.0, "box") for box in scene.boxes]
    shapes = boxes + list(model.bodies)
    allowed = set(model.allowed_pairs) | set(scene.allowed_pairs)
    pairs = []
    for i, first in enumerate(shapes):
        for k in range(max(i + 1, len(boxes)), len(shapes)):
            second = shapes[k]
            rigid = i >= len(boxes) and first.joint == second.joint
            if rigid or frozenset((first.name, second.name)) in allowed:
                continue
            pairs.append((i, k) if first.joint <= second.joint else (k, i))
    return shapes, pairs


def enclose_clearance(
    model: RobotModel, scene: Scene, cells: TimeCells, tracking: TrackingSet, near: float = NEAR
) -> Clearance:
    """Lower bounds of all clearances for every time and every true tracking error in the set.

    Args:
        model: bodies, allowed pairs and kinematics.
        scene: boxes.
        cells: the desired motion.
        tracking: bounds of the true errors.
        near: distance up to which bounds are made tight, m.
    """
    shapes, pairs = clearance_pairs(model, scene)
    names = tuple((shapes[a].name, shapes[b].name) for a, b in pairs)
    is_self = np.array([shapes[a].kind != "box" for a, _ in pairs], dtype=bool)
    count = cells.count
    if not pairs:
        return Clearance(np.full((count, 0), np.inf), names, is_self)
    rotations, origins = relative_poses(model.kinematics, cells, tracking)
    frames = np.array([s.joint + 1 for s in shapes])
    index = np.array(pairs)

    # Bounding spheres: one point each, direction along the centres.
    spheres = np.array([_bounding_sphere(s) for s in shapes])
    tasks = np.column_stack([np.repeat(np.arange(count), len(pairs)), np.tile(index, (count, 1))])
    cell, a, b = tasks.T
    pose_r, pose_p = (
        rotations[cell, frames[a], frames[b], ..., 0],
        origins[cell, frames[a], frames[b], ..., 0],
    )
    towards = pose_p + np.einsum("tij,tj->ti", pose_r, spheres[b, :3]) - spheres[a, :3]
    bounds = np.full(len(tasks), -np.inf)
    one_each = np.arange(len(shapes) + 1)
    separation_kernel(
        rotations,
        origins,
        spheres[:, :3].copy(),
        one_each,
        frames,
        spheres[:, 3].copy(),
        tasks,
        towards,
        bounds,
    )

    close = np.flatnonzero(~(bounds > near))
    if close.size:
        points = np.concatenate([s.points for s in shapes])
        first = np.concatenate([[0], np.cumsum([len(s.points) for s in shapes])])
        radius = np.array([s.radius for s in shapes])
        directions = _propose(
            [coal_core(s) for s in shapes], a[close], b[close], pose_r[close], pose_p[close]
        )
        sharper = bounds[close]
        separation_kernel(
            rotations, origins, points, first, frames, radius, tasks[close], directions, sharper
        )
        bounds[close] = sharper
    return Clearance(bounds.reshape(count, len(pairs)) - _ROUNDING, names, is_self)


def _bounding_sphere(body: Body) -> FloatArray:
    """Centre (3) and a radius that covers the body whatever the centre's rounding."""
    centre = 0.5 * (body.points.min(axis=0) + body.points.max(axis=0))
    reach = np.linalg.norm(body.points - centre, axis=1).max()
    return np.array([*centre, (reach + body.radius) * (1.0 + 1e-14) + 1e-15 * np.abs(body.points).max()])


def coal_core(body: Body) -> tuple[Any, FloatArray, FloatArray, float]:
    """A coal shape near the body's uninflated hull, its rotation and position in the body's frame, its own radius, m.

    Points and segments become thin capsules (the radius returned), more points their convex hull, thickened if flat.
    """
    points = np.asarray(body.points)
    if len(points) > 2:
        # qhull wants a volume (coal crashes without): flat sets are thickened in the directions that they lack.
        extents, axes = np.linalg.svd(points - points.mean(axis=0))[1:]
        extents = np.append(extents, np.zeros(3 - len(extents)))
        flat = axes[extents < 1e-2 * _CORE * np.sqrt(len(points))]
        cloud = coal.StdVec_Vec3s()
        for offset in (np.zeros(3), *_CORE * flat, *-_CORE * flat):
            for point in points:
                cloud.append(point + offset)
        return coal.Convex.convexHull(cloud, False, None), np.eye(3), np.zeros(3), _CORE if len(flat) else 0.0
    centre = 0.5 * (points.min(axis=0) + points.max(axis=0))
    offsets = points - centre
    farthest = offsets[int(np.argmax(np.linalg.norm(offsets, axis=1)))]
    half = float(np.linalg.norm(farthest))
    along = farthest / half if half > 0.0 else np.array([0.0, 0.0, 1.0])
    side = np.cross(along, np.eye(3)[int(np.argmin(np.abs(along)))])
    side /= np.linalg.norm(side)
    return (
        coal.Capsule(_CORE, max(2.0 * half, 1e-9)),
        np.stack([side, np.cross(along, side), along], axis=1),
        centre,
        _CORE,
    )


def _propose(
    shapes: list[tuple[Any, FloatArray, FloatArray, float]],
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    rotations: FloatArray,
    origins: FloatArray,
) -> FloatArray:
    """Normals (T, 3), by coal, from A to B, in A's frame, for the middle poses of B in A."""
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    first, second = coal.Transform3s(np.eye(3), np.zeros(3)), coal.Transform3s(np.eye(3), np.zeros(3))
    out = np.zeros((len(a), 3))
    for t in range(len(a)):
        shape_a, rot_a, pos_a, _ = shapes[a[t]]
        shape_b, rot_b, pos_b, _ = shapes[b[t]]
        first.setRotation(rot_a)
        first.setTranslation(pos_a)
        second.setRotation(rotations[t] @ rot_b)
        second.setTranslation(rotations[t] @ pos_b + origins[t])
        result.clear()
        coal.distance(shape_a, first, shape_b, second, request, result)
        out[t] = result.normal
    return out
