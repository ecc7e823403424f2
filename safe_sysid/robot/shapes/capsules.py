"""Capsules around triangle meshes: small ones by a search, conservative by a check of every vertex.

The search is free to be wrong: the radius that is returned is the largest distance of any vertex to the segment that
is returned. A mesh that one capsule fits badly is cut in two by a plane (with the edges' points in that plane, so that
each half's surface lies in the hull of what is returned for it), or its convex hull with few corners is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # imports scipy.spatial when it is first used: 0.3 s that most starts need not wait

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.robot.shapes.hulls import distance_to_hull, hull_volume, outer_hull

__all__ = ["CoverPiece", "capsule_around", "find_cover", "holds_mesh", "segment_distance"]

Hull = tuple[FloatArray, float]


class CoverPiece(NamedTuple):
    """A hull of a cover."""

    points: FloatArray  #: (k, 3), m; of a capsule one or two
    radius: float  #: m
    #: (4,) normal and height: it holds the surface where ``normal . x >= height``; None: all of it.
    cut: FloatArray | None


#: More capsules or a hull with many corners must save this share of the volume.
_WORTH = 0.8
_CORNERS = 24
#: Where cuts are tried: these shares of the extent along the mesh's own and its principal axes.
_CUTS = (0.2, 0.35, 0.5, 0.65, 0.8)
_ROUGH = 6  # evaluations for a first impression of a cut


def segment_distance(points: FloatArray, ends: FloatArray) -> FloatArray:
    """Distances (m,) of points (m, 3) to the segment between ends (2, 3) or to the one point of ends (1, 3)."""
    axis = ends[-1] - ends[0]
    t = np.clip((points - ends[0]) @ axis / max(float(axis @ axis), 1e-300), 0.0, 1.0)
    return np.linalg.norm(points - ends[0] - t[:, None] * axis, axis=1)


def capsule_around(points: FloatArray, evaluations: int = 400) -> Hull:
    """A small capsule that holds all points (m, 3): its ends (2, 3), or (1, 3) for a ball, and its radius, m.

    Searched (Nelder-Mead) over the axis' direction, its place across and its radius; the ends follow.
    """
    corners = _extreme(points)
    middle = corners.mean(axis=0)
    _, _, axes = np.linalg.svd(corners - middle, full_matrices=True)
    size = max(float(np.linalg.norm(corners - middle, axis=1).max()), 1e-9)

    def build(x: FloatArray, frame: FloatArray) -> tuple[FloatArray, float]:
        along = frame[0] + x[0] * frame[1] + x[1] * frame[2]
        along = along / np.linalg.norm(along)
        offset = corners - middle - size * (x[2] * frame[1] + x[3] * frame[2])
        height = offset @ along
        square = np.maximum((offset**2).sum(axis=1) - height**2, 0.0)
        radius = np.sqrt(square.max()) * (1.0 + x[4] ** 2)
        cap = np.sqrt(np.maximum(radius**2 - square, 0.0))
        low, high = float((height + cap).min()), float((height - cap).max())
        if low > high:
            low = high = 0.5 * (low + high)
        base = corners[0] - offset[0]
        return np.stack([base + low * along, base + high * along]), radius

    def volume(x: FloatArray, frame: FloatArray) -> float:
        ends, radius = build(x, frame)
        return float(np.pi * radius**2 * (np.linalg.norm(ends[1] - ends[0]) + 4.0 / 3.0 * radius)) / size**3

    start = np.array([0.0, 0.0, 0.0, 0.0, 0.1])
    frame = min((np.roll(axes, -turn, axis=0) for turn in range(3)), key=lambda frame: volume(start, frame))
    options = {"maxfev": evaluations, "xatol": 1e-4, "fatol": 1e-6}
    simplex = np.vstack([start, start + 0.15 * np.eye(5)])
    from scipy.optimize import minimize  # a third of a node's imports, for robots with meshes alone

    found = minimize(
        volume, start, args=(frame,), method="Nelder-Mead", options={**options, "initial_simplex": simplex}
    )
    ends, _ = build(found.x, frame)
    if np.linalg.norm(ends[1] - ends[0]) < 1e-6 * size:
        ends = ends[:1]
    return ends, float(segment_distance(points, ends).max())


def find_cover(vertices: FloatArray, triangles: IntArray) -> list[CoverPiece]:
    """Few hulls whose union holds the mesh: one capsule, two, or a hull with few corners.

    More than one capsule, or a hull with more corners, is taken where it saves a fifth of the volume. Every vertex lies
    inside, but for rounding. ``vertices``: (m, 3), m; ``triangles``: (t, 3) indices of vertices.
    """
    used = vertices[np.unique(triangles)]
    one = capsule_around(used)
    choices = [([CoverPiece(*one, None)], hull_volume(*one))]
    pairs = []
    centre = used.mean(axis=0)
    _, _, axes = np.linalg.svd(used - centre, full_matrices=False)
    for axis in (*np.eye(3), *axes):
        height = used @ axis
        for share in _CUTS:
            at = float(height.min() + share * np.ptp(height))
            cuts = [np.append(sign * axis, sign * at) for sign in (1.0, -1.0)]
            halves = [_part(vertices, triangles, cut[:3], cut[3]) for cut in cuts]
            if all(len(half) for half in halves):
                hulls = [capsule_around(half, _ROUGH) for half in halves]
                pairs.append((sum(hull_volume(*hull) for hull in hulls), halves, cuts))
    for _, halves, cuts in sorted(pairs, key=lambda pair: pair[0])[:2]:
        two = [CoverPiece(*capsule_around(half), cut) for half, cut in zip(halves, cuts, strict=True)]
        choices.append((two, sum(hull_volume(*piece[:2]) for piece in two)))
    corners = outer_hull(used, _CORNERS)
    choices.append(([CoverPiece(*corners, None)], hull_volume(*corners)))
    best, size = choices[0]
    for pieces, other in choices[1:]:
        if other < _WORTH * size:
            best, size = pieces, other
    return best


def holds_mesh(pieces: list[CoverPiece], vertices: FloatArray, triangles: IntArray, slack: float = 0.0) -> bool:
    """Whether the pieces, each widened by the slack (m), provably hold the whole surface, wherever they come from.

    Args:
        pieces: one without a cut, or two with opposite ones.
        vertices: (m, 3), m.
        triangles: (t, 3) indices of vertices.
        slack: m.
    """
    if len(pieces) == 1:
        parts = [vertices[np.unique(triangles)]] if pieces[0].cut is None else []
    elif len(pieces) == 2 and all(piece.cut is not None for piece in pieces):
        cuts = [np.asarray(piece.cut, float) for piece in pieces]
        opposite = np.array_equal(cuts[0], -cuts[1]) and bool(np.any(cuts[0][:3]))
        parts = [_part(vertices, triangles, cut[:3], float(cut[3])) for cut in cuts] if opposite else []
    else:
        parts = []
    return bool(parts) and all(
        len(part) > 0 and _farthest(part, piece.points) <= piece.radius + slack < np.inf
        for part, piece in zip(parts, pieces, strict=True)
    )


def _farthest(points: FloatArray, hull: FloatArray) -> float:
    """Upper bound of the distances of points (m, 3) to the hull of others (k, 3), m."""
    return float(segment_distance(points, hull).max()) if len(hull) <= 2 else distance_to_hull(points, hull)


def _extreme(points: FloatArray) -> FloatArray:
    """Corners of the convex hull, for the search only."""
    try:
        return points[scipy.spatial.ConvexHull(points).vertices]
    except (scipy.spatial.QhullError, ValueError):
        return points


def _part(vertices: FloatArray, triangles: IntArray, normal: FloatArray, at: float) -> FloatArray:
    """Points whose hull holds the mesh's surface where ``normal . x >= at``: vertices, and cuts of edges."""
    height = vertices @ normal - at
    kept = vertices[np.unique(triangles[(height >= 0.0)[triangles]])]
    edges = np.unique(np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1), axis=0)
    a, b = edges[height[edges].prod(axis=1) < 0.0].T
    share = (height[a] / (height[a] - height[b]))[:, None]
    return np.concatenate([kept, vertices[a] + share * (vertices[b] - vertices[a])])
