"""Clearance over time cells: which pairs count, which direction separates them, and the verified bound.

coal (GJK/EPA) looks at the middle pose of a cell and proposes a direction; :mod:`safe_sysid.reachability.separation`
verifies it over the whole cell. Pairs whose bounding spheres are far apart are done after the spheres. For a near pair
coal is asked in every few cells (*keys*); between them directions are interpolated, and coal is asked again only where
the bound falls short of what its neighbours let expect ("Plans", clearance, in docs/understand/guarantees.md).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import coal
import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.errors import PlanError
from safe_sysid.reachability.cells import ErrorBox, TimeCells, TrackingSet
from safe_sysid.reachability.pose import relative_poses
from safe_sysid.reachability.separation import cull_kernel, separation_kernel
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.scenes.obstacles import PLACEMENT
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["NEAR", "Clearance", "clearance_pairs", "coal_core", "enclose_clearance", "verified_bounds"]

#: Below this distance a pair gets coal's direction; above it the bound of the spheres is good enough, m.
NEAR = 0.10
#: coal is asked in every so many cells of a near pair; 8 of 128 cells of 3 s are 0.19 s.
_STRIDE = 8
#: A bound that is lower than expected from its neighbours by more than this (m, or share) is worth asking coal.
_SHORT, _SHORT_SHARE = 5e-4, 0.05
#: Radius of the capsules that stand for segments and points in proposals, m.
_CORE = 1e-4


@dataclass(frozen=True)
class Clearance:
    """Verified lower bounds of distances."""

    bounds: FloatArray  #: (M, P) lower bound per cell and pair, m; negative where a separation could not be shown
    pairs: tuple[tuple[str, str], ...]
    is_self: BoolArray  #: (P,) whether both belong to the robot
    #: (M, P, 3) separating direction that the bound rests on, in the first one's frame; zero where the bounding spheres
    #: were enough. With these, :func:`enclose_clearance` finds the same bounds without coal.
    directions: FloatArray


def clearance_pairs(model: RobotModel, scene: Scene) -> tuple[list[Body], list[tuple[int, int]]]:
    """All shapes (boxes as bodies of the world first) and the index pairs to check, parent frame first.

    Left out: allowed pairs of model and scene, pairs of boxes, and pairs of bodies that move with one joint (their
    distance never changes).
    """
    obstacles = scene.bodies()
    shapes = obstacles + list(model.bodies)
    allowed = set(model.allowed_pairs) | set(scene.allowed_pairs)
    pairs = []
    for i, first in enumerate(shapes):
        for k in range(max(i + 1, len(obstacles)), len(shapes)):
            second = shapes[k]
            rigid = i >= len(obstacles) and first.joint == second.joint
            if rigid or frozenset((first.name, second.name)) in allowed:
                continue
            pairs.append((i, k) if first.joint <= second.joint else (k, i))
    return shapes, pairs


def enclose_clearance(
    model: RobotModel,
    scene: Scene,
    cells: TimeCells,
    tracking: TrackingSet | ErrorBox,
    near: float = NEAR,
    directions: FloatArray | None = None,
    threads: int = 1,
) -> Clearance:
    """Lower bounds of all clearances for every time and every true tracking error in the set.

    Args:
        tracking: bounds of the true errors.
        near: distance up to which bounds are made tight, m.
        directions: (M, P, 3) of an earlier result for the same pairs; verified instead of asking coal.

    Raises:
        PlanError: directions of another shape.
    """
    shapes, pairs = clearance_pairs(model, scene)
    names = tuple((shapes[a].name, shapes[b].name) for a, b in pairs)
    is_self = np.array([min(pair) >= len(scene.obstacles) for pair in pairs], dtype=bool)
    count = cells.count
    used = np.zeros((count, len(pairs), 3))
    if directions is not None and np.shape(directions) != used.shape:
        raise PlanError(f"directions: shape {np.shape(directions)}: expected {used.shape}, cells x pairs x 3")
    if not pairs:
        return Clearance(np.full((count, 0), np.inf), names, is_self, used)
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        work = _ClearanceBounds(model, shapes, pairs, cells, tracking, near, pool if threads > 1 else None, threads)
        if directions is not None:
            given = np.asarray(directions, float)
            cell, pair = np.nonzero(~(work.bounds > near) & np.any(given != 0.0, axis=-1))
            work.verify(cell, pair, given[cell, pair])
        else:
            work.search(near)
    return Clearance(work.bounds - PLACEMENT, names, is_self, work.directions)


def verified_bounds(
    model: RobotModel,
    shapes: list[Body],
    pairs: list[tuple[int, int]],
    cells: TimeCells,
    tracking: TrackingSet | ErrorBox,
) -> FloatArray:
    """Lower bounds (M, P) of the distances of some pairs, m, over cells.

    ``pairs``: indices of shapes, the one nearer to the base first; ``tracking``: bounds of the true errors.
    """
    work = _ClearanceBounds(model, shapes, pairs, cells, tracking, NEAR, None, 1)
    work.search(NEAR)
    return work.bounds - PLACEMENT


class _ClearanceBounds:
    """Bounds (M, P) in the making, and the directions that they rest on."""

    def __init__(
        self,
        model: RobotModel,
        shapes: list[Body],
        pairs: list[tuple[int, int]],
        cells: TimeCells,
        tracking: TrackingSet | ErrorBox,
        near: float,
        pool: ThreadPoolExecutor | None,
        threads: int,
    ) -> None:
        """Poses, and what bounding spheres give."""
        self._pool, self._threads = pool, threads
        self._pairs = np.array(pairs)
        self._shapes = shapes
        self._frames = np.array([s.joint + 1 for s in shapes])
        self._sound = np.all(np.isfinite(cells.forms[:, 0]), axis=(1, 2))
        # Whether a cell begins where the one before it ends: else one's direction says nothing about the other's.
        self._meets = np.append(False, cells.borders[1:, 0] == cells.borders[:-1, 1])
        self._poses = self._chunked(
            cells.count, lambda part: relative_poses(model.kinematics, _part_of(cells, part), tracking)
        )
        self._points = np.concatenate([s.points for s in shapes])
        self._first = np.concatenate([[0], np.cumsum([len(s.points) for s in shapes])])
        self._radius = np.array([s.radius for s in shapes])
        spheres = np.array([_bounding_sphere(s) for s in shapes])
        self.bounds = np.full((cells.count, len(pairs)), -np.inf)
        self.directions = np.zeros((cells.count, len(pairs), 3))
        self._proposed = np.zeros_like(self.directions)  # what coal proposed, whether it was any good or not

        def cull(part: slice) -> None:
            cull_kernel(
                self._poses[0][part], self._poses[1][part], spheres, self._frames, self._pairs, near, self.bounds[part]
            )

        self._each(cells.count, cull)

    def _each(self, count: int, task: Callable[[slice], Any]) -> list[Any]:
        """Run a task on pieces of ``range(count)``, one per thread."""
        edges = np.linspace(0, count, (self._threads if self._pool else 1) + 1).astype(int)
        pieces = [slice(int(a), int(b)) for a, b in pairwise(edges) if b > a]
        if self._pool is None:
            return [task(piece) for piece in pieces]
        return list(self._pool.map(task, pieces))

    def _chunked(
        self, count: int, task: Callable[[slice], tuple[FloatArray, FloatArray]]
    ) -> tuple[FloatArray, FloatArray]:
        parts = self._each(count, task)
        if len(parts) == 1:
            return parts[0]
        first, second = zip(*parts, strict=True)
        return np.concatenate(first), np.concatenate(second)

    def verify(self, cell: IntArray, pair: IntArray, directions: FloatArray) -> None:
        """Take the directions (T, 3) where they are better than what there is."""
        if not len(cell):
            return
        tasks = np.column_stack([cell, self._pairs[pair]])
        found = self.bounds[cell, pair]
        before = found.copy()

        def run(part: slice) -> None:
            separation_kernel(
                *self._poses,
                self._points,
                self._first,
                self._frames,
                self._radius,
                tasks[part],
                directions[part],
                found[part],
            )

        self._each(len(tasks), run)
        self.bounds[cell, pair] = found
        better = found > before
        self.directions[cell[better], pair[better]] = directions[better]

    def search(self, near: float) -> None:
        """Tight bounds for what is nearer than ``near``: coal in the keys, interpolation between them, coal again."""
        close = ~(self.bounds > near)
        close &= self._sound[:, None]  # a broken cell is beyond help, and coal would choke
        columns = np.flatnonzero(close.any(axis=0))  # far pairs cost nothing from here on
        close = close[:, columns]
        keys = _keys(close, self._meets)
        cell, column = np.nonzero(keys)
        self._ask(cell, columns[column])
        cell, column = np.nonzero(close & ~keys)
        if not len(cell):
            return
        before, after = _neighbours(keys)
        low, high, pair = before[cell, column], after[cell, column], columns[column]
        share = ((cell - low) / (high - low))[:, None]
        proposed = (1.0 - share) * self._proposed[low, pair] + share * self._proposed[high, pair]
        self.verify(cell, pair, proposed)
        bounds = self.bounds
        expected = (1.0 - share[:, 0]) * bounds[low, pair] + share[:, 0] * bounds[high, pair]
        short = ~(bounds[cell, pair] >= expected - np.maximum(_SHORT, _SHORT_SHARE * expected))
        self._ask(cell[short], pair[short])

    def _ask(self, cell: IntArray, pair: IntArray) -> None:
        if not len(cell):
            return
        a, b = self._pairs[pair].T
        rotations, origins = (poses[cell, self._frames[a], self._frames[b], ..., 0] for poses in self._poses)
        cores = {int(i): coal_core(self._shapes[i]) for i in np.unique([a, b])}
        directions = _propose(cores, a, b, rotations, origins)
        self._proposed[cell, pair] = directions
        self.verify(cell, pair, directions)


def _part_of(cells: TimeCells, part: slice) -> TimeCells:
    return TimeCells(cells.grid[part.start : part.stop + 1], cells.forms[part])


def _keys(close: BoolArray, meets: BoolArray) -> BoolArray:
    """Of each run of close cells (M, P) that meet (M,): its first, its last, and every few between."""
    count = len(close)
    outside = np.zeros((1, close.shape[1]), dtype=bool)
    starts = close & ~(np.concatenate([outside, close[:-1]]) & meets[:, None])
    ends = close & ~np.concatenate([(close & ~starts)[1:], outside])
    rows = np.arange(count)[:, None]
    began = np.maximum.accumulate(np.where(starts, rows, 0), axis=0)
    return close & (starts | ends | ((rows - began) % _STRIDE == 0))


def _neighbours(keys: BoolArray) -> tuple[IntArray, IntArray]:
    """For each cell and pair the last key at or before, and the next at or after it (M, P)."""
    rows, last = np.arange(len(keys))[:, None], len(keys) - 1
    before = np.maximum.accumulate(np.where(keys, rows, 0), axis=0)
    after = np.minimum.accumulate(np.where(keys, rows, last)[::-1], axis=0)[::-1]
    return before, after


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
    shapes: dict[int, tuple[Any, FloatArray, FloatArray, float]],
    a: IntArray,
    b: IntArray,
    rotations: FloatArray,
    origins: FloatArray,
) -> FloatArray:
    """Normals (T, 3), by coal, from A to B, in A's frame, for the middle poses of B in A."""
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    first, second = coal.Transform3s(np.eye(3), np.zeros(3)), coal.Transform3s(np.eye(3), np.zeros(3))
    out = np.zeros((len(a), 3))
    for t in range(len(a)):
        shape_a, rot_a, pos_a, _ = shapes[int(a[t])]
        shape_b, rot_b, pos_b, _ = shapes[int(b[t])]
        first.setRotation(rot_a)
        first.setTranslation(pos_a)
        second.setRotation(rotations[t] @ rot_b)
        second.setTranslation(rotations[t] @ pos_b + origins[t])
        result.clear()
        coal.distance(shape_a, first, shape_b, second, request, result)
        out[t] = result.normal
    return out
