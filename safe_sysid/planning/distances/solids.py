"""Distance of a point to an obstacle of any kind, with the feature that is nearest: compiled kernels.

For gradients of distances and of their gradients: at a distance D outside of a face, an edge with direction t or a
vertex, the distance has slope n and second derivative 0, ``(I - n n^T - t t^T) / D`` or ``(I - n n^T) / D``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.robot.model import Body
from safe_sysid.robot.shapes.hulls import hull_triangles

__all__ = ["EDGE", "FACE", "VERTEX", "Solids", "solid_distance"]

FACE, EDGE, VERTEX = 0, 1, 2
#: Half the thickness that flat hulls are given, m.
_THICK = 1e-4


class Solids(NamedTuple):
    """Obstacles as plain arrays."""

    around: FloatArray  #: (O, 4) centre and radius of a ball around each, m
    radius: FloatArray  #: (O,) inflation, m
    ends: FloatArray  #: (O, 2, 3) of its segment, for those of at most two points
    first: IntArray  #: (O + 1,) rows of ``triangles`` and ``planes`` that are each one's (none: a segment)
    triangles: FloatArray  #: (T, 3, 3) surface of the hulls
    planes: FloatArray  #: (T, 4) outward unit normal and offset

    @classmethod
    def of(cls, bodies: Sequence[Body]) -> Solids:
        """From bodies of the world."""
        around, radius, ends, first = [], [], [], [0]
        triangles: list[FloatArray] = [np.zeros((0, 3, 3))]
        for body in bodies:
            points = np.asarray(body.points)
            middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
            around.append([*middle, np.linalg.norm(points - middle, axis=1).max() + body.radius])
            radius.append(body.radius)
            ends.append([points[0], points[-1]])
            faces = np.zeros((0, 3, 3))
            if len(points) > 2:
                faces = hull_triangles(_with_volume(points))
            triangles.append(faces)
            first.append(first[-1] + len(faces))
        faces = np.concatenate(triangles)
        normals = np.cross(faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
        offsets = np.einsum("ti,ti->t", normals, faces[:, 0])
        return cls(
            np.array(around, dtype=float).reshape(-1, 4),
            np.array(radius, dtype=float),
            np.array(ends, dtype=float).reshape(-1, 2, 3),
            np.array(first, dtype=np.int64),
            np.ascontiguousarray(faces),
            np.column_stack([normals, offsets]),
        )


def _with_volume(points: FloatArray) -> FloatArray:
    """The points, thickened in the directions in which they do not extend."""
    _, size, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=True)
    size = np.append(size, np.zeros(3 - len(size)))
    flat = axes[size < 1e-2 * _THICK * np.sqrt(len(points))]
    if not len(flat):
        return points
    return np.concatenate([points + sign * _THICK * axis for axis in flat for sign in (-1.0, 1.0)])


@njit(cache=True, nogil=True)
def _at_vertex(vertex: FloatArray, closest: FloatArray) -> int:
    for i in range(3):
        closest[i] = vertex[i]
    return VERTEX


@njit(cache=True, nogil=True)
def _on_triangle(x: FloatArray, triangle: FloatArray, closest: FloatArray, tangent: FloatArray) -> int:
    """Closest point of a triangle (3, 3) to x, on which feature, and the edge's direction (Ericson, 5.1.5)."""
    a, b, c = triangle[0], triangle[1], triangle[2]
    d1, d2, d3, d4, d5, d6 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(3):
        ab, ac = b[i] - a[i], c[i] - a[i]
        d1 += ab * (x[i] - a[i])
        d2 += ac * (x[i] - a[i])
        d3 += ab * (x[i] - b[i])
        d4 += ac * (x[i] - b[i])
        d5 += ab * (x[i] - c[i])
        d6 += ac * (x[i] - c[i])
    if d1 <= 0.0 and d2 <= 0.0:
        return _at_vertex(a, closest)
    if d3 >= 0.0 and d4 <= d3:
        return _at_vertex(b, closest)
    if d6 >= 0.0 and d5 <= d6:
        return _at_vertex(c, closest)
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    if vc <= 0.0 and d1 >= 0.0 and d3 <= 0.0:
        share = d1 / (d1 - d3)
        for i in range(3):
            tangent[i] = b[i] - a[i]
            closest[i] = a[i] + share * tangent[i]
    elif vb <= 0.0 and d2 >= 0.0 and d6 <= 0.0:
        share = d2 / (d2 - d6)
        for i in range(3):
            tangent[i] = c[i] - a[i]
            closest[i] = a[i] + share * tangent[i]
    elif va <= 0.0 and d4 >= d3 and d5 >= d6:
        share = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        for i in range(3):
            tangent[i] = c[i] - b[i]
            closest[i] = b[i] + share * tangent[i]
    else:
        whole = va + vb + vc
        for i in range(3):
            closest[i] = (va * a[i] + vb * b[i] + vc * c[i]) / whole
        return FACE
    length = np.sqrt(tangent[0] ** 2 + tangent[1] ** 2 + tangent[2] ** 2)
    for i in range(3):
        tangent[i] /= length
    return EDGE


@njit(cache=True, nogil=True)
def _on_segment(x: FloatArray, ends: FloatArray, closest: FloatArray, tangent: FloatArray) -> int:
    square, along = 0.0, 0.0
    for i in range(3):
        tangent[i] = ends[1, i] - ends[0, i]
        square += tangent[i] * tangent[i]
        along += tangent[i] * (x[i] - ends[0, i])
    if along <= 0.0 or square == 0.0:
        return _at_vertex(ends[0], closest)
    if along >= square:
        return _at_vertex(ends[1], closest)
    length = np.sqrt(square)
    for i in range(3):
        closest[i] = ends[0, i] + along / square * tangent[i]
        tangent[i] /= length
    return EDGE


@njit(cache=True, nogil=True)
def _distance_to(x: FloatArray, closest: FloatArray) -> float:
    return np.sqrt((x[0] - closest[0]) ** 2 + (x[1] - closest[1]) ** 2 + (x[2] - closest[2]) ** 2)


@njit(cache=True, nogil=True)
def solid_distance(
    x: FloatArray,
    radius: float,
    ends: FloatArray,
    triangles: FloatArray,
    planes: FloatArray,
    best: float,
    work: FloatArray,
) -> tuple[float, int]:
    """Signed distance of point x (3,) to one obstacle and the feature that is nearest; 1e30 where it is >= ``best``.

    ``work`` (4, 3): on return row 0 is the slope n, row 1 the direction t of an edge; rows 2 and 3 are scratch. Inside
    a hull the distance is that to the nearest plane.
    """
    if triangles.shape[0] == 0:
        feature = _on_segment(x, ends, work[2], work[1])
        distance = _distance_to(x, work[2])
        if distance - radius >= best:
            return 1e30, FACE
    else:
        deepest, plane = -1e30, 0
        for f in range(planes.shape[0]):
            height = planes[f, 0] * x[0] + planes[f, 1] * x[1] + planes[f, 2] * x[2] - planes[f, 3]
            if height > deepest:
                deepest, plane = height, f
        if deepest - radius >= best:
            return 1e30, FACE
        if deepest <= 1e-12:
            for i in range(3):
                work[0, i] = planes[plane, i]
            return deepest - radius, FACE
        distance, feature = 1e30, FACE
        for f in range(planes.shape[0]):
            height = planes[f, 0] * x[0] + planes[f, 1] * x[1] + planes[f, 2] * x[2] - planes[f, 3]
            if height <= 0.0 or height >= distance:
                continue
            kind = _on_triangle(x, triangles[f], work[2], work[3])
            gap = _distance_to(x, work[2])
            if gap < distance:
                distance, feature = gap, kind
                for i in range(3):
                    work[0, i] = (x[i] - work[2, i]) / gap
                    work[1, i] = work[3, i]
        if distance - radius >= best:
            return 1e30, FACE
        return distance - radius, feature
    if distance < 1e-9:  # on the very axis of a capsule: any direction leads out
        work[0] = 0.0
        work[0, 2] = 1.0
        return distance - radius, FACE
    for i in range(3):
        work[0, i] = (x[i] - work[2, i]) / distance
    return distance - radius, feature
