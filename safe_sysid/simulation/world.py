"""MuJoCo model of an arm with known parameters, its payload and its surroundings; contacts and clearances in it."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.frames import quaternion_wxyz
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.robot.scenes.obstacles import SceneBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.arms import is_simulable
from safe_sysid.simulation.payloads import Payload

__all__ = ["World", "build_world"]

_GEOM = mujoco.mjtGeom
_LOGGER = logging.getLogger(__name__)
_FAR = 10.0  # m: distances beyond this do not matter
_SKIN = 1e-6  # m: a box with a radius below this is a box, grown by it
_FLAT = 1e-4  # m: solids thinner than twice this are made that thick, never thinner
_BALL_POINTS = 200  # vertices of the polytope that stands for a ball under a hull (2 % too large)


@dataclass(frozen=True)
class _Part:
    """A convex solid of the arm, the payload or the scene."""

    name: str
    label: str  # what reports and allowed pairs call it
    joint: int


class World:
    """Compiled MuJoCo model, and the pairs of solids that must stay apart.

    Attributes:
        reach: (n,) m: turning joint j by an angle moves no solid by more than ``reach[j]`` times the angle.
    """

    def __init__(self, model: mujoco.MjModel, parts: dict[int, _Part], pairs: list[tuple[int, int]]) -> None:
        """Keep the model; ``parts`` by geom id, ``pairs`` of geom ids that are not allowed to touch."""
        self.model = model
        self._parts = parts
        self._data = mujoco.MjData(model)  # its own: asking for a clearance does not disturb the simulation
        self._pairs = np.array(pairs, dtype=np.intp).reshape(-1, 2)
        self.reach = _lever_arms(model, parts)
        self._bound = model.geom_rbound[self._pairs].sum(axis=1)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the pairs that are watched."""
        return [(self._parts[a].label, self._parts[b].label) for a, b in self._pairs]

    def names(self, geom_1: int, geom_2: int) -> tuple[str, str]:
        """Names of two solids by geom id."""
        return self._parts[int(geom_1)].label, self._parts[int(geom_2)].label

    def touching(self, data: mujoco.MjData) -> list[tuple[str, str, float]]:
        """Solids that overlap in a state, by name, with the depth, m."""
        contacts = (data.contact[i] for i in range(data.ncon))
        return [(*self.names(c.geom[0], c.geom[1]), -float(c.dist)) for c in contacts if c.dist < 0.0]

    def clearance(self, q: FloatArray) -> tuple[float, tuple[str, str] | None]:
        """Smallest distance (m, negative: depth) over all watched pairs at position ``q`` (n,), and the pair."""
        if not len(self._pairs):
            return np.inf, None
        data = self._data
        data.qpos[:] = q
        mujoco.mj_kinematics(self.model, data)
        a, b = self._pairs.T
        bound = np.linalg.norm(data.geom_xpos[a] - data.geom_xpos[b], axis=1) - self._bound
        best, where = _FAR, None
        for k in np.argsort(bound):  # spheres around the solids first: the nearest few pairs decide
            if bound[k] >= best:
                break
            distance = mujoco.mj_geomDistance(self.model, data, int(a[k]), int(b[k]), best, None)
            if distance < best:
                best, where = distance, self.names(a[k], b[k])
        return float(best), where


def _lever_arms(model: mujoco.MjModel, parts: dict[int, _Part]) -> FloatArray:
    """Longest distance (n,) of any solid's points from each joint's axis, over all positions, m."""
    reach = np.zeros(model.nv)
    for geom, part in parts.items():
        far = float(np.linalg.norm(model.geom_pos[geom]) + model.geom_rbound[geom])
        body = int(model.geom_bodyid[geom])
        for j in range(part.joint, -1, -1):
            reach[j] = max(reach[j], far)
            far += float(np.linalg.norm(model.body_pos[body]))
            body = int(model.body_parentid[body])
    return reach


def build_world(
    model: RobotModel, theta: FloatArray, payload: Payload, scene: Scene, coulomb_velocity: FloatArray, timestep: float
) -> World:
    """Build the simulated arm.

    Every inertial comes from ``theta``; none from geometry. Viscous friction is MuJoCo's joint damping, rotor
    inertia its armature. Coulomb friction is ``-Fc sat(qd / v_s)``, as one actuator per joint with velocity bias and
    force range: evaluated inside every Runge-Kutta stage, never above Fc. Constant offsets are left to the caller.

    Args:
        theta: (14 n,) its true parameters, payload included.
        coulomb_velocity: (n,) v_s, rad/s.
        timestep: of one Runge-Kutta step, s.

    Raises:
        ParameterError: a parameter other than zero that the simulator knows nothing of.
        ModelError: inconsistent parameters (link named), or a fixed part of the arm overlaps the scene.
    """
    mujoco.set_mju_user_warning(_LOGGER.warning)  # MuJoCo's own way is a file in the working directory
    model.layout.require_compiled("the simulator", theta, theta)
    n = model.n
    spec = mujoco.MjSpec()
    spec.modelname = model.name
    spec.compiler.degree = False
    option = spec.option
    option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    option.timestep = timestep
    option.gravity = model.kinematics.gravity
    option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # a state that blows up must be seen, not reset
    option.ccd_tolerance, option.ccd_iterations = 1e-9, 200
    frames = _add_links(spec, model, theta)
    parts = [_add_body(spec, frames[body.joint + 1], body) for body in model.bodies if body.kind != "payload"]
    parts += _add_payload(spec, frames[n], model, payload)
    parts += _add_scene(spec, scene)
    pairs, static = _watched(model, scene, parts)
    for one, two in pairs:
        spec.add_pair(geomname1=one.name, geomname2=two.name)
    for name in model.joint_names:
        friction = spec.add_actuator(name=f"friction:{name}", target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        friction.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        friction.ctrllimited = friction.actlimited = False
        friction.forcelimited, friction.forcerange = True, (-1.0, 1.0)  # real values below
    try:
        compiled = spec.compile()
    except ValueError as error:
        raise ModelError(f"robot {model.name}: MuJoCo refuses the model: {error}") from error
    fc, fv, ia = (theta[part] for part in (model.layout.coulomb, model.layout.viscous, model.layout.rotor_inertia))
    compiled.dof_damping[:], compiled.dof_armature[:] = fv, ia
    compiled.actuator_gainprm[:, 0] = 0.0
    compiled.actuator_biasprm[:, 2] = -fc / coulomb_velocity
    compiled.actuator_forcerange[:, 0], compiled.actuator_forcerange[:, 1] = -fc, fc
    ids = {part.name: compiled.geom(part.name).id for part in parts}
    world = World(
        compiled, {ids[part.name]: part for part in parts}, [(ids[one.name], ids[two.name]) for one, two in pairs]
    )
    _check_static(world, [(ids[one.name], ids[two.name]) for one, two in static])
    return world


def _add_links(spec: mujoco.MjSpec, model: RobotModel, theta: FloatArray) -> list[mujoco.MjsBody]:
    """World frame and the n joint frames."""
    kin = model.kinematics
    frames = [spec.worldbody]
    for j, name in enumerate(model.joint_names):
        link = theta[model.layout.link(j)]
        if not is_simulable(link):
            raise ModelError(f"link moved by {name}: parameters {link.tolist()}: expected those of a solid body")
        mass, centre, inertia = com_and_inertia(link)
        frame = frames[-1].add_body(name=f"link:{name}", pos=kin.translation[j], quat=quaternion_wxyz(kin.rotation[j]))
        frame.mass, frame.ipos, frame.explicitinertial = mass, centre, True
        i = inertia
        frame.fullinertia = (i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2])
        kind = mujoco.mjtJoint.mjJNT_SLIDE if kin.sliding[j] else mujoco.mjtJoint.mjJNT_HINGE
        frame.add_joint(name=name, type=kind, axis=kin.axis[j], limited=False)
        frames.append(frame)
    return frames


def _add_geom(frame: mujoco.MjsBody, name: str, **shape: object) -> None:
    """A geom without mass that touches nothing but in the pairs that are named."""
    frame.add_geom(name=name, contype=0, conaffinity=0, mass=0.0, **shape)


def _add_body(spec: mujoco.MjSpec, frame: mujoco.MjsBody, body: Body, prefix: str = "body") -> _Part:
    name, points = f"{prefix}:{body.name}", body.points
    box = _as_box(points) if body.radius <= _SKIN else None
    if len(points) == 1:
        _add_geom(frame, name, type=_GEOM.mjGEOM_SPHERE, size=(body.radius, 0, 0), pos=points[0])
    elif len(points) == 2:
        _add_geom(frame, name, type=_GEOM.mjGEOM_CAPSULE, size=(body.radius, 0, 0), fromto=np.concatenate(points))
    elif box is not None:
        centre, rotation, half = box
        _add_geom(
            frame, name, type=_GEOM.mjGEOM_BOX, size=half + body.radius, pos=centre, quat=quaternion_wxyz(rotation)
        )
    else:
        mesh = spec.add_mesh(name=name)
        mesh.uservert = _hull_vertices(points, body.radius).ravel()
        _add_geom(frame, name, type=_GEOM.mjGEOM_MESH, meshname=name)
    return _Part(name, body.name, body.joint)


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
        facets = ConvexHull(points).equations
        inner = float((-facets[:, 3] - facets[:, :3] @ points.mean(axis=0)).min())
    except QhullError:
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
    inner = -ConvexHull(ball).equations[:, 3].max()  # radius of the largest ball inside that polytope
    vertices = (points[:, None] + radius / inner * ball[None]).reshape(-1, 3)
    return vertices[ConvexHull(vertices).vertices]


def _add_payload(spec: mujoco.MjSpec, frame: mujoco.MjsBody, model: RobotModel, payload: Payload) -> list[_Part]:
    """The payload's solids; one that is known by numbers alone may fill its whole envelope."""
    rotation, position = model.payload_frame
    if not payload.shapes and np.any(payload.theta):
        envelopes = [body for body in model.bodies if body.kind == "payload"]
        return [_add_body(spec, frame, body, "payload") for body in envelopes]
    parts = []
    for i, shape in enumerate(payload.shapes):
        name = f"payload:{i}"
        if shape.kind == "hexagon":
            corners = position + (shape.corners() @ shape.rotation.T + shape.position) @ rotation.T
            body = Body("payload", model.n - 1, corners, 0.0)
            parts.append(_add_body(spec, frame, body, name))
            continue
        kind = getattr(_GEOM, f"mjGEOM_{shape.kind.upper()}")
        if shape.kind == "cylinder":
            size: tuple[float, ...] = (shape.size[0], 0.5 * shape.size[1], 0.0)
        elif shape.kind == "box":
            size = tuple(0.5 * s for s in shape.size)
        else:
            size = (shape.size[0], 0.0, 0.0)
        pose = {"pos": position + rotation @ shape.position, "quat": quaternion_wxyz(rotation @ shape.rotation)}
        _add_geom(frame, name, type=kind, size=size, **pose)
        parts.append(_Part(name, "payload", model.n - 1))
    return parts


def _add_scene(spec: mujoco.MjSpec, scene: Scene) -> list[_Part]:
    """Every obstacle as the solid that it is: boxes, balls and capsules exactly, others as hulls of their points."""
    parts = []
    for obstacle in scene.obstacles:
        if isinstance(obstacle, SceneBox):
            name = f"scene:{obstacle.name}"
            pose = {"pos": obstacle.xyz, "quat": quaternion_wxyz(obstacle.rotation)}
            _add_geom(spec.worldbody, name, type=_GEOM.mjGEOM_BOX, size=0.5 * obstacle.size, **pose)
            parts.append(_Part(name, obstacle.name, -1))
        else:
            parts.append(_add_body(spec, spec.worldbody, obstacle.body(), "scene"))
    return parts


def _watched(
    model: RobotModel, scene: Scene, parts: list[_Part]
) -> tuple[list[tuple[_Part, _Part]], list[tuple[_Part, _Part]]]:
    """Pairs that must stay apart: those that can move, and those of the base with the scene."""
    envelopes = {body.name for body in model.bodies if body.kind == "payload"} or {"payload"}
    allowed = model.allowed_pairs | scene.allowed_pairs

    def labels(part: _Part) -> set[str]:
        return envelopes if part.name.startswith("payload:") else {part.label}

    moving: list[tuple[_Part, _Part]] = []
    static: list[tuple[_Part, _Part]] = []
    for one, two in itertools.combinations(parts, 2):
        both_scene = one.name.startswith("scene:") and two.name.startswith("scene:")
        both_arm = one.joint == two.joint and not two.name.startswith("scene:")
        if both_scene or both_arm:
            continue
        if all(frozenset((a, b)) in allowed for a in labels(one) for b in labels(two)):
            continue
        (static if one.joint == two.joint else moving).append((one, two))
    return moving, static


def _check_static(world: World, pairs: list[tuple[int, int]]) -> None:
    """Raise if what is bolted down stands inside the scene."""
    data = mujoco.MjData(world.model)
    mujoco.mj_kinematics(world.model, data)
    for one, two in pairs:
        distance = mujoco.mj_geomDistance(world.model, data, one, two, _FAR, None)
        if distance < 0.0:
            a, b = world.names(one, two)
            raise ModelError(f"{a} overlaps {b} of the scene by {-distance:.4f} m: expected clear or an allowed pair")
