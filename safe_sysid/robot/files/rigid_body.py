"""Rigid body from a URDF without joints. Pinocchio gets the checked content, written again."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from pathlib import Path

from safe_sysid.robot.files.urdf import read_tree

__all__ = ["rigid_body_text"]

_SHAPES = ("box", "cylinder", "sphere")


def rigid_body_text(path: str | Path) -> str:
    """A URDF of links that are all fixed to each other, as text for Pinocchio: what was checked, and nothing else.

    ``path``: of the file; collision shapes may be boxes, cylinders and spheres.

    Raises:
        ModelError: unreadable, malformed, a joint that moves, or another shape.
    """
    reader, _, collisions, joints, above, root = read_tree(path)
    moving = ", ".join(joint.name for joint in joints if joint.kind != "fixed")
    if moving:
        raise reader.error(f"moving joints {moving[:200]}: expected fixed joints only, one rigid body")
    for link in above:
        seen = set()
        while link != root:
            if link in seen:
                raise reader.error(f"link {link!r} hangs on itself: expected a tree with root {root!r}")
            seen.add(link)
            link = above[link].parent
    for name, kinds in collisions.items():
        for kind in kinds:
            if kind not in _SHAPES:
                raise reader.error(f"link {name!r}: collision geometry <{kind[:40]}>: expected {', '.join(_SHAPES)}")
    return _links_and_joints(reader.xml)


def _links_and_joints(xml: ET.Element) -> str:
    """Links without visuals, and joints, of a tree."""
    robot = ET.Element("robot", {"name": "robot"})
    for element in xml:
        if element.tag not in ("link", "joint"):
            continue
        kept = copy.deepcopy(element)
        for visual in kept.findall("visual"):
            kept.remove(visual)
        robot.append(kept)
    return ET.tostring(robot, encoding="unicode")
