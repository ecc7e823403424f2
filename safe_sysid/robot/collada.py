"""What a COLLADA (.dae) file does to its numbers besides listing them; only files that do nothing are read."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from safe_sysid.errors import ModelError

__all__ = ["check_collada"]

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


def check_collada(path: Path) -> None:
    """Refuse a file whose vertices are not simply the numbers in it, in metres.

    The reader ignores units, so lengths would be off by the unit; it applies the transformations of nodes in single
    precision, where coordinates that cancel lose more than the result shows. ``up_axis`` is ignored, as rviz does.

    Args:
        path: of the file.

    Raises:
        ModelError: no XML; a unit other than the metre; a node with geometry that is moved, turned or scaled; bones
            or animations.
    """
    try:
        root = ET.parse(path).getroot()
    except (ET.ParseError, LookupError, ValueError) as error:
        raise ModelError(f"mesh {path}: {error}: expected a readable STL, OBJ, DAE or PLY file") from error
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    for unit in root.iter("unit"):
        if not _equal(unit.get("meter", "1"), (1.0,)):
            raise ModelError(
                f"mesh {path}: <unit meter={unit.get('meter')!r}>: expected 1; export it in metres, or as STL or OBJ "
                "with a scale where it is named"
            )
    for node in root.iter("node"):
        if any(part.tag in _SHOWS for part in node.iter()):
            _check_node(path, node)
    for tag in _BENDS:
        if root.find(f".//{tag}") is not None:
            raise ModelError(f"mesh {path}: <{tag}>: expected a rigid mesh that stands still")


def _check_node(path: Path, node: ET.Element) -> None:
    for part in node:
        text = "".join(part.itertext())
        if part.tag in _MOVES and not _equal(text, _STILL.get(part.tag)):
            name = node.get("id") or node.get("name") or ""
            raise ModelError(
                f"mesh {path}: node {name!r}: <{part.tag}> = {' '.join(text.split())[:120]!r}: expected one that moves "
                "nothing; apply transformations before exporting, or export as STL or OBJ"
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
        abs(value) <= 1e6 if wanted is None else value == wanted
        for value, wanted in zip(values, expected, strict=True)
    )
