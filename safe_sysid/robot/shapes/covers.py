"""Covers of meshes, remembered on disk: the search takes seconds, checking what it found takes milliseconds.

Nothing in the cache is believed: a cover that is read must hold the mesh's surface by the same test as one that is
searched, or it is searched again. A cache that cannot be read or written only costs time.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from pathlib import Path

import numpy as np
import scipy

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.input_limits import read_regular_text
from safe_sysid.robot.shapes import capsules, hulls
from safe_sysid.robot.shapes.capsules import CoverPiece, Hull, find_cover, holds_mesh
from safe_sysid.whole_files import write_text

__all__ = ["cache_directory", "remembered_cover"]

_LARGEST = 100_000  # bytes; covers have two dozen corners at most
_SLACK = 1e-12  # m; what the order of a sum may change; a thousandth of what every body is widened by


def cache_directory() -> Path | None:
    """``$SAFE_SYSID_CACHE_DIR``, else ``safe_sysid`` in the user's directory of caches; None if there is none."""
    if given := os.environ.get("SAFE_SYSID_CACHE_DIR"):
        return Path(given)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "safe_sysid"
    try:
        return Path.home() / ".cache" / "safe_sysid"
    except RuntimeError:
        return None


def remembered_cover(vertices: FloatArray, triangles: IntArray, error: float = 0.0) -> list[Hull]:
    """Points and radius (m) of each hull of :func:`find_cover`, from the cache if a cover there passes.

    ``vertices``: (m, 3), m; ``triangles``: (t, 3) indices of vertices; ``error``: by which the vertices may be off, m.
    """
    folder = cache_directory()
    file = None if folder is None else folder / "covers" / f"{_digest(vertices, triangles)}.json"
    pieces = None if file is None else _read(file)
    if pieces is None or not holds_mesh(pieces, vertices, triangles, _SLACK):
        pieces = find_cover(vertices, triangles)
        if file is not None:
            _write(file, pieces)
    return [(piece.points, piece.radius + error) for piece in pieces]


def _digest(vertices: FloatArray, triangles: IntArray) -> str:
    """Of the mesh, and of what searches covers: another version may find another one."""
    digest = hashlib.sha256(f"{np.__version__} {scipy.__version__} {vertices.shape}".encode())
    for module in (capsules, hulls):
        digest.update(inspect.getsource(module).encode())
    for array, kind in ((vertices, "<f8"), (triangles, "<i8")):
        digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return digest.hexdigest()


def _read(file: Path) -> list[CoverPiece] | None:
    """What a file proposes; None if it proposes nothing that could be a cover."""
    try:
        entries = json.loads(read_regular_text(file, _LARGEST))
        pieces = []
        for entry in entries:
            points = np.array(entry["points"], dtype=float)
            cut = None if entry["cut"] is None else np.array(entry["cut"], dtype=float)
            radius = float(entry["radius"])
            numbers = np.concatenate([points.ravel(), [radius], np.zeros(4) if cut is None else cut])
            if points.ndim != 2 or points.shape[1] != 3 or not len(points) or numbers.size != points.size + 5:
                return None
            if not np.all(np.isfinite(numbers)):
                return None
            pieces.append(CoverPiece(points, radius, cut))
    except (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return None
    return pieces


def _write(file: Path, pieces: list[CoverPiece]) -> None:
    entries = [
        {
            "points": piece.points.tolist(),
            "radius": piece.radius,
            "cut": None if piece.cut is None else piece.cut.tolist(),
        }
        for piece in pieces
    ]
    try:
        write_text(file, json.dumps(entries) + "\n")
    except OSError:
        return  # the next process searches again
