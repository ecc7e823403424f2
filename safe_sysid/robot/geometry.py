"""Collision geometry: URDF primitives as sphere-swept convex hulls that contain them, and which pairs may overlap.

A sphere is a point and a radius, a cylinder the segment between the centres of its end discs and its radius (a
capsule: it contains the discs), a box its eight corners. Each contains its primitive exactly in real arithmetic; what
placing the points rounds is covered by :data:`ROUNDING`, added to every radius (coordinates of 10 m round by less than
1e-14 m).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import coal
import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.robot.config import Settings
from safe_sysid.robot.model import Body
from safe_sysid.robot.urdf import UrdfChain

__all__ = ["PAYLOAD_BODY", "ROUNDING", "allowed_pairs", "build_bodies"]

FloatArray = NDArray[np.float64]

PAYLOAD_BODY = "payload"
ROUNDING = 1e-9  # m
PRIMITIVES = ("box", "cylinder", "sphere")

Hull = tuple[FloatArray, float]  # points (m, 3) in a joint frame, radius


def _box_corners(half_size: FloatArray) -> FloatArray:
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    return signs * half_size


def _primitive_hull(shape: coal.CollisionGeometry) -> Hull:
    """Hull of a shape in the shape's own frame."""
    if isinstance(shape, coal.Sphere):
        return np.zeros((1, 3)), float(shape.radius)
    if isinstance(shape, (coal.Cylinder, coal.Capsule)):
        return np.array([[0.0, 0.0, -shape.halfLength], [0.0, 0.0, shape.halfLength]]), float(shape.radius)
    if isinstance(shape, coal.Box):
        return _box_corners(np.asarray(shape.halfSide, float).ravel()), 0.0
    raise ModelError(f"collision shape {type(shape).__name__}: expected one of {', '.join(PRIMITIVES)}")


def _contains(outer: Hull, inner: Hull) -> bool:
    """Whether the outer hull (of at most two points) provably contains the inner one."""
    (a, *rest), slack = outer[0], outer[1] - inner[1]
    if len(rest) > 1 or slack < 0.0:
        return False
    axis = (rest[0] if rest else a) - a
    t = np.clip((inner[0] - a) @ axis / max(float(axis @ axis), 1e-300), 0.0, 1.0)
    distance = np.linalg.norm(inner[0] - a - t[:, None] * axis, axis=1)
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


def _link_hulls(chain: UrdfChain, model: pin.Model, settings: Settings, file: str) -> dict[str, list[Hull]]:
    """Hulls of every link in the frame of the joint that carries it (world for the base)."""
    for link in settings.geometry:
        if link not in chain.link_joint:
            raise ConfigError(file, f"geometry.{link}", link, f"a link of {chain.file}")
    for link, kinds in chain.collisions.items():
        for kind in kinds:
            if kind not in PRIMITIVES and link not in settings.geometry:
                raise ModelError(
                    f"{chain.file}: link {link!r} has collision geometry of type {kind}: expected "
                    f"{', '.join(PRIMITIVES)}; or add to {file}: "
                    f"`geometry: {{{link}: [{{points: [[x, y, z], ...], radius: r}}]}}`, hulls that contain it, in the "
                    "link frame (m)"
                )
    hulls: dict[str, list[Hull]] = {link: [] for link in chain.link_joint}
    geometry = pin.buildGeomFromUrdfString(
        model, chain.text_for_pinocchio(settings.geometry), pin.GeometryType.COLLISION
    )
    for item in geometry.geometryObjects:
        points, radius = _primitive_hull(item.geometry)
        placed = points @ item.placement.rotation.T + item.placement.translation
        hulls[model.frames[item.parentFrame].name].append((placed, radius))
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
        ModelError: a mesh without ``geometry`` in the settings, or a joint whose links have mass but no geometry.
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
    corners = np.array(envelope.center) + _box_corners(np.array(envelope.size) / 2.0)
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
    bodies: Iterable[Body], extra: Iterable[Iterable[str]] = (), file: str = "(settings)"
) -> frozenset[frozenset[str]]:
    """Pairs of bodies that may overlap; every other pair is checked.

    Always allowed: bodies that move with the same joint (so payload, hand and last link), and arm or base links of
    neighbouring joints, which touch where they are joined. Hand and payload against the link before the last stay
    checked: nothing joins them.

    Raises:
        ConfigError: an extra pair with a name that no body has.
    """
    by_name: Mapping[str, Body] = {body.name: body for body in bodies}
    pairs = set()
    for a, b in combinations(by_name.values(), 2):
        joined = a.kind in ("arm", "base") and b.kind in ("arm", "base") and abs(a.joint - b.joint) == 1
        if a.joint == b.joint or joined:
            pairs.add(frozenset((a.name, b.name)))
    for i, extra_pair in enumerate(extra):
        names = tuple(extra_pair)
        for k, name in enumerate(names):
            if name not in by_name:
                raise ConfigError(file, f"allowed_pairs[{i}][{k}]", name, f"one of {', '.join(by_name)}")
        pairs.add(frozenset(names))
    return frozenset(pairs)
