"""Bodies of random arms and what stands around them, close enough that clearances count."""

from __future__ import annotations

import dataclasses

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox, SceneCapsule, SceneMesh, SceneSphere, SceneZonotope
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.studies.campaign.reachability.distance import nearest_points

__all__ = ["body_corners", "draw_bodies", "draw_scene", "without_collisions"]


def draw_bodies(
    rng: np.random.Generator, kind: str, translation: FloatArray
) -> tuple[tuple[Body, ...], frozenset[frozenset[str]]]:
    """One or two bodies on most joints, one on the base, the payload's box; and the pairs that may overlap.

    Args:
        kind: "capsules", "hulls", "degenerate" (points, segments, flat hulls, twice the same corner) or "mixed".
        translation: (n, 3) of the joints' frames: links reach to the next one.
    """
    n = len(translation)
    bodies = [Body("base", -1, rng.uniform(-0.1, 0.1, (2, 3)), 0.05, "base")]
    for joint in range(n):
        reach = translation[joint + 1] if joint + 1 < n else rng.uniform(-0.2, 0.2, 3)
        for i in range(int(rng.choice([0, 1, 2], p=[0.1, 0.65, 0.25]))):
            shape = str(rng.choice(["capsules", "hulls", "degenerate"])) if kind == "mixed" else kind
            points, radius = _shape(rng, shape, reach)
            bodies.append(Body(f"link_{joint}_{i}", joint, points, radius, "hand" if i and joint == n - 1 else "arm"))
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    bodies.append(
        Body(
            "payload",
            n - 1,
            rng.uniform(-0.1, 0.1, 3) + signs * rng.uniform(0.0, 0.15, 3),
            float(rng.choice([0.0, 1e-9, 0.02])),
            "payload",
        )
    )
    allowed = set()
    for i, a in enumerate(bodies):
        for b in bodies[:i]:
            if abs(a.joint - b.joint) <= 1 and rng.random() < 0.8:
                allowed.add(frozenset((a.name, b.name)))
    return tuple(bodies), frozenset(allowed)


def _shape(rng: np.random.Generator, kind: str, reach: FloatArray) -> tuple[FloatArray, float]:
    radius = float(rng.uniform(0.01, 0.06))
    if kind == "capsules":
        return np.stack([np.zeros(3), reach]), radius
    if kind == "hulls":
        count = int(rng.integers(4, 20))
        along = rng.random((count, 1)) * reach
        return along + rng.uniform(-0.05, 0.05, (count, 3)), float(rng.choice([0.0, radius]))
    form = rng.integers(0, 5)
    if form == 0:
        return rng.uniform(-0.1, 0.1, (1, 3)), radius
    if form == 1:
        return np.stack([0.3 * reach, 0.8 * reach]), 0.0
    if form == 2:
        return np.repeat(rng.uniform(-0.1, 0.1, (1, 3)), 2, axis=0), radius
    flat = rng.uniform(-0.1, 0.1, (int(rng.integers(3, 7)), 3)) * np.array([1.0, 1.0, 0.0])
    if form == 3:
        return flat, 0.0
    line = np.linspace(-0.5, 0.5, 4)[:, None] * rng.uniform(-0.2, 0.2, 3)  # four corners on one line
    return np.concatenate([line, line[:1]]), radius


def draw_scene(rng: np.random.Generator, kind: str, model: RobotModel, poses: FloatArray, room: float = 0.0) -> Scene:
    """A scene of up to six obstacles, each beside a body in one of the poses.

    Args:
        kind: "none", "boxes", "flat" (an edge next to nothing or many metres long), "all" kinds of obstacles.
        poses: (N, n) of which some are on the motion, rad.
        room: besides, between obstacle and body, m.
    """
    if kind == "none" or not model.bodies:
        return Scene("campaign", ())
    obstacles = []
    for i in range(int(rng.integers(1, 7))):
        body = model.bodies[int(rng.integers(len(model.bodies)))]
        rotations, origins = forward_kinematics(model.kinematics, poses[int(rng.integers(len(poses)))])
        point = body.points[int(rng.integers(len(body.points)))]
        if body.joint >= 0:
            point = origins[body.joint] + rotations[body.joint] @ point
        size = rng.uniform(0.02, 0.4, 3)
        form = str(rng.choice(["box", "sphere", "capsule", "mesh", "zonotope"])) if kind == "all" else "box"
        if kind == "flat" or (kind == "all" and rng.random() < 0.3):
            size[int(rng.integers(3))] = float(rng.choice([1e-6, 1e-3, 5.0]))
        away = rng.normal(size=3)
        away /= np.linalg.norm(away)
        gap = body.radius + 0.5 * np.linalg.norm(size) * rng.uniform(0.3, 1.0) + rng.uniform(0.0, 0.2) + room
        obstacles.append(_obstacle(rng, form, f"{form}_{i}", point + gap * away, size))
    return Scene("campaign", tuple(obstacles))


def _obstacle(rng: np.random.Generator, form: str, name: str, centre: FloatArray, size: FloatArray) -> Obstacle:
    rpy = rng.uniform(-np.pi, np.pi, 3) * (rng.random() < 0.7)
    if form == "sphere":
        return SceneSphere(name, centre, float(0.5 * size.min()))
    if form == "capsule":
        return SceneCapsule(name, centre, float(0.3 * size.min()), rpy, float(rng.choice([0.0, 0.7 * size.max()])))
    if form == "mesh":
        vertices = rng.uniform(-0.5, 0.5, (int(rng.choice([1, 2, 4, 12, 300])), 3)) * size
        return SceneMesh(name, centre, rpy, vertices)
    if form == "zonotope":
        return SceneZonotope(name, centre, rng.uniform(-0.3, 0.3, (int(rng.integers(1, 8)), 3)) * size)
    return SceneBox(name, centre, rpy, size)


def body_corners(model: RobotModel, body: Body, q: FloatArray) -> FloatArray:
    """Corners (m, 3) of a body in the world for a pose (n,), m."""
    if body.joint < 0:
        return np.ascontiguousarray(body.points)
    r, p = forward_kinematics(model.kinematics, q)
    return np.ascontiguousarray(body.points @ r[body.joint].T + p[body.joint])


def without_collisions(model: RobotModel, scene: Scene, poses: FloatArray, room: float) -> tuple[RobotModel, Scene]:
    """The same, with pairs of bodies allowed, and obstacles left out, that come too near each other in some pose.

    ``poses``: (N, n) rad; ``room``: smallest distance kept, m.
    """
    bodies = model.bodies
    allowed, gone = set(model.allowed_pairs), set()
    for q in poses:
        corners = {body.name: body_corners(model, body, q) for body in bodies}
        for i, first in enumerate(bodies):
            for second in (*bodies[:i], *scene.bodies()):
                a, b = corners[first.name], corners.get(second.name, second.points)
                gap = nearest_points(np.array(a), np.array(b), np.empty(len(a)), np.empty(len(b)))
                if gap - first.radius - second.radius < room:
                    if second.name in corners:
                        allowed.add(frozenset((first.name, second.name)))
                    else:
                        gone.add(second.name)
    obstacles = tuple(o for o in scene.obstacles if o.name not in gone)
    return dataclasses.replace(model, allowed_pairs=frozenset(allowed)), Scene(scene.name, obstacles)
