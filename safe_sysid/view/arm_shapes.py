"""Shapes of an arm for display: its URDF's visual shapes in joint frames, else its collision bodies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.files.meshes import mesh_path, read_mesh
from safe_sysid.robot.files.urdf import UrdfChain, read_urdf
from safe_sysid.robot.loading import find_urdf
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.obstacles import rotation_from_rpy
from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.view.solids import Mesh, ball, box, cylinder, joined, placed, rounded_hull

__all__ = ["LinkShape", "arm_shapes", "link_placements"]

Colour = tuple[int, int, int]
SHELL: Colour = (226, 230, 235)
HAND: Colour = (52, 58, 66)
#: Of all meshes together: a browser draws so many easily.
_MOST_TRIANGLES = 400_000


@dataclass(frozen=True, eq=False)
class LinkShape:
    """A part of the arm that moves with one joint."""

    joint: int  #: index of the joint frame, -1 for the world
    vertices: FloatArray  #: (m, 3) in that frame, m
    faces: IntArray  #: (t, 3)
    colour: Colour  #: red, green, blue, 0 to 255


def arm_shapes(model: RobotModel, robot: str | Path) -> tuple[LinkShape, ...]:
    """Visual shapes; of links that have none which can be read, the bodies that cover them."""
    file = config_path(robot, "config")
    chain = read_urdf(find_urdf(file, model.settings), model.settings.locked, str(file))
    places, materials = link_placements(chain, model), _materials(chain.xml)
    parts: dict[tuple[int, Colour], list[Mesh]] = {}
    bare: set[int] = set()
    count = 0
    for link in chain.xml.findall("link"):
        name = link.get("name", "")
        joint, (rotation, position) = chain.link_joint[name], places[name]
        try:
            shapes = [_visual(item, chain.file, materials) for item in link.findall("visual")]
        except (ModelError, ValueError):
            shapes = []
        count += sum(len(mesh[1]) for mesh, _ in shapes)
        if count > _MOST_TRIANGLES or (not shapes and name in chain.collisions and chain.collisions[name]):
            bare.add(joint)
            continue
        for mesh, colour in shapes:
            parts.setdefault((joint, colour), []).append(placed(mesh, rotation, position))
    for body in model.bodies:
        if body.joint in bare and body.kind != "payload":
            colour = HAND if body.kind == "hand" else SHELL
            parts.setdefault((body.joint, colour), []).append(rounded_hull(body.points, body.radius))
    plain = len({colour for _, colour in parts if max(colour) >= 128}) == 1
    return tuple(
        LinkShape(joint, *joined(meshes), _toned(colour, joint) if plain else colour)
        for (joint, colour), meshes in sorted(parts.items())
    )


def _toned(colour: Colour, joint: int) -> Colour:
    """Every other link a little darker, where all have one colour: joints are seen then."""
    if joint % 2 or max(colour) < 128:
        return colour
    r, g, b = (int(share * part) for share, part in zip((0.44, 0.53, 0.64), colour, strict=True))
    return r, g, b


def link_placements(chain: UrdfChain, model: RobotModel) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Rotation (3, 3) and position (3,) of every link in the frame of the joint that carries it (the world's for -1).

    ``model``: for how the root stands in the world.
    """
    place = model.settings.mounting
    text = chain.text_for_pinocchio(tuple(chain.link_joint), None if place is None else (place.xyz, place.rpy))
    found = pin.buildModelFromXML(text)
    frames = {link: found.frames[found.getFrameId(link, pin.FrameType.BODY)] for link in chain.link_joint}
    return {link: (frame.placement.rotation, frame.placement.translation) for link, frame in frames.items()}


def _origin(element: Element) -> tuple[FloatArray, FloatArray]:
    item = element.find("origin")
    xyz, rpy = ("0 0 0" if item is None else item.get(key, "0 0 0") for key in ("xyz", "rpy"))
    return rotation_from_rpy(_numbers(rpy, 3)), _numbers(xyz, 3)


def _numbers(text: str, count: int) -> FloatArray:
    values = np.array([float(part) for part in text.split()])
    if values.shape != (count,) or not np.all(np.isfinite(values)):
        raise ModelError(f"{text!r}: expected {count} numbers")
    return values


def _visual(item: Element, file: str, materials: dict[str, Colour]) -> tuple[Mesh, Colour]:
    rotation, position = _origin(item)
    geometry = item.find("geometry")
    shape = None if geometry is None or not len(geometry) else geometry[0]
    if shape is None:
        raise ModelError(f"{file}: a visual without geometry")
    if shape.tag == "box":
        mesh = box(_numbers(shape.get("size", ""), 3))
    elif shape.tag == "sphere":
        mesh = ball(float(shape.get("radius", "")))
    elif shape.tag == "cylinder":
        mesh = cylinder(float(shape.get("radius", "")), float(shape.get("length", "")))
    elif shape.tag == "mesh":
        scale = _numbers(shape.get("scale", "1 1 1"), 3)
        vertices, faces, _ = read_mesh(mesh_path(shape.get("filename", ""), file), scale)
        mesh = (vertices, faces)
    else:
        raise ModelError(f"{file}: visual of type {shape.tag}")
    return placed(mesh, rotation, position), _colour(item.find("material"), materials)


def _materials(xml: Element) -> dict[str, Colour]:
    found: dict[str, Colour] = {}
    for item in xml.findall("material"):
        found[item.get("name", "")] = _colour(item, {})
    return found


def _colour(item: Element | None, materials: dict[str, Colour]) -> Colour:
    if item is None:
        return SHELL
    rgba = item.find("color")
    if rgba is None:
        return materials.get(item.get("name", ""), SHELL)
    try:
        r, g, b = (round(255.0 * min(max(float(x), 0.0), 1.0)) for x in _numbers(rgba.get("rgba", ""), 4)[:3])
    except (ModelError, ValueError):
        return SHELL
    return r, g, b
