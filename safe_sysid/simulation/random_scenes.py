"""Random scenes around any arm: obstacles in its workspace, a start and a goal that are clear and can be held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.planning.certification.certificate import start_check
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import enclose_clearance
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox, SceneCapsule, SceneMesh, SceneSphere, SceneZonotope
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["ALL_KINDS", "random_obstacle", "random_scene"]

ALL_KINDS = ("box", "sphere", "capsule", "mesh", "zonotope")
_POSES, _OBSTACLES = 2000, 400  # draws before giving up


def random_scene(
    model: RobotModel,
    rng: np.random.Generator,
    obstacles: tuple[int, int] = (3, 10),
    box: ParameterBox | None = None,
    *,
    kinds: Sequence[str] = ("box",),
    gains: ControllerGains | None = None,
) -> Scene:
    """Draw a scene that the arm can start in.

    Returns the scene with ``start`` and ``goal``, for both of which :func:`start_check` finds nothing.

    Args:
        rng: source of everything random: the same generator gives the same scene.
        obstacles: smallest and largest number of them.
        box: parameters for which start and goal must be holdable; None for the model's prior.
        kinds: of obstacles to draw from, see :data:`ALL_KINDS`.
        gains: of the controller; None to design them (some 0.4 s).

    Raises:
        ModelError: no pose can be held, or no room for the obstacles; an unknown kind.
    """
    unknown = set(kinds) - set(ALL_KINDS)
    if unknown or not kinds:
        raise ModelError(f"kinds = {tuple(kinds)}: expected some of {', '.join(ALL_KINDS)}")
    box = model.arm_prior if box is None else box
    gains = design_gains(model) if gains is None else gains
    start, goal = (_holdable(model, rng, box, gains) for _ in range(2))
    count = int(rng.integers(obstacles[0], obstacles[1] + 1))
    found: list[Obstacle] = []
    for _ in range(_OBSTACLES):
        if len(found) == count:
            break
        kind = str(rng.choice(list(kinds)))
        candidate = random_obstacle(f"{kind}_{len(found)}", kind, _place(model, rng), rng)
        if all(_clear(model, candidate, gains, q) for q in (start, goal)):
            found.append(candidate)
    if len(found) < count:
        raise ModelError(f"random scene: room for {len(found)} obstacles around {model.name}: expected {count}")
    scene = Scene("random", tuple(found), frozenset(), start, goal)
    for q in (start, goal):
        reasons = start_check(model, box, scene, gains, q)
        if reasons:  # not reached while both checks look at the same bodies
            raise ModelError(f"random scene: {reasons[0]}: expected a clear pose")
    return scene


def random_obstacle(name: str, kind: str, xyz: FloatArray, rng: np.random.Generator) -> Obstacle:
    """An obstacle of 0.05 to some 0.6 m at xyz (3,), turned anyhow."""
    rpy = rng.uniform(-np.pi, np.pi, 3)
    size = np.exp(rng.uniform(np.log(0.05), np.log(0.6), 3))
    if kind == "box":
        return SceneBox(name, xyz, rpy, size)
    if kind == "sphere":
        return SceneSphere(name, xyz, 0.5 * size[0])
    if kind == "capsule":
        return SceneCapsule(name, xyz, 0.25 * size[0], rpy, size[1])
    if kind == "mesh":
        return SceneMesh(name, xyz, rpy, rng.normal(size=(int(rng.integers(4, 40)), 3)) * size / 4.0)
    return SceneZonotope(name, xyz, rng.normal(size=(int(rng.integers(1, 6)), 3)) * size / 6.0)


def _holdable(model: RobotModel, rng: np.random.Generator, box: ParameterBox, gains: ControllerGains) -> FloatArray:
    """A pose (n,) with nothing around that start_check has nothing against."""
    limits = model.limits
    room = 2.0 * gains.e_bound
    lower = np.where(model.continuous, -np.pi, limits.position_lower + room)
    upper = np.where(model.continuous, np.pi, limits.position_upper - room)
    nothing = Scene("nothing around")
    for _ in range(_POSES):
        q = rng.uniform(lower, upper)
        if not start_check(model, box, nothing, gains, q):
            return q
    raise ModelError(f"random scene: {_POSES} random poses of {model.name}: expected one that can be held")


def _place(model: RobotModel, rng: np.random.Generator) -> FloatArray:
    """Somewhere (3,) that the arm could reach: near a body's centre in a random pose."""
    limits = model.limits
    q = rng.uniform(
        np.where(model.continuous, -np.pi, limits.position_lower),
        np.where(model.continuous, np.pi, limits.position_upper),
    )
    rotation, origin = forward_kinematics(model.kinematics, q)
    places = [(body.joint, body.points.mean(axis=0)) for body in model.bodies if body.joint >= 0]
    joint, point = places[int(rng.integers(len(places)))] if places else (model.n - 1, np.zeros(3))
    return np.asarray(origin[joint] + rotation[joint] @ point + rng.normal(scale=0.1, size=3))


def _clear(model: RobotModel, obstacle: Obstacle, gains: ControllerGains, q: FloatArray) -> bool:
    """Whether holding q keeps clear of one obstacle."""
    cells = time_cells(QuinticTrajectory.hold(q), 1)
    found = enclose_clearance(model, Scene("one", (obstacle,)), cells, TrackingSet.of(gains, model.n))
    return bool(np.all(found.bounds[:, ~found.is_self] >= model.settings.planner.clearance_margin + 1e-6))
