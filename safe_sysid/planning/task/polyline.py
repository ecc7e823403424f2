"""Polylines of joint angles: how long they are, what of them is left, points along them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from safe_sysid.core.arrays import FloatArray

__all__ = ["at_distance", "polyline_length", "rest_of_polyline", "spread"]


def polyline_length(points: FloatArray) -> float:
    """Length of a polyline (m, n), each piece by its longest joint, rad."""
    return float(np.abs(np.diff(points, axis=0)).max(axis=1).sum()) if len(points) > 1 else 0.0


def rest_of_polyline(way: FloatArray, q: FloatArray) -> FloatArray:
    """A polyline (m, n) from its point nearest to ``q`` (n,) on, that point first."""
    best, best_gap = way, np.inf
    for i, (a, b) in enumerate(pairwise(way)):
        d = b - a
        share = float(np.clip((q - a) @ d / max(float(d @ d), 1e-300), 0.0, 1.0))
        point = a + share * d
        gap = float(np.linalg.norm(q - point))
        if gap <= best_gap + 1e-12:
            best, best_gap = np.concatenate([point[None], way[i + 1 :]]), gap
    return best


def spread(way: FloatArray, count: int) -> FloatArray:
    """Points (at least ``count``, n) along a polyline, without its start, denser near it, end and corners included."""
    ends = _ends(way)
    if ends[-1] <= 0.0:
        return way[-1:].copy()
    return at_distance(way, np.union1d(ends[1:], ends[-1] * (np.arange(1, count + 1) / count) ** 1.5))


def at_distance(way: FloatArray, at: FloatArray) -> FloatArray:
    """Points (N, n) of a polyline (m, n) so far from its start along it (N,), rad of the longest joint."""
    ends = _ends(way)
    points = np.stack([np.interp(at, ends, way[:, j]) for j in range(way.shape[1])], axis=1)
    points[at >= ends[-1]] = way[-1]
    return points


def _ends(way: FloatArray) -> FloatArray:
    """(m,) how far along it the corners are."""
    return np.concatenate([[0.0], np.cumsum(np.abs(np.diff(way, axis=0)).max(axis=1))])
