"""Distances of all pairs of bodies at poses, by coal, with derivatives. True to the bodies; no proof over time."""

from __future__ import annotations

import coal
import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.reachability.clearance import clearance_pairs, coal_core
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["PairDistances"]

#: Pairs farther apart than this are not looked at, m; they count as that far.
SEARCH_DISTANCE = 0.15


class PairDistances:
    """Signed distances of the arm's bodies to obstacles and to each other.

    Attributes:
        names: (first, second) of each pair, as certificates name them.
        is_self: (P,) whether both belong to the arm.
    """

    def __init__(self, model: RobotModel, scene: Scene) -> None:
        scene.check(model)
        shapes, pairs = clearance_pairs(model, scene)
        self._kin = model.kinematics
        self._cores = [coal_core(shape) for shape in shapes]
        self._pairs = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self._joint = np.array([shape.joint for shape in shapes], dtype=np.int64)
        # A segment's capsule is thicker than it on all sides; a flat hull only on two: there it stays thicker.
        self._radius = np.array(
            [s.radius - (core[3] if len(s.points) <= 2 else 0.0) for s, core in zip(shapes, self._cores, strict=True)]
        )
        middle = [0.5 * (s.points.min(axis=0) + s.points.max(axis=0)) for s in shapes]
        self._middle = np.array(middle).reshape(-1, 3)
        self._reach = np.array(
            [s.radius + np.linalg.norm(s.points - m, axis=1).max() for s, m in zip(shapes, middle, strict=True)]
        )
        self.names = tuple((shapes[a].name, shapes[b].name) for a, b in pairs)
        self.is_self = np.array([min(pair) >= len(scene.obstacles) for pair in pairs], dtype=bool)

    def at(self, q: FloatArray, want_slopes: bool = True) -> tuple[FloatArray, FloatArray]:
        """Distances (N, P), m, and their derivatives (N, P, n) by the joints, m/rad, at poses (N, n).

        Negative: how deep two bodies overlap (EPA's depth). Up to 0.2 mm less than true for flat hulls. Beyond
        ``SEARCH_DISTANCE`` only it is told, and no slope.
        """
        r, p = forward_kinematics(self._kin, np.atleast_2d(q))
        count, n = len(r), len(self._kin.axis)
        rotation = np.concatenate([r, np.broadcast_to(np.eye(3), (count, 1, 3, 3))], axis=1)
        origin = np.concatenate([p, np.zeros((count, 1, 3))], axis=1)
        # Frame -1, the world's, is the last one.
        centre = np.einsum("ksab,sb->ksa", rotation[:, self._joint], self._middle) + origin[:, self._joint]
        a, b = self._pairs.T
        apart = np.linalg.norm(centre[:, a] - centre[:, b], axis=2) - self._reach[a] - self._reach[b]
        out = np.full((count, len(a)), SEARCH_DISTANCE)
        slope = np.zeros((count, len(a), n if want_slopes else 0))
        axis = np.einsum("kjab,jb->kja", r, self._kin.axis)
        request, result = coal.DistanceRequest(), coal.DistanceResult()
        first, second = coal.Transform3s(np.eye(3), np.zeros(3)), coal.Transform3s(np.eye(3), np.zeros(3))
        placed: dict[int, tuple[FloatArray, FloatArray]] = {}
        for k in range(count):
            placed.clear()
            for c in np.flatnonzero(apart[k] < SEARCH_DISTANCE):
                i, o = int(a[c]), int(b[c])
                for s in (i, o):
                    if s not in placed:
                        frame, turn, shift = self._joint[s], self._cores[s][1], self._cores[s][2]
                        placed[s] = rotation[k, frame] @ turn, rotation[k, frame] @ shift + origin[k, frame]
                first.setRotation(placed[i][0])
                first.setTranslation(placed[i][1])
                second.setRotation(placed[o][0])
                second.setTranslation(placed[o][1])
                result.clear()
                distance = coal.distance(self._cores[i][0], first, self._cores[o][0], second, request, result)
                distance -= self._radius[i] + self._radius[o]
                if not distance < SEARCH_DISTANCE:
                    continue
                out[k, c] = distance
                if want_slopes:
                    slope[k, c] = self._slope(k, i, o, axis, p, result)
        return out, slope

    def _slope(
        self, k: int, i: int, o: int, axis: FloatArray, p: FloatArray, result: coal.DistanceResult
    ) -> FloatArray:
        """How the distance of shapes i and o changes with the joints: what their nearest points do along the normal."""
        out = np.zeros(axis.shape[1])
        # coal's normal leads from the first shape to the second, also where they overlap.
        for shape, point, sign in ((i, result.getNearestPoint1(), -1.0), (o, result.getNearestPoint2(), 1.0)):
            last = self._joint[shape] + 1
            velocity = np.cross(axis[k, :last], point - p[k, :last])
            out[:last] += sign * velocity @ result.normal
        return out
