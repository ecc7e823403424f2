"""Convex hulls with few vertices that provably hold a cloud of points: hull(vertices) inflated by ``slack``.

qhull proposes the facets; nothing of it is trusted. For every point p and every facet with vertices v_i, the numbers
``mu`` of ``p ~ c + sum mu_i (v_i - c)`` (c the mean of the vertices) are made non-negative and to sum up to one at
most: then ``c + sum mu_i (v_i - c)`` lies in the hull, whatever mu is, and its distance to p bounds p's to the hull.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy  # imports scipy.spatial when it is first used: 0.3 s that most starts need not wait

from safe_sysid.core.arrays import FloatArray, IntArray

__all__ = ["distance_to_hull", "gaps_to_hull", "hull_triangles", "hull_volume", "outer_hull"]

#: Relative extent below which a direction counts as missing (flat sets, rods).
_FLAT = 1e-9
_EPS = 2.0**-52
_CHUNK = 2_000_000  # numbers per block of points x facets


def outer_hull(points: FloatArray, limit: int = 32, tolerance: float = 1e-3) -> tuple[FloatArray, float]:
    """Few points whose hull, inflated by a slack, holds all given ones.

    All corners of the hull are kept if there are at most ``limit``. Otherwise those furthest out are taken one by one
    until the rest lies within ``tolerance`` of their hull, or there are ``limit``.

    Returns vertices (k, 3), a subset of the points, and the slack (m): proved, rounding included, whatever qhull did.

    Args:
        points: (m, 3), m.
        limit: largest number of vertices, at least 8.
        tolerance: m.
    """
    points = np.unique(np.asarray(points, float), axis=0)
    basis = _span(points)
    if len(basis) == 0:
        centre = points[:1]
        return centre, _distance_bound(points, centre, np.zeros((1, 1), dtype=np.int64))
    flat = (points - points.mean(axis=0)) @ basis.T
    corners = points[_corners(flat)]
    if len(corners) <= limit:
        return corners, _distance_bound(points, corners, _facets((corners - corners.mean(axis=0)) @ basis.T))
    directions = np.concatenate([basis, -basis])
    chosen = list(dict.fromkeys(int(np.argmax(corners @ d)) for d in directions))
    while True:
        kept = corners[chosen]
        facets = _facets((kept - kept.mean(axis=0)) @ basis.T)
        gaps = _gaps(corners, kept, facets)
        if gaps.max() <= tolerance or len(chosen) >= limit:
            return kept, _distance_bound(points, kept, facets)
        chosen.append(int(np.argmax(gaps)))


def distance_to_hull(point: FloatArray, points: FloatArray) -> float:
    """Upper bound of the distance of a point (3,), or of several (m, 3), to hull(points), rounding included, m."""
    return float(gaps_to_hull(points)(np.atleast_2d(np.asarray(point, float))).max())


def gaps_to_hull(vertices: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Function from points (m, 3) to upper bounds (m,) of their distances to hull(vertices), rounding included, m."""
    kept, _ = outer_hull(vertices, max(len(vertices), 8))
    basis = _span(kept)
    facets = _facets((kept - kept.mean(axis=0)) @ basis.T) if len(basis) else np.zeros((1, 1), dtype=np.int64)
    return lambda points: _gaps(points, kept, facets) * (1.0 + 1e-12) + _rounding(points, kept)


def hull_volume(points: FloatArray, radius: float) -> float:
    """Volume of a hull inflated by a radius, m^3 (Steiner's formula; the mean-width term of flat sets is left out)."""
    ball = 4.0 / 3.0 * np.pi * radius**3
    if len(points) == 1:
        return ball
    if len(points) == 2:
        return ball + float(np.pi * radius**2 * np.linalg.norm(points[1] - points[0]))
    try:
        hull = scipy.spatial.ConvexHull(points)
    except scipy.spatial.QhullError:
        return ball
    # Mean width of a polytope: sum over edges of length times exterior angle.
    bend = 0.0
    for facet, (simplex, near) in enumerate(zip(hull.simplices, hull.neighbors, strict=True)):
        for i, other in enumerate(near):
            if other > facet:
                cosine = float(hull.equations[facet, :3] @ hull.equations[other, :3])
                ends = points[np.delete(simplex, i)]
                bend += float(np.linalg.norm(ends[1] - ends[0]) * np.arccos(np.clip(cosine, -1.0, 1.0)))
    return float(hull.volume + hull.area * radius + 0.5 * bend * radius**2 + ball)


def hull_triangles(points: FloatArray) -> FloatArray:
    """Triangles (t, 3, 3) of the surface of hull(points), outward by the right-hand rule, for pictures.

    A flat set gives its triangles from both sides, one of a point or a segment none.
    """
    centre = points.mean(axis=0)
    basis = _span(points)
    if len(basis) < 2:
        return np.zeros((0, 3, 3))
    if len(basis) == 2:
        flat = (points - centre) @ basis.T
        edges = points[_facets(flat)]
        fan = np.concatenate([np.broadcast_to(centre, (len(edges), 1, 3)), edges], axis=1)
        return np.concatenate([fan, fan[:, ::-1]])
    triangles = points[_facets(points - centre)]
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    inward = np.einsum("ti,ti->t", normals, triangles[:, 0] - centre) < 0.0
    triangles[inward] = triangles[inward][:, ::-1]
    return triangles


def _span(points: FloatArray) -> FloatArray:
    """Orthonormal directions (d, 3) in which the points extend at all."""
    offsets = points - points.mean(axis=0)
    _, size, axes = np.linalg.svd(offsets, full_matrices=False)
    scale = max(float(np.abs(points).max()), 1e-6)
    return axes[size > _FLAT * scale * np.sqrt(len(points))]


def _corners(flat: FloatArray) -> IntArray:
    if flat.shape[1] == 1:
        return np.array([int(np.argmin(flat)), int(np.argmax(flat))])
    try:
        return np.sort(scipy.spatial.ConvexHull(flat).vertices)
    except scipy.spatial.QhullError:  # too flat for qhull: all are corners, the slack says whether that holds
        return np.arange(len(flat))


def _facets(flat: FloatArray) -> IntArray:
    """Facets (f, d) of points (m, d) whose cone from the mean covers space: by qhull, or all sets of d if it fails."""
    if flat.shape[1] == 1:
        return np.array([[int(np.argmin(flat))], [int(np.argmax(flat))]])
    for options in ("Qt", "QJ"):
        try:
            return np.asarray(scipy.spatial.ConvexHull(flat, qhull_options=options).simplices, dtype=np.int64)
        except scipy.spatial.QhullError:
            continue
    ends = [int(np.argmin(flat[:, 0])), int(np.argmax(flat[:, 0]))]
    return np.array([[end] * flat.shape[1] for end in ends], dtype=np.int64)


def _gaps(points: FloatArray, vertices: FloatArray, facets: IntArray) -> FloatArray:
    """(m,) upper bounds of the distances of points to hull(vertices), in plain rounding."""
    centre = vertices.mean(axis=0)
    edges = vertices[facets] - centre  # (f, d, 3)
    inverse = np.linalg.pinv(np.swapaxes(edges, 1, 2))  # (f, d, 3)
    out = np.empty(len(points))
    step = max(1, _CHUNK // max(1, 3 * len(facets)))
    for start in range(0, len(points), step):
        offsets = points[start : start + step] - centre
        mu = np.maximum(np.einsum("fdi,pi->pfd", inverse, offsets), 0.0)
        mu /= np.maximum(1.0, mu.sum(axis=-1, keepdims=True))
        miss = offsets[:, None] - np.einsum("pfd,fdi->pfi", mu, edges)
        out[start : start + step] = np.sqrt((miss**2).sum(axis=-1)).min(axis=1)
    return out


def _rounding(points: FloatArray, vertices: FloatArray) -> float:
    """More than :func:`_gaps` rounds by, m."""
    # The mean and each product, sum and difference round by half a unit of numbers of this size: below 100 of them.
    return 200 * _EPS * max(float(np.abs(points).max()), float(np.abs(vertices).max())) * len(vertices)


def _distance_bound(points: FloatArray, vertices: FloatArray, facets: IntArray) -> float:
    """Upper bound, rounding included, of the distance of any of the points to hull(vertices), m."""
    return float(_gaps(points, vertices, facets).max()) * (1.0 + 1e-12) + _rounding(points, vertices)
