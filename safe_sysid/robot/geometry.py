"""Collision geometry: a URDF's shapes as sphere-swept convex hulls that contain them, and which pairs may overlap.

A sphere is a point and a radius, a cylinder the segment between the centres of its end discs and its radius (a
capsule: it contains the discs), a box its eight corners; meshes are covered by :mod:`safe_sysid.robot.capsules`. Each
contains its primitive exactly in real arithmetic; what
placing the points rounds is covered by :data:`ROUNDING`, added to every radius (coordinates of 10 m round by less than
1e-14 m).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from xml.etree.ElementTree import Element

import coal
import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.robot.capsules import segment_distance
from safe_sysid.robot.config import Settings
from safe_sysid.robot.covers import remembered_cover
from safe_sysid.robot.hulls import distance_to_hull
from safe_sysid.robot.meshes import mesh_path, read_mesh
from safe_sysid.robot.model import Body, Kinematics
from safe_sysid.robot.obstacles import box_corners, rotation_from_rpy
from safe_sysid.robot.urdf import UrdfChain

__all__ = ["PAYLOAD_BODY", "ROUNDING", "allowed_pairs", "build_bodies"]

FloatArray = NDArray[np.float64]

PAYLOAD_BODY = "payload"
ROUNDING = 1e-9  # m
#: Axes that miss a point by less meet in it, m: a turn about each moves it by at most twice that.
_CONCURRENT, _DEEP = 1e-6, 1e-4
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
                xyz, rpy = (
                    np.zeros(3) if place is None else _three(place, key, "0 0 0") for key in ("xyz", "rpy")
                )
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
            hulls[link].append(
                (points @ frame.placement.rotation.T + frame.placement.translation, entry.radius)
            )
    return hulls


def build_bodies(chain: UrdfChain, model: pin.Model, settings: Settings, file: str) -> tuple[Body, ...]:
    """All bodies of the arm: base, links, hand, and the payload's envelope box.

    Args:
        chain: the checked URDF tree.
        model: Pinocchio's model of the same tree.
        settings: the robot's settings; ``geometry`` replaces the URDF's collision geometry link by link.
        file: the settings' file, for messages.

    Returns:
        Bodies in the order of the links along the arm; a link with one hull gives a body of its own name, one with
        several ``link:0``, ``link:1``, ...; last the body :data:`PAYLOAD_BODY`.

    Raises:
        ModelError: a shape or mesh that cannot be read without ``geometry`` in the settings, or a joint whose links
            have mass but no geometry.
        ConfigError: names in the settings that the URDF does not have.
    """
    hulls = _link_hulls(chain, model, settings, file)
    last = len(chain.joints) - 1
    hand = _hand_links(chain, settings, file)
    bodies: list[Body] = []
    for link in sorted(chain.link_joint, key=lambda name: chain.link_joint[name]):  # stable within a joint
        joint = chain.link_joint[link]
        kind = "hand" if link in hand else "base" if joint < 0 else "arm"
        kept = _without_redundant(hulls[link])
        for i, (points, radius) in enumerate(kept):
            name = link if len(kept) == 1 else f"{link}:{i}"
            bodies.append(Body(name, joint, points, radius + ROUNDING, kind))
    for joint in range(last + 1):
        links = [link for link, index in chain.link_joint.items() if index == joint]
        covered = any(body.joint == joint for body in bodies) or any(
            link in settings.geometry for link in links
        )
        if not covered and any(chain.masses[link] > 0.0 for link in links):
            raise ModelError(
                f"{chain.file}: links {links} that joint {chain.joints[joint].name!r} moves have mass but no collision "
                f"geometry: expected some; or add to {file}: `geometry: {{{links[0]}: [{{points: [[x, y, z], ...], "
                "radius: r}]}`, with an empty list if there is nothing to hit"
            )
    flange = model.frames[model.getFrameId(settings.tool_frame, pin.FrameType.BODY)].placement
    envelope = settings.payload.envelope
    corners = np.array(envelope.center) + box_corners(envelope.size)
    placed = corners @ flange.rotation.T + flange.translation
    bodies.append(Body(PAYLOAD_BODY, last, placed, ROUNDING, "payload"))
    return tuple(bodies)


def _hand_links(chain: UrdfChain, settings: Settings, file: str) -> set[str]:
    last = len(chain.joints) - 1
    if settings.payload.hand_links is None:
        return {link for link in chain.descendants(settings.tool_frame) if chain.link_joint[link] == last}
    for i, link in enumerate(settings.payload.hand_links):
        if chain.link_joint.get(link) != last:
            raise ConfigError(
                file,
                f"payload.hand_links[{i}]",
                link,
                f"a link fixed to the last joint {chain.joints[last].name!r}",
            )
    return set(settings.payload.hand_links)


def allowed_pairs(
    bodies: Iterable[Body],
    extra: Iterable[Iterable[str]] = (),
    file: str = "(settings)",
    kinematics: Kinematics | None = None,
) -> frozenset[frozenset[str]]:
    """Pairs of bodies that may overlap; every other pair is checked.

    Always allowed:

    - bodies that move with the same joint (so payload, hand and last link): their distance never changes;
    - arm or base links of neighbouring joints: the joint joins them, and its position limits keep their far ends apart;
    - arm or base links that overlap whatever the pose is, because they share a point that no joint between them moves:
      the axes of all those joints meet in it, and none slides (a wrist whose middle link is inside the others).

    Hand and payload against the links before the last stay checked: nothing joins them.

    Args:
        bodies: of the arm.
        extra: pairs of names to add.
        file: that gives the extra pairs, for messages.
        kinematics: of the arm; without it the third rule is left out.

    Raises:
        ConfigError: an extra pair with a name that no body has.
    """
    by_name: Mapping[str, Body] = {body.name: body for body in bodies}
    pairs = set()
    for a, b in combinations(by_name.values(), 2):
        links = a.kind in ("arm", "base") and b.kind in ("arm", "base")
        joined = links and abs(a.joint - b.joint) == 1
        if (
            a.joint == b.joint
            or joined
            or (links and kinematics is not None and _always_touch(a, b, kinematics))
        ):
            pairs.add(frozenset((a.name, b.name)))
    for i, extra_pair in enumerate(extra):
        names = tuple(extra_pair)
        for k, name in enumerate(names):
            if name not in by_name:
                raise ConfigError(file, f"allowed_pairs[{i}][{k}]", name, f"one of {', '.join(by_name)}")
        pairs.add(frozenset(names))
    return frozenset(pairs)


def _always_touch(a: Body, b: Body, kinematics: Kinematics) -> bool:
    """Whether all axes of the joints between two bodies meet in one point that lies in both.

    Turning about axes through a point moves neither the point nor the other axes off it: true at one pose, true at all.
    A prismatic joint does move it.
    """
    low, high = sorted((a, b), key=lambda body: body.joint)
    between = range(low.joint + 1, high.joint + 1)
    n = len(kinematics.axis)
    if np.any(kinematics.sliding[list(between)]):
        return False
    if not all(np.all(np.isfinite(part)) for part in kinematics[:4]):
        return False  # the model will be refused
    rotation, origin = np.eye(3), np.zeros(3)
    frames = [(rotation, origin)]
    for j in range(n):
        origin = origin + rotation @ kinematics.translation[j]
        rotation = rotation @ kinematics.rotation[j]
        frames.append((rotation, origin))
    # Nearest point to all axes: sum_j (I - z z^T) (x - p) = 0.
    lines = [(frames[j + 1][1], frames[j + 1][0] @ kinematics.axis[j]) for j in between]
    normal = sum((np.eye(3) - np.outer(z, z) for _, z in lines), np.zeros((3, 3)))
    if np.linalg.eigvalsh(normal)[0] < 1e-3:  # parallel axes
        return False
    point = np.linalg.solve(normal, sum(((np.eye(3) - np.outer(z, z)) @ p for p, z in lines), np.zeros(3)))
    if not all(np.linalg.norm(np.cross(z, point - p)) <= _CONCURRENT for p, z in lines):
        return False
    return all(
        distance_to_hull((point - frames[body.joint + 1][1]) @ frames[body.joint + 1][0], body.points)
        <= body.radius - _DEEP
        for body in (low, high)
    )
