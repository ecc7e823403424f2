"""Collision geometry: a URDF's shapes as sphere-swept convex hulls that contain them.

A sphere is a point and a radius, a cylinder the segment between the centres of its end discs and its radius (a
capsule: it contains the discs), a box its eight corners; meshes are covered by :mod:`~.shapes.capsules`. Each
contains its primitive exactly in real arithmetic; what
placing the points rounds is covered by :data:`ROUNDING`, added to every radius (coordinates of 10 m round by less than
1e-14 m).
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

import coal
import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.robot.config import Settings
from safe_sysid.robot.files.meshes import mesh_path, read_mesh
from safe_sysid.robot.files.urdf import UrdfChain
from safe_sysid.robot.model import Body
from safe_sysid.robot.scenes.obstacles import box_corners, rotation_from_rpy
from safe_sysid.robot.shapes.capsules import segment_distance
from safe_sysid.robot.shapes.covers import remembered_cover
from safe_sysid.robot.shapes.openings import Openings

__all__ = ["PAYLOAD_BODY", "ROUNDING", "build_bodies"]


PAYLOAD_BODY = "payload"
ROUNDING = 1e-9  # m
PRIMITIVES = ("box", "cylinder", "sphere")

Hull = tuple[FloatArray, float]  # points (m, 3) in a joint frame, radius


def _primitive_hull(shape: coal.CollisionGeometry) -> Hull:
    """Hull of a shape in the shape's own frame."""
    if isinstance(shape, coal.Sphere):
        return np.zeros((1, 3)), float(shape.radius)
    if isinstance(shape, (coal.Cylinder, coal.Capsule)):
        return np.array([[0.0, 0.0, -shape.halfLength], [0.0, 0.0, shape.halfLength]]), float(shape.radius)
    if isinstance(shape, coal.Box):
        return box_corners(2.0 * np.asarray(shape.halfSide, float).ravel()), 0.0
    raise ModelError(f"collision shape {type(shape).__name__}: expected one of {', '.join(PRIMITIVES)}")


def _contains(outer: Hull, inner: Hull) -> bool:
    """Whether the outer hull (of at most two points) provably contains the inner one."""
    slack = outer[1] - inner[1]
    if len(outer[0]) > 2 or slack < 0.0:
        return False
    distance = segment_distance(inner[0], outer[0])
    # Half of ROUNDING pays for the rounding of this very test; the outer radius carries all of it.
    return bool(np.all(distance <= slack + 0.5 * ROUNDING))


def _without_redundant(hulls: list[Hull]) -> list[Hull]:
    """Drop hulls inside another one: a capsule drawn as a cylinder and two spheres is one body, not three.

    Only hulls that stay are compared with, so that the tolerance of :func:`_contains` cannot add up.
    """
    kept: list[int] = []
    reach = [radius + float(np.ptp(points, axis=0).max()) for points, radius in hulls]
    for i in sorted(range(len(hulls)), key=lambda index: -reach[index]):
        if not any(_contains(hulls[j], hulls[i]) for j in kept):
            kept.append(i)
    return [hulls[i] for i in sorted(kept)]


def _hint(link: str, file: str) -> str:
    return (
        f"or add to {file}: `geometry: {{{link}: [{{points: [[x, y, z], ...], radius: r}}]}}`, hulls that contain it, "
        "in the link frame (m)"
    )


def _mesh_hulls(chain: UrdfChain, link: str, file: str) -> list[Hull]:
    """Hulls that hold the collision meshes of a link, in the link's frame."""
    hulls: list[Hull] = []
    for element in chain.xml.findall("link"):
        for collision in element.findall("collision") if element.get("name") == link else ():
            mesh = collision.find("geometry/mesh")
            if mesh is None:
                continue
            try:
                scale = _three(mesh, "scale", "1 1 1")
                path = mesh_path(mesh.get("filename", ""), chain.file)
                vertices, triangles, error = read_mesh(path, scale)
                place = collision.find("origin")
                xyz, rpy = (np.zeros(3) if place is None else _three(place, key, "0 0 0") for key in ("xyz", "rpy"))
            except ModelError as problem:
                raise ModelError(
                    f"{chain.file}: link {link!r} has a collision mesh: {problem}; {_hint(link, file)}"
                ) from problem
            rotation = rotation_from_rpy(rpy)
            for points, radius in remembered_cover(vertices, triangles, error):
                hulls.append((points @ rotation.T + xyz, radius))
    return hulls


def _three(element: Element, key: str, default: str) -> FloatArray:
    text = element.get(key, default)
    try:
        values = np.array([float(part) for part in text.split()])
    except ValueError:
        values = np.zeros(0)
    if values.shape != (3,) or not np.all(np.isfinite(values)):
        raise ModelError(f"<{element.tag} {key}={text!r}>: expected three numbers")
    return values


def _link_hulls(chain: UrdfChain, model: pin.Model, settings: Settings, file: str) -> dict[str, list[Hull]]:
    """Hulls of every link in the frame of the joint that carries it (world for the base)."""
    for link in settings.geometry:
        if link not in chain.link_joint:
            raise ConfigError(file, f"geometry.{link}", link, f"a link of {chain.file}")
    for link, kinds in chain.collisions.items():
        for kind in kinds:
            if kind not in (*PRIMITIVES, "mesh") and link not in settings.geometry:
                raise ModelError(
                    f"{chain.file}: link {link!r} has collision geometry of type {kind}: expected "
                    f"{', '.join(PRIMITIVES)} or mesh; {_hint(link, file)}"
                )
    hulls: dict[str, list[Hull]] = {link: [] for link in chain.link_joint}
    geometry = pin.buildGeomFromUrdfString(
        model, chain.text_for_pinocchio(settings.geometry), pin.GeometryType.COLLISION
    )
    for item in geometry.geometryObjects:
        points, radius = _primitive_hull(item.geometry)
        placed = points @ item.placement.rotation.T + item.placement.translation
        hulls[model.frames[item.parentFrame].name].append((placed, radius))
    for link, kinds in chain.collisions.items():
        if "mesh" in kinds and link not in settings.geometry:
            placement = model.frames[model.getFrameId(link, pin.FrameType.BODY)].placement
            for points, radius in _mesh_hulls(chain, link, file):
                hulls[link].append((points @ placement.rotation.T + placement.translation, radius))
    for link, entries in settings.geometry.items():
        frame = model.frames[model.getFrameId(link, pin.FrameType.BODY)]
        for entry in entries:
            points = np.array(entry.points, float)
            hulls[link].append((points @ frame.placement.rotation.T + frame.placement.translation, entry.radius))
    return hulls


def build_bodies(chain: UrdfChain, model: pin.Model, settings: Settings, file: str) -> tuple[Body, ...]:
    """All bodies of the arm: base, links, hand, and the payload's envelope box.

    Args:
        model: Pinocchio's model of the same tree.
        settings: the robot's settings; ``geometry`` replaces the URDF's collision geometry link by link.

    Returns:
        Bodies in the order of the links along the arm; a link with one hull gives a body of its own name, one with
        several ``link:0``, ``link:1``, ...; last the body :data:`PAYLOAD_BODY`.

    Raises:
        ModelError: a shape or mesh that cannot be read without ``geometry`` in the settings, or a link with mass but no
            geometry.
        ConfigError: names in the settings that the URDF does not have, or a hand that opens in an unknown way.
    """
    hulls = _link_hulls(chain, model, settings, file)
    openings = Openings.of(chain, settings, file)
    last = len(chain.joints) - 1
    hand = _hand_links(chain, settings, file)
    _check_covered(chain, hulls, hand, settings, file)
    bodies: list[Body] = []
    for link in sorted(chain.link_joint, key=lambda name: chain.link_joint[name]):  # stable within a joint
        joint = chain.link_joint[link]
        kind = "hand" if link in hand else "base" if joint < 0 else "arm"
        kept = _without_redundant([openings.swept(link, *hull) for hull in hulls[link]])
        for i, (points, radius) in enumerate(kept):
            name = link if len(kept) == 1 else f"{link}:{i}"
            bodies.append(Body(name, joint, points, radius + ROUNDING, kind, link))
    held = settings.payload.link or settings.tool_frame
    frame = model.frames[model.getFrameId(held, pin.FrameType.BODY)].placement
    envelope = settings.payload.envelope
    corners = np.array(envelope.center) + box_corners(envelope.size)
    placed = corners @ frame.rotation.T + frame.translation
    bodies.append(Body(PAYLOAD_BODY, last, placed, ROUNDING, "payload"))
    return tuple(bodies)


def _check_covered(
    chain: UrdfChain, hulls: dict[str, list[Hull]], hand: set[str], settings: Settings, file: str
) -> None:
    """Refuse links with mass, the base's too, that nothing covers and nobody has said need no cover."""
    held = hand if settings.payload.hand_joints == {} else set()
    bare = [
        link for link in chain.link_joint
        if chain.masses[link] > 0.0 and not hulls[link] and link not in settings.geometry and link not in held
    ]  # fmt: skip
    if not bare:
        return
    has = f"link {bare[0]!r} has" if len(bare) == 1 else f"links {', '.join(map(repr, bare))} have"
    raise ModelError(
        f"{chain.file}: {has} mass but no collision geometry: expected some for each; {_hint(bare[0], file)}; or "
        f"`geometry: {{{bare[0]}: []}}`, if other links' shapes hold it or there is nothing to hit, which every "
        "verdict will name"
        + ("; or `hand_joints: {}` under payload, if the hand's other shapes hold it" if hand & set(bare) else "")
    )


def _hand_links(chain: UrdfChain, settings: Settings, file: str) -> set[str]:
    last = len(chain.joints) - 1
    if settings.payload.hand_links is None:
        return {link for link in chain.descendants(settings.tool_frame) if chain.link_joint[link] == last}
    for i, link in enumerate(settings.payload.hand_links):
        if chain.link_joint.get(link) != last:
            raise ConfigError(
                file, f"payload.hand_links[{i}]", link, f"a link fixed to the last joint {chain.joints[last].name!r}"
            )
    return set(settings.payload.hand_links)
