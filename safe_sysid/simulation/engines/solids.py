"""Convex solids of an arm, its payload and the scene, as simulators want them, and which pairs must stay apart."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import scipy  # imports scipy.spatial when it is first used: 0.3 s that most starts need not wait

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.scenes.obstacles import SceneBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import Payload

__all__ = ["ContactSolid", "solids_of", "watched_pairs"]

_SKIN = 1e-6  # m: a box with a radius below this is a box, grown by it
_FLAT = 1e-4  # m: solids thinner than twice this are made that thick, never thinner
_BALL_POINTS = 200  # vertices of the polytope that stands for a ball under a hull (2 % too large)


@dataclass(frozen=True, eq=False)
class ContactSolid:
    """A convex solid, fixed to a joint's moving frame or to the world."""

    name: str  #: unique
    label: str  #: what reports and allowed pairs call it
    joint: int  #: that moves it; -1: the world
    kind: str  #: "sphere", "capsule", "box", "cylinder" (along its own z) or "hull"
    size: tuple[float, ...]  #: m: radius; radius; three half sizes; radius and half length; nothing
    #: (1, 3) centre, (2, 3) ends of a capsule's axis, or (k, 3) vertices of a hull, m, in the joint's frame
    points: FloatArray
    rotation: FloatArray = field(default_factory=lambda: np.eye(3))  #: (3, 3) axes of a box or cylinder in that frame


def solids_of(model: RobotModel, payload: Payload, scene: Scene) -> list[ContactSolid]:
    """All of them: the arm's, the payload's, the scene's."""
    solids = [_solid(body) for body in model.bodies if body.kind != "payload"]
    solids += _payload(model, payload)
    for obstacle in scene.obstacles:  # boxes, balls and capsules exactly, others as hulls of their points
        if isinstance(obstacle, SceneBox):
            half = tuple(0.5 * obstacle.size)
            name, centre = f"scene:{obstacle.name}", np.array(obstacle.xyz, float)[None]
            solids.append(ContactSolid(name, obstacle.name, -1, "box", half, centre, obstacle.rotation))
        else:
            solids.append(_solid(obstacle.body(), "scene"))
    return solids


def _solid(body: Body, prefix: str = "body") -> ContactSolid:
    name, points, radius = f"{prefix}:{body.name}", body.points, body.radius
    if len(points) <= 2:
        return ContactSolid(name, body.name, body.joint, ("sphere", "capsule")[len(points) - 1], (radius,), points)
    if radius <= _SKIN and (box := _as_box(points)) is not None:
        centre, rotation, half = box
        return ContactSolid(name, body.name, body.joint, "box", tuple(half + radius), centre[None], rotation)
    return ContactSolid(name, body.name, body.joint, "hull", (), _hull_vertices(points, radius))


def _as_box(points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Centre, axes and half sizes if eight points are a box's corners."""
    if len(points) != 8:
        return None
    edges = points[1:] - points[0]
    for i, j, k in itertools.combinations(range(7), 3):
        e = edges[[i, j, k]]
        length = np.linalg.norm(e, axis=1)
        if np.any(length == 0.0) or np.abs(e @ e.T - np.diag(length**2)).max() > 1e-9 * length.max() ** 2:
            continue
        signs = np.array(list(itertools.product((0, 1), repeat=3)))
        corners = points[0] + signs @ e
        if np.linalg.norm(corners[:, None] - points[None], axis=2).min(axis=0).max() > 1e-9 * length.max():
            continue
        axes = (e / length[:, None]).T
        if np.linalg.det(axes) < 0.0:
            axes[:, 2] *= -1.0
        return points.mean(axis=0), axes, 0.5 * length
    return None


def _hull_vertices(points: FloatArray, radius: float) -> FloatArray:
    """Vertices of a polytope with volume that holds hull(points) inflated by radius."""
    try:
        facets = scipy.spatial.ConvexHull(points).equations
        inner = float((-facets[:, 3] - facets[:, :3] @ points.mean(axis=0)).min())
    except scipy.spatial.QhullError:
        inner = 0.0
    if inner < _FLAT:
        return _inflated(points, max(radius, _FLAT))
    if radius > _SKIN:
        return _inflated(points, radius)
    # A polytope grown about a point inside: every facet moves out by the radius at least.
    centre = points.mean(axis=0)
    return centre + (points - centre) * (1.0 + radius / inner)


def _inflated(points: FloatArray, radius: float) -> FloatArray:
    """Vertices whose hull holds hull(points) inflated by radius: a polytope *around* the ball at every point."""
    i = np.arange(_BALL_POINTS) + 0.5
    z, turn = 1.0 - 2.0 * i / _BALL_POINTS, np.pi * (1.0 + np.sqrt(5.0)) * i  # Fibonacci's sphere
    across = np.sqrt(1.0 - z**2)
    ball = np.stack([across * np.cos(turn), across * np.sin(turn), z], axis=1)
    inner = -scipy.spatial.ConvexHull(ball).equations[:, 3].max()  # radius of the largest ball inside that polytope
    vertices = (points[:, None] + radius / inner * ball[None]).reshape(-1, 3)
    return vertices[scipy.spatial.ConvexHull(vertices).vertices]


def _payload(model: RobotModel, payload: Payload) -> list[ContactSolid]:
    """The payload's solids; one that is known by numbers alone may fill its whole envelope."""
    rotation, position = model.payload_frame
    if not payload.shapes and np.any(payload.theta):
        return [_solid(body, "payload") for body in model.bodies if body.kind == "payload"]
    solids = []
    for i, shape in enumerate(payload.shapes):
        name = f"payload:{i}"
        if shape.kind == "hexagon":
            corners = position + (shape.corners() @ shape.rotation.T + shape.position) @ rotation.T
            solids.append(_solid(Body("payload", model.n - 1, corners, 0.0), name))
            continue
        if shape.kind == "cylinder":
            size: tuple[float, ...] = (shape.size[0], 0.5 * shape.size[1])
        elif shape.kind == "box":
            size = tuple(0.5 * s for s in shape.size)
        else:
            size = (shape.size[0],)
        centre = position + rotation @ shape.position
        solids.append(
            ContactSolid(name, "payload", model.n - 1, shape.kind, size, centre[None], rotation @ shape.rotation)
        )
    return solids


def watched_pairs(
    model: RobotModel, scene: Scene, parts: list[ContactSolid]
) -> tuple[list[tuple[ContactSolid, ContactSolid]], list[tuple[ContactSolid, ContactSolid]]]:
    """Pairs that must stay apart: those that can move, and those of the base with the scene."""
    envelopes = {body.name for body in model.bodies if body.kind == "payload"} or {"payload"}
    allowed = model.allowed_pairs | scene.allowed_pairs

    def labels(part: ContactSolid) -> set[str]:
        return envelopes if part.name.startswith("payload:") else {part.label}

    moving: list[tuple[ContactSolid, ContactSolid]] = []
    static: list[tuple[ContactSolid, ContactSolid]] = []
    for one, two in itertools.combinations(parts, 2):
        both_scene = one.name.startswith("scene:") and two.name.startswith("scene:")
        both_arm = one.joint == two.joint and not two.name.startswith("scene:")
        if both_scene or both_arm:
            continue
        if all(frozenset((a, b)) in allowed for a in labels(one) for b in labels(two)):
            continue
        (static if one.joint == two.joint else moving).append((one, two))
    return moving, static
