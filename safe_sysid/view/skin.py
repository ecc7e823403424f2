"""Skin of overlapping boxes: one smooth mesh instead of hundreds of translucent boxes.

A picture, not a proof: it is smoothed over a voxel or two, and drawn no smaller than the boxes are, on a voxel.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.view.solids import Mesh

__all__ = ["skin_of_boxes"]

#: Of the longest side of everything; and how far values are smoothed, voxels.
_VOXELS, _BLUR = 90, 0.9
#: Of what is full in the smoothed values: below a half, so that the skin lies outside.
_LEVEL = 0.3


def skin_of_boxes(lower: FloatArray, upper: FloatArray) -> Mesh:
    """Vertices (m, 3) and faces (t, 3) of the surface of a union.

    ``lower``: (b, 3) corners of boxes, m, finite; ``upper``: (b, 3), not below.
    """
    low, high = np.asarray(lower, float).reshape(-1, 3), np.asarray(upper, float).reshape(-1, 3)
    if not len(low):
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    size = float((high.max(axis=0) - low.min(axis=0)).max()) / _VOXELS or 1e-3
    origin = low.min(axis=0) - 4.0 * size
    shape = np.ceil((high.max(axis=0) - origin) / size).astype(int) + 4
    full = np.zeros(tuple(shape), np.float32)
    first = np.floor((low - origin) / size).astype(int)
    last = np.ceil((high - origin) / size).astype(int)
    for a, b in zip(first, last, strict=True):
        full[a[0] : b[0] + 1, a[1] : b[1] + 1, a[2] : b[2] + 1] = 1.0
    vertices, faces = _surface_nets(gaussian_filter(full, _BLUR), _LEVEL)
    return vertices * size + origin, faces


def _surface_nets(field: FloatArray, level: float) -> Mesh:
    """Where a field on a grid falls to a level, in units of the grid: one vertex in each cell that the surface crosses.

    The outermost values must be below the level.
    """
    inside = field > level
    corner = np.stack(np.meshgrid(*[np.arange(2)] * 3, indexing="ij"), -1).reshape(-1, 3)
    cells = tuple(n - 1 for n in field.shape)
    counts = sum(_part(inside, c, cells).astype(np.int8) for c in corner)
    crossed = np.argwhere((counts > 0) & (counts < 8))
    values = np.stack([field[tuple((crossed + c).T)] for c in corner], -1)
    total, weight = np.zeros((len(crossed), 3)), np.zeros(len(crossed))
    for i, a in enumerate(corner):
        for j, b in enumerate(corner):
            if i < j and int(np.abs(a - b).sum()) == 1:
                va, vb = values[:, i], values[:, j]
                cut = (va > level) != (vb > level)
                share = np.where(cut, (level - va) / np.where(cut, vb - va, 1.0), 0.0)
                total += np.where(cut[:, None], a + share[:, None] * (b - a), 0.0)
                weight += cut
    vertices = crossed + total / weight[:, None]
    number = np.full(cells, -1, np.int64)
    number[tuple(crossed.T)] = np.arange(len(crossed))
    faces = []
    for axis in range(3):
        one, two = np.eye(3, dtype=int)[(axis + 1) % 3], np.eye(3, dtype=int)[(axis + 2) % 3]
        step = np.eye(3, dtype=int)[axis]
        here = inside[tuple(slice(0, n - s) for n, s in zip(field.shape, step, strict=True))]
        there = inside[tuple(slice(s, n) for n, s in zip(field.shape, step, strict=True))]
        edges = np.argwhere(here != there)
        leaving = here[tuple(edges.T)]
        a, b, c, d = (number[tuple((edges - off).T)] for off in (0 * one, one, one + two, two))
        quads = np.stack([a, b, c, d], -1)
        quads = np.where(leaving[:, None], quads, quads[:, ::-1])
        faces += [quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]
    return vertices, np.concatenate(faces)


def _part(array: BoolArray, start: IntArray, size: tuple[int, ...]) -> BoolArray:
    return array[tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))]
