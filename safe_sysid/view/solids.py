"""Triangle meshes of simple shapes, for pictures: vertices (m, 3) and faces (t, 3), outward by the right-hand rule."""

from __future__ import annotations

import numpy as np
import trimesh
from trimesh import creation
from trimesh.geometry import align_vectors

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.robot.shapes.hulls import hull_triangles

__all__ = ["Mesh", "ball", "box", "capsule", "cylinder", "joined", "placed", "rounded_hull", "unindexed"]

Mesh = tuple[FloatArray, IntArray]
#: Corners of a circle; a quarter of that from pole to equator.
AROUND = 48


def _plain(mesh: trimesh.Trimesh) -> Mesh:
    return np.array(mesh.vertices, float), np.array(mesh.faces, np.int64)


def ball(radius: float, around: int = AROUND) -> Mesh:
    """A sphere about the origin. ``radius``: m; ``around``: corners of its equator, a multiple of 4."""
    return _plain(creation.uv_sphere(radius, count=[around // 2, around]))


def capsule(radius: float, length: float) -> Mesh:
    """A cylinder along z with half balls at its ends. ``radius``: m; ``length``: of the cylinder, m."""
    vertices, faces = _plain(creation.capsule(length, radius, count=[AROUND // 2, AROUND]))
    return vertices - 0.5 * (vertices.max(axis=0) + vertices.min(axis=0)), faces


def cylinder(radius: float, length: float, around: int = AROUND) -> Mesh:
    """A cylinder along z, edges sharp: their vertices are doubled. ``radius``: m; ``length``: m."""
    return _plain(creation.cylinder(radius, length, around).smooth_shaded)


def box(size: FloatArray) -> Mesh:
    """A box about the origin; each face has vertices of its own. ``size``: (3,) m."""
    return unindexed(np.array(creation.box(np.asarray(size, float)).triangles))


def rounded_hull(points: FloatArray, radius: float) -> Mesh:
    """Roughly the hull of points, widened by a radius (a ball, a capsule, or the hull of small balls' corners).

    ``points``: (m, 3) m; ``radius``: m.
    """
    points = np.asarray(points, float)
    if len(points) == 1:
        return placed(ball(radius), np.eye(3), points[0])
    if len(points) == 2 and radius > 0.0:
        axis = points[1] - points[0]
        length = float(np.linalg.norm(axis))
        if length < 1e-9:
            return placed(ball(radius), np.eye(3), points[0])
        return placed(capsule(radius, length), align_vectors([0.0, 0.0, 1.0], axis)[:3, :3], points.mean(axis=0))
    if radius <= 0.0:
        return unindexed(hull_triangles(points))
    corners, _ = ball(radius, 8)
    return unindexed(hull_triangles((points[:, None] + corners).reshape(-1, 3)))


def unindexed(triangles: FloatArray) -> Mesh:
    """A mesh with sharp edges. ``triangles``: (t, 3, 3) m."""
    return triangles.reshape(-1, 3), np.arange(3 * len(triangles)).reshape(-1, 3)


def placed(mesh: Mesh, rotation: FloatArray, position: FloatArray) -> Mesh:
    """The mesh elsewhere. ``rotation``: (3, 3); ``position``: (3,) m."""
    return mesh[0] @ np.asarray(rotation).T + position, mesh[1]


def joined(meshes: list[Mesh]) -> Mesh:
    """All as one."""
    if not meshes:
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in meshes[:-1])])
    faces = [faces + start for (_, faces), start in zip(meshes, starts, strict=True)]
    return np.concatenate([vertices for vertices, _ in meshes]), np.concatenate(faces)
