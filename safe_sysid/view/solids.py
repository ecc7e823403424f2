"""Triangle meshes of simple shapes, for pictures: vertices (m, 3) and faces (t, 3), outward by the right-hand rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.robot.shapes.hulls import hull_triangles

__all__ = ["Mesh", "ball", "box", "capsule", "cylinder", "joined", "placed", "rounded_hull", "unindexed"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mesh = tuple[FloatArray, IntArray]
#: Around a circle; a quarter of that from pole to equator.
AROUND = 48


def _lathe(radius: FloatArray, height: FloatArray, around: int) -> Mesh:
    """Turn a line (radius, height), from below upward, about z; ends with radius 0 close it."""
    angle = np.linspace(0.0, 2.0 * np.pi, around, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
    vertices = radius[:, None, None] * ring + height[:, None, None] * np.array([0.0, 0.0, 1.0])
    i, j = np.meshgrid(np.arange(len(radius) - 1), np.arange(around), indexing="ij")
    k = (j + 1) % around
    a, b, c, d = (x * around + y for x, y in ((i, j), (i, k), (i + 1, k), (i + 1, j)))
    faces = np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([a, c, d], -1).reshape(-1, 3)])
    return vertices.reshape(-1, 3), faces


def ball(radius: float, around: int = AROUND) -> Mesh:
    """A sphere about the origin.

    Args:
        radius: m.
        around: corners of its equator, a multiple of 4.
    """
    return capsule(radius, 0.0, around)


def capsule(radius: float, length: float, around: int = AROUND) -> Mesh:
    """A cylinder along z with half balls at its ends.

    Args:
        radius: m.
        length: of the cylinder, m.
        around: corners of its equator, a multiple of 4.
    """
    rings = around // 4
    turn = np.linspace(-0.5 * np.pi, 0.5 * np.pi, 2 * rings + 1)
    low, high = turn[: rings + 1], turn[rings:]
    return _lathe(
        radius * np.cos(np.concatenate([low, high])),
        np.concatenate([radius * np.sin(low) - 0.5 * length, radius * np.sin(high) + 0.5 * length]),
        around,
    )


def cylinder(radius: float, length: float, around: int = AROUND) -> Mesh:
    """A cylinder along z, edges sharp: their vertices are doubled.

    Args:
        radius: m.
        length: m.
        around: corners of its circles.
    """
    half = 0.5 * length
    radii = np.array([0.0, radius, radius, radius, radius, 0.0])
    return _lathe(radii, np.array([-half] * 3 + [half] * 3), around)


def box(size: FloatArray) -> Mesh:
    """A box about the origin; each face has vertices of its own.

    Args:
        size: (3,) m.
    """
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    triangles = hull_triangles(0.5 * signs * np.asarray(size, float))
    return unindexed(triangles)


def rounded_hull(points: FloatArray, radius: float) -> Mesh:
    """Roughly the hull of points, widened by a radius (a ball, a capsule, or the hull of small balls' corners).

    Args:
        points: (m, 3) m.
        radius: m.
    """
    points = np.asarray(points, float)
    if len(points) == 1:
        return placed(ball(radius), np.eye(3), points[0])
    if len(points) == 2 and radius > 0.0:
        axis = points[1] - points[0]
        length = float(np.linalg.norm(axis))
        if length < 1e-9:
            return placed(ball(radius), np.eye(3), points[0])
        return placed(capsule(radius, length), _frame_along(axis / length), points.mean(axis=0))
    if radius <= 0.0:
        return unindexed(hull_triangles(points))
    corners, _ = _lathe(radius * np.cos(_COARSE), radius * np.sin(_COARSE), 8)
    corners = np.unique(corners.round(12), axis=0)
    return unindexed(hull_triangles((points[:, None] + corners).reshape(-1, 3)))


_COARSE = np.linspace(-0.5 * np.pi, 0.5 * np.pi, 5)


def _frame_along(axis: FloatArray) -> FloatArray:
    """A rotation whose z axis is a unit vector."""
    other = np.eye(3)[int(np.argmin(np.abs(axis)))]
    x = np.cross(other, axis)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(axis, x), axis], axis=1)


def unindexed(triangles: FloatArray) -> Mesh:
    """A mesh with sharp edges.

    Args:
        triangles: (t, 3, 3) m.
    """
    return triangles.reshape(-1, 3), np.arange(3 * len(triangles)).reshape(-1, 3)


def placed(mesh: Mesh, rotation: FloatArray, position: FloatArray) -> Mesh:
    """The mesh elsewhere.

    Args:
        mesh: vertices and faces.
        rotation: (3, 3).
        position: (3,) m.
    """
    return mesh[0] @ np.asarray(rotation).T + position, mesh[1]


def joined(meshes: list[Mesh]) -> Mesh:
    """All as one."""
    if not meshes:
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in meshes[:-1])])
    faces = [faces + start for (_, faces), start in zip(meshes, starts, strict=True)]
    return np.concatenate([vertices for vertices, _ in meshes]), np.concatenate(faces)
