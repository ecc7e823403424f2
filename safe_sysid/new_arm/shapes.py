"""Collision meshes as capsules and small hulls that contain them, in numbers short enough for a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.files.meshes import mesh_path, read_mesh
from safe_sysid.robot.files.packages import is_package_uri, package_file
from safe_sysid.robot.files.urdf import UrdfChain
from safe_sysid.robot.scenes.obstacles import rotation_from_rpy
from safe_sysid.robot.shapes.covers import remembered_cover

__all__ = ["FittedHull", "fit_meshes", "rounded_hull", "uncovered_links"]

FittedHull = tuple[tuple[tuple[float, ...], ...], float]
_GRID = 1e-4  # m; what a file says of a point


def fit_meshes(
    chain: UrdfChain, package_dirs: Sequence[str | Path] = (), say: Callable[[str], None] = lambda line: None
) -> dict[str, tuple[FittedHull, ...]]:
    """Hulls, link frame, that contain the collision meshes of every link that has some; its primitives included.

    Raises:
        ModelError: a mesh that cannot be found or read.
    """
    found = {}
    for link in chain.xml.findall("link"):
        name = link.get("name", "")
        if "mesh" not in chain.collisions[name]:
            continue
        hulls: list[FittedHull] = []
        for collision in link.findall("collision"):
            rotation, xyz = _place(collision)
            for points, radius in _hulls(collision, name, chain.file, package_dirs):
                hulls.append(rounded_hull(points @ rotation.T + xyz, radius))
        found[name] = tuple(hulls)
        say(f"geometry of {name}: " + ", ".join(_in_words(hull) for hull in hulls))
    return found


def uncovered_links(chain: UrdfChain) -> tuple[str, ...]:
    """Links with mass that the URDF gives no collision geometry."""
    return tuple(link for link in chain.link_joint if chain.masses[link] > 0.0 and not chain.collisions[link])


def rounded_hull(points: FloatArray, radius: float) -> FittedHull:
    """The same in tenths of a millimetre; the radius grows by what the points may have moved.

    ``points``: (m, 3), m; ``radius``: m.
    """
    short = np.round(points / _GRID) * _GRID
    moved = float(np.max(np.linalg.norm(short - points, axis=1)))
    grown = float(np.ceil((radius + moved) / _GRID + 1e-9)) * _GRID
    return tuple(tuple(round(float(x), 4) + 0.0 for x in point) for point in short), round(grown, 4)


def _hulls(
    collision: Element, link: str, file: str, package_dirs: Sequence[str | Path]
) -> list[tuple[FloatArray, float]]:
    shape = collision.find("geometry/*")
    if shape is None:
        return []
    what = f"{file}: link {link!r}"
    if shape.tag == "mesh":
        name = shape.get("filename", "")
        try:
            path = package_file(name, file, package_dirs) if is_package_uri(name) else mesh_path(name, file)
            vertices, triangles, error = read_mesh(path, _three(shape, "scale", 1.0))
        except ModelError as problem:
            folder = "; or say with --package-dir which folder has the package" if is_package_uri(name) else ""
            raise ModelError(f"{what} has a collision mesh: {problem}{folder}") from problem
        return remembered_cover(vertices, triangles, error)
    if shape.tag == "sphere":
        return [(np.zeros((1, 3)), float(shape.get("radius", "nan")))]
    if shape.tag == "cylinder":
        half = 0.5 * float(shape.get("length", "nan"))
        return [(np.array([[0.0, 0.0, -half], [0.0, 0.0, half]]), float(shape.get("radius", "nan")))]
    if shape.tag == "box":
        signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
        return [(0.5 * signs * _three(shape, "size", 0.0), 0.0)]
    raise ModelError(f"{what} has collision geometry of type {shape.tag}: expected box, cylinder, sphere or mesh")


def _three(element: Element, key: str, default: float) -> FloatArray:
    text = element.get(key)
    try:
        values = np.array([float(part) for part in text.split()]) if text else np.full(3, default)
    except ValueError:
        values = np.zeros(0)
    if values.shape != (3,) or not np.all(np.isfinite(values)):
        raise ModelError(f"<{element.tag} {key}={text!r}>: expected three numbers")
    return values


def _place(collision: Element) -> tuple[FloatArray, FloatArray]:
    origin = collision.find("origin")
    if origin is None:
        return np.eye(3), np.zeros(3)
    return rotation_from_rpy(_three(origin, "rpy", 0.0)), _three(origin, "xyz", 0.0)


def _in_words(hull: FittedHull) -> str:
    points, radius = hull
    kind = {1: "ball", 2: "capsule"}.get(len(points), f"hull of {len(points)} points")
    return f"{kind} of radius {radius:.3f} m" if len(points) < 3 else kind
