"""Covers of meshes from the cache: the same as searched, and nothing in it is believed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from safe_sysid.robot.shapes import covers
from safe_sysid.robot.shapes.capsules import CoverPiece, find_cover, holds_mesh
from safe_sysid.robot.shapes.covers import cache_directory, remembered_cover


def elbow() -> tuple[np.ndarray, np.ndarray]:
    """Two square bars at a right angle: one capsule fits badly."""
    points, triangles = [], []
    for size, place in (((0.05, 0.05, 0.4), (0, 0, 0.2)), ((0.4, 0.05, 0.05), (0.2, 0, 0.4))):
        signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
        box = 0.5 * signs * size + place
        triangles.append(ConvexHull(box).simplices + 8 * len(points))
        points.append(box)
    return np.concatenate(points), np.concatenate(triangles).astype(np.int64)


def box() -> tuple[np.ndarray, np.ndarray]:
    corners = np.array([[x, y, z] for x in (0, 0.2) for y in (0, 0.2) for z in (0, 0.02)], float)
    return corners, ConvexHull(corners).simplices.astype(np.int64)


@pytest.fixture(params=[elbow, box])
def mesh(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    return request.param()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAFE_SYSID_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(covers, "find_cover", search)
    return tmp_path / "cache" / "covers"


FOUND: dict[bytes, list[CoverPiece]] = {}


def search(vertices: np.ndarray, triangles: np.ndarray) -> list[CoverPiece]:
    """Finds the same as before, without its cost."""
    key = vertices.tobytes()
    FOUND[key] = FOUND.get(key) or find_cover(vertices, triangles)
    return FOUND[key]


def same(a: list, b: list) -> bool:
    return len(a) == len(b) and all(np.array_equal(p, q) and r == s for (p, r), (q, s) in zip(a, b, strict=True))


def cover_mesh(vertices, triangles, error: float = 0.0) -> list:
    return [(piece.points, piece.radius + error) for piece in find_cover(vertices, triangles)]


def test_the_second_time_nothing_is_searched_and_the_cover_is_the_same(mesh, folder, monkeypatch) -> None:
    expected = cover_mesh(*mesh, 1e-4)
    assert same(remembered_cover(*mesh, 1e-4), expected)
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(covers, "find_cover", lambda *_: pytest.fail("searched again"))
    assert same(remembered_cover(*mesh, 1e-4), expected)


def test_another_mesh_is_another_file(folder) -> None:
    vertices, triangles = box()
    for shift in (0.0, 1e-12):
        remembered_cover(vertices + shift, triangles)
    assert len(list(folder.iterdir())) == 2


#: Of the first piece, what is changed.
SPOILT = {
    "smaller": lambda first: {"radius": first["radius"] - 1e-6},
    "moved": lambda first: {"points": [[0.01 + first["points"][0][0], *first["points"][0][1:]], *first["points"][1:]]},
    "cut off": lambda _: {"cut": [1.0, 0.0, 0.0, 10.0]},
    "not finite": lambda _: {"radius": float("inf")},
    "flat": lambda first: {"points": first["points"][0]},
    "words": lambda _: {"points": "many"},
}


def spoil(first: dict, *rest: dict, how: str) -> object:
    if how in SPOILT:
        return [first | SPOILT[how](first), *rest]
    halves = [first | {"cut": [0.0, 0.0, 0.0, sign]} for sign in (1.0, -1.0)]
    return {"half of it": list(rest), "other cut": halves, "no list": {"points": 1}}[how]


@pytest.mark.parametrize("how", [*SPOILT, "half of it", "other cut", "no list"])
def test_a_cover_that_does_not_hold_the_mesh_is_searched_again(mesh, folder, how) -> None:
    expected = remembered_cover(*mesh)
    (file,) = folder.iterdir()
    right = file.read_text()
    file.write_text(json.dumps(spoil(*json.loads(right), how=how)))
    assert same(remembered_cover(*mesh), expected)
    assert file.read_text() == right


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 50_000, b"[]", b"null", b" " * 200_000])
def test_rubbish_is_searched_again(folder, content) -> None:
    expected = remembered_cover(*box())
    (file,) = folder.iterdir()
    file.write_bytes(content)
    assert same(remembered_cover(*box()), expected)


def test_without_a_place_to_write_it_is_only_slower(tmp_path, monkeypatch) -> None:
    expected = cover_mesh(*box())
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SAFE_SYSID_CACHE_DIR", str(tmp_path / "file"))
    assert same(remembered_cover(*box()), expected)


def test_the_users_directory_of_caches(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SAFE_SYSID_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "safe_sysid"


def test_two_hulls_that_hold_every_vertex_may_miss_the_surface() -> None:
    """Balls at the corners of a large triangle hold all vertices; only a cut says what each must hold."""
    vertices = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.01, 0.0]])
    triangles = np.array([[0, 1, 2]])
    balls = [(vertices[:1], 0.1), (vertices[1:2], 0.1)]
    cuts = [np.array([-1.0, 0.0, 0.0, -0.5]), np.array([1.0, 0.0, 0.0, 0.5])]
    pieces = [CoverPiece(points, radius, cut) for (points, radius), cut in zip(balls, cuts, strict=True)]
    assert not holds_mesh(pieces, vertices, triangles)
    assert holds_mesh([piece._replace(radius=0.51) for piece in pieces], vertices, triangles)
    assert not holds_mesh([piece._replace(cut=None) for piece in pieces], vertices, triangles)
    assert holds_mesh(find_cover(vertices, triangles), vertices, triangles, 1e-12)
