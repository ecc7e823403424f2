"""Reader of STL, OBJ and PLY meshes. A file whose content differs from its header is refused.

Of a file that is damaged or unusual, trimesh makes a smaller body without a word: it leaves out a solid or faces that
are cut off, faces of indented lines, the divisor of a corner, and counts corners otherwise than the format says
(`test_meshes.py`: test_trimesh_makes_another_body_of_the_file_without_a_word). Clearances would be proved for that
body. Assimp believes counts, calls itself along references until the process dies, and never comes back from a header
without an end.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray

__all__ = ["MAX_TRIANGLES", "Mesh", "check_count", "fan", "floats", "read_obj", "read_ply", "read_stl"]

Mesh = tuple[FloatArray, IntArray]
MAX_TRIANGLES = 500_000  # the search for a cover takes a minute by then
_MAX_CORNERS = 10_000  # of one polygon
_TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}


def floats(text: str) -> FloatArray:
    """Decimal numbers with white space between them, each rounded once. ``text``: nothing else in it.

    Raises:
        ValueError: something else is in it.
    """
    if not text.strip():
        return np.zeros(0)
    with warnings.catch_warnings():  # old versions of numpy warn where new ones raise
        warnings.simplefilter("error")
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except DeprecationWarning:
            raise ValueError("a word that is no number: expected numbers") from None


def fan(corners: IntArray, counts: Sequence[int] | IntArray) -> IntArray:
    """Triangles (t, 3) from each polygon's first corner; they cover the polygon, and stay in its hull.

    Args:
        corners: of all polygons, one after the other.
        counts: corners of each, at least 3; polygons of fewer have no surface and are left out.

    Raises:
        ValueError: counts that do not add up, or too many triangles.
    """
    sizes = np.asarray(counts, dtype=np.int64).reshape(-1)
    if np.any(sizes < 0) or np.any(sizes > _MAX_CORNERS) or int(sizes.sum()) != len(corners):
        raise ValueError(f"{len(corners)} corners: expected as many as the polygons have, 0 to {_MAX_CORNERS} each")
    starts = np.cumsum(sizes) - sizes
    inner = np.maximum(sizes - 2, 0)
    total = int(inner.sum())
    check_count(total)
    first = np.repeat(starts, inner)
    step = np.arange(total) - np.repeat(np.cumsum(inner) - inner, inner)
    return np.stack([corners[first], corners[first + step + 1], corners[first + step + 2]], axis=1)


def check_count(triangles: int) -> None:
    """Refuse a mesh of too many triangles. ``triangles``: how many.

    Raises:
        ValueError: too many.
    """
    if triangles > MAX_TRIANGLES:
        raise ValueError(f"{triangles} triangles: expected at most {MAX_TRIANGLES}; simplify the mesh")


def read_stl(content: bytes) -> Mesh:
    """STL, binary or text: vertices (3 t, 3) and triangles (t, 3).

    Raises:
        ValueError: it is no STL file, or not all of one.
    """
    if len(content) >= 84:
        count = int.from_bytes(content[80:84], "little")
        if len(content) == 84 + 50 * count:
            check_count(count)
            records = np.frombuffer(content, np.uint8, offset=84).reshape(count, 50)
            corners = np.ascontiguousarray(records[:, 12:48]).view("<f4").astype(np.float64).reshape(-1, 3)
            return corners, np.arange(3 * count).reshape(-1, 3)
    if not content[:512].lstrip().lower().startswith(b"solid"):
        raise ValueError(f"{len(content)} bytes, which its count of triangles does not give: expected an STL file")
    text = content.decode("latin-1").lower()
    rows = re.findall(r"^\s*vertex\s+(\S+[ \t]+\S+[ \t]+\S+)[ \t]*$", text, re.MULTILINE)
    facets = len(re.findall(r"^\s*facet\s", text, re.MULTILINE))
    if len(rows) != 3 * facets or len(re.findall(r"^\s*endfacet\b", text, re.MULTILINE)) != facets:
        raise ValueError(f"{facets} facets, {len(rows)} vertices: expected three for each, and the end of each")
    check_count(facets)
    return floats(" ".join(rows)).reshape(-1, 3), np.arange(3 * facets).reshape(-1, 3)


def read_obj(content: bytes) -> Mesh:
    """OBJ: vertices and polygons; no other file that it names is opened.

    Raises:
        ValueError: broken, or with surfaces that are not polygons.
    """
    rows: list[str] = []
    corners: list[int] = []
    counts: list[int] = []
    for line in content.decode("utf-8", "replace").replace("\\\r\n", " ").replace("\\\n", " ").split("\n"):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if words[0] == "v":
            rows.append(_vertex(words[1:]))
        elif words[0] == "f":
            if len(words) > _MAX_CORNERS:
                raise ValueError(f"a face of {len(words) - 1} corners: expected at most {_MAX_CORNERS}")
            corners += [_index(word, len(rows)) for word in words[1:]]
            counts.append(len(words) - 1)
            check_count(len(corners) - 2 * len(counts))  # at least so many, before all are read
        elif words[0] in ("surf", "curv", "bzp", "bsp", "cdc", "call", "csh"):
            raise ValueError(f"{words[0]}: expected polygons only")
    return floats(" ".join(rows)).reshape(-1, 3), fan(np.array(corners, np.int64), counts)


def _vertex(words: list[str]) -> str:
    """Three words; a fourth one divides them, colours are left out."""
    if len(words) == 4:
        w = float(words[3])
        if not w:  # left out it would shift all that follow
            raise ValueError("a vertex at infinity: expected w other than 0")
        return " ".join(repr(float(word) / w) for word in words[:3])
    if len(words) not in (3, 6, 7):
        raise ValueError(f"a vertex of {len(words)} numbers: expected 3")
    return " ".join(words[:3])


def _index(word: str, count: int) -> int:
    number = int(word.split("/", 1)[0][:20])
    if not (1 <= number <= count or -count <= number <= -1):
        raise ValueError(f"vertex {number} of {count}: expected one before the face")
    return number - 1 if number > 0 else count + number


@dataclass(frozen=True)
class _Element:
    """Of a PLY header: its properties as (name, type of a list's length or "", type)."""

    name: str
    count: int
    properties: list[tuple[str, str, str]]


def _ply_header(content: bytes) -> tuple[str, list[_Element], int]:
    """Format, elements, and where the data begin."""
    end = re.search(rb"\nend_header[ \t]*\r?\n", content[: 1 << 16])
    if not content.startswith(b"ply") or end is None:
        raise ValueError("no `ply` and `end_header` in its first 64 kB: expected a PLY file")
    form, elements = "", list[_Element]()
    for line in content[: end.start()].decode("latin-1").splitlines()[1:]:
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "format" and len(words) == 3:
            form = words[1]
        elif words[0] == "element" and len(words) == 3 and words[2].isascii() and words[2].isdigit():
            count = int(words[2][:20])
            if count > len(content):
                raise ValueError(f"{count} of {words[1][:40]} in {len(content)} bytes: expected as many as there are")
            elements.append(_Element(words[1], count, []))
        elif words[0] == "property" and elements and len(words) == 3 and words[1] in _TYPES:
            elements[-1].properties.append((words[2], "", _TYPES[words[1]]))
        elif words[0] == "property" and elements and len(words) == 5 and words[1] == "list":
            if words[2] not in _TYPES or words[3] not in _TYPES:
                raise ValueError(f"property of type {words[2:4]}: expected {', '.join(_TYPES)}")
            elements[-1].properties.append((words[4], _TYPES[words[2]], _TYPES[words[3]]))
        else:
            raise ValueError(f"header line {line[:60]!r}: expected format, element or property")
    if form not in ("ascii", "binary_little_endian", "binary_big_endian") or len(elements) > 64:
        raise ValueError(f"format {form[:40]!r}, {len(elements)} elements: expected ascii or binary, up to 64")
    return form, elements, end.end()


def read_ply(content: bytes) -> Mesh:
    """PLY, text or binary: x, y, z of ``vertex``, polygons of ``face``.

    Raises:
        ValueError: broken, or without these.
    """
    form, elements, start = _ply_header(content)
    if form == "ascii":
        reader: _Words | _Bytes = _Words(floats(content[start:].decode("latin-1")))
    else:
        reader = _Bytes(content, start, "<" if form == "binary_little_endian" else ">")
    vertices: FloatArray | None = None
    triangles: IntArray | None = None
    for element in elements:
        names = [name for name, _, _ in element.properties]
        lists = [name for name, length, _ in element.properties if length]
        if not lists:
            table = reader.table(element)
            if element.name == "vertex":
                vertices = np.stack([table[:, names.index(axis)] for axis in "xyz"], axis=1)
        elif element.name == "face" and len(set(lists) & {"vertex_indices", "vertex_index"}) == 1:
            check_count(element.count)
            corners: list[int] = []
            counts: list[int] = []
            for row in reader.rows(element):
                polygon = next(row[i] for i, name in enumerate(names) if name in ("vertex_indices", "vertex_index"))
                corners += [int(x) for x in polygon]
                counts.append(len(polygon))
                check_count(len(corners) - 2 * len(counts))
            triangles = fan(np.array(corners, np.int64), counts)
        else:
            raise ValueError(f"element {element.name[:40]!r} with lists {lists[:4]}: expected face with vertex_indices")
    if vertices is None or triangles is None:
        raise ValueError("no vertex or no face: expected both")
    return vertices, triangles


class _Words:
    """Data of a text file."""

    def __init__(self, numbers: FloatArray) -> None:
        self._numbers, self._at = numbers, 0

    def take(self, count: int) -> FloatArray:
        if count < 0 or self._at + count > len(self._numbers):
            raise ValueError("its numbers end before what the header says")
        self._at += count
        return self._numbers[self._at - count : self._at]

    def table(self, element: _Element) -> FloatArray:
        width = len(element.properties)
        return self.take(element.count * width).reshape(element.count, width)

    def rows(self, element: _Element) -> Iterator[list[FloatArray]]:
        for _ in range(element.count):
            yield [self.take(_length(self.take(1)[0]) if length else 1) for _, length, _ in element.properties]


class _Bytes:
    """Data of a binary file."""

    def __init__(self, content: bytes, start: int, order: str) -> None:
        self._content, self._at, self._order = content, start, order

    def take(self, count: int, kind: str) -> FloatArray:
        dtype = np.dtype(self._order + kind)
        size = count * dtype.itemsize
        if count < 0 or self._at + size > len(self._content):
            raise ValueError("it ends before what the header says")
        self._at += size
        return np.frombuffer(self._content, dtype, count, self._at - size).astype(np.float64)

    def table(self, element: _Element) -> FloatArray:
        dtype = np.dtype([(f"f{i}", self._order + kind) for i, (_, _, kind) in enumerate(element.properties)])
        size = element.count * dtype.itemsize
        if self._at + size > len(self._content):
            raise ValueError("it ends before what the header says")
        rows = np.frombuffer(self._content, dtype, element.count, self._at) if size else np.zeros(0, dtype)
        self._at += size
        columns = [rows[name].astype(np.float64) for name in dtype.names or ()]
        return np.stack(columns, axis=1) if columns else np.zeros((element.count, 0))

    def rows(self, element: _Element) -> Iterator[list[FloatArray]]:
        for _ in range(element.count):
            yield [
                self.take(_length(self.take(1, length)[0]) if length else 1, kind)
                for _, length, kind in element.properties
            ]


def _length(value: float) -> int:
    if not (0 <= value <= _MAX_CORNERS and value == int(value)):
        raise ValueError(f"a polygon of {value:g} corners: expected 0 to {_MAX_CORNERS}")
    return int(value)
