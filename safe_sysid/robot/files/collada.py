"""Reader of COLLADA (.dae) meshes. A file that moves, scales or bends its geometry is refused.

pycollada, which trimesh reads such files with, takes corners that are not there from the end of the list, leaves out
geometry that it cannot read, and rounds positions to single precision (`test_meshes.py`).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.files.mesh_files import Mesh, check_count, fan, floats
from safe_sysid.robot.files.xml_file import parse_xml

__all__ = ["read_collada"]

_MAX_ELEMENTS = 1_000_000  # some write an element for each polygon

_ROW = (1.0, 0.0, 0.0, 0.0)
#: Values (in COLLADA's order) that leave a node where it is; None: may be anything.
_STILL: dict[str, tuple[float | None, ...]] = {
    "matrix": (*_ROW, 0.0, *_ROW, 0.0, *_ROW, 0.0, 1.0),
    "translate": (0.0, 0.0, 0.0),
    "rotate": (None, None, None, 0.0),
    "scale": (1.0, 1.0, 1.0),
}
_MOVES = (*_STILL, "lookat", "skew")
_SHOWS = ("instance_geometry", "instance_controller", "instance_node")
#: Change vertices in ways that the reader does not follow.
_BENDS = ("instance_controller", "animation")


def read_collada(content: bytes, file: str) -> Mesh:
    """Vertices and triangles of all geometry that is shown; units and motions that would change them are refused.

    What is drawn is what the numbers say, in metres: ``up_axis`` is ignored, as rviz does.

    Raises:
        ModelError: no XML; a unit other than the metre; a node with geometry that is moved, turned or scaled; bones
            or animations.
        ValueError: geometry that is broken.
    """
    root = parse_xml(content, f"mesh {file}", "a readable STL, OBJ, DAE or PLY file", _MAX_ELEMENTS)
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    _check(root, file)
    shown = {element.get("url", "").removeprefix("#") for element in root.iter("instance_geometry")}
    parts: list[Mesh] = []
    total = 0
    for geometry in root.iter("geometry"):
        if geometry.get("id") in shown:
            vertices, triangles = _geometry(geometry)
            parts.append((vertices, triangles + total))
            total += len(vertices)
            check_count(sum(len(part[1]) for part in parts))
    if not parts:
        raise ValueError("no geometry that is shown: expected some")
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _geometry(geometry: ET.Element) -> Mesh:
    """Vertices (m, 3) and triangles (t, 3) of one geometry element."""
    mesh = geometry.find("mesh")
    if mesh is None:
        raise ValueError(f"geometry {geometry.get('id', '')[:40]!r} is no mesh: expected triangles or polygons")
    sources = {source.get("id", ""): source for source in mesh.findall("source")}
    position = next((i for i in mesh.findall("vertices/input") if i.get("semantic") == "POSITION"), None)
    source = sources.get("" if position is None else position.get("source", "").removeprefix("#"))
    if source is None:
        raise ValueError("vertices without positions: expected a source of positions in the mesh")
    vertices = _positions(source)
    found = [np.zeros((0, 3), np.int64)]
    for part in mesh:
        if part.tag in ("tristrips", "trifans"):
            raise ValueError(f"<{part.tag}>: expected triangles, polylist or polygons")
        if part.tag in ("triangles", "polylist", "polygons"):
            found.append(_faces(part))
    triangles = np.concatenate(found)
    if len(triangles) and not (triangles.min() >= 0 and triangles.max() < len(vertices)):
        raise ValueError(f"a corner of {len(vertices)} that is not there: expected indices of vertices")
    return vertices, triangles


def _positions(source: ET.Element) -> FloatArray:
    array, accessor = source.find("float_array"), source.find("technique_common/accessor")
    if array is None or accessor is None:
        raise ValueError("positions without a float_array and its accessor: expected both")
    values = floats(array.text or "")
    stride, offset = _whole(accessor, "stride", 1), _whole(accessor, "offset", 0)
    names = [param.get("name", "").upper() for param in accessor.findall("param")]
    if stride < 3 or names[:3] != ["X", "Y", "Z"] or accessor.get("source") != f"#{array.get('id')}":
        raise ValueError(f"accessor with stride {stride} and parameters {names[:4]}: expected X, Y, Z of its array")
    count = _whole(accessor, "count", 0)
    if offset + count * stride > len(values) or _whole(array, "count", len(values)) != len(values):
        raise ValueError(f"{count} positions in {len(values)} numbers: expected as many as are there")
    return values[offset : offset + count * stride].reshape(count, stride)[:, :3].copy()


def _faces(part: ET.Element) -> IntArray:
    """Triangles (t, 3), as indices of vertices."""
    inputs = [(i.get("semantic"), _whole(i, "offset", 0)) for i in part.findall("input")]
    at = next((offset for semantic, offset in inputs if semantic == "VERTEX"), None)
    if at is None:
        raise ValueError("faces without vertices: expected an input VERTEX")
    width = 1 + max(offset for _, offset in inputs)
    lists = [_indices(p.text or "", width)[:, at] for p in part.iter("p")]
    corners = np.concatenate([np.zeros(0, np.int64), *lists])
    if part.tag == "polygons":
        return fan(corners, [len(entry) for entry in lists])
    if part.tag == "polylist":
        return fan(corners, _indices(part.findtext("vcount") or "", 1)[:, 0])
    if len(corners) % 3 or _whole(part, "count", 0) != len(corners) // 3:
        raise ValueError(f"{len(corners)} corners of triangles: expected three for each of its count")
    check_count(len(corners) // 3)
    return corners.reshape(-1, 3)


def _indices(text: str, width: int) -> IntArray:
    """(k, width) whole numbers."""
    values = floats(text)
    if len(values) % width or np.any(values != np.floor(values)) or np.any(np.abs(values) > 2**40):
        raise ValueError(f"{len(values)} indices: expected whole numbers, {width} for each corner")
    return values.astype(np.int64).reshape(-1, width)


def _whole(element: ET.Element, key: str, default: int) -> int:
    text = element.get(key, str(default)).strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"<{element.tag} {key}={text[:40]!r}>: expected a whole number")
    return int(text)


def _check(root: ET.Element, file: str) -> None:
    """Refuse units, motions and bones."""
    for unit in root.iter("unit"):
        if not _equal(unit.get("meter", "1"), (1.0,)):
            raise ModelError(
                f"mesh {file}: <unit meter={unit.get('meter')!r}>: expected 1; export it in metres, or as STL or OBJ "
                "with a scale where it is named"
            )
    for node in root.iter("node"):
        if any(part.tag in _SHOWS for part in node.iter()):
            _check_node(file, node)
    for tag in _BENDS:
        if root.find(f".//{tag}") is not None:
            raise ModelError(f"mesh {file}: <{tag}>: expected a rigid mesh that stands still")


def _check_node(file: str, node: ET.Element) -> None:
    for part in node:
        text = "".join(part.itertext())
        if part.tag in _MOVES and not _equal(text, _STILL.get(part.tag)):
            name = node.get("id") or node.get("name") or ""
            raise ModelError(
                f"mesh {file}: node {name[:60]!r}: <{part.tag}> = {' '.join(text.split())[:120]!r}: "
                "expected one that moves nothing; apply transformations before exporting, or export as STL or OBJ"
            )


def _equal(text: str, expected: tuple[float | None, ...] | None) -> bool:
    """Whether a list of numbers is the expected one; no list of anything else is."""
    if expected is None:
        return False
    try:
        values = [float(word) for word in text.split()]
    except ValueError:
        return False
    return len(values) == len(expected) and all(
        abs(value) <= 1e6 if wanted is None else value == wanted for value, wanted in zip(values, expected, strict=True)
    )
