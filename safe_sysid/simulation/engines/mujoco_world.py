"""MuJoCo model of an arm with known parameters, its payload and its surroundings; contacts and clearances in it."""

from __future__ import annotations

import logging

import mujoco
import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.frames import quaternion_wxyz
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.arms import is_simulable
from safe_sysid.simulation.engines.solids import ContactSolid, solids_of, watched_pairs
from safe_sysid.simulation.payloads import Payload

__all__ = ["World", "build_world"]

_GEOMS = {kind: getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}") for kind in ("sphere", "capsule", "box", "cylinder")}
_GEOMS["hull"] = mujoco.mjtGeom.mjGEOM_MESH
_LOGGER = logging.getLogger(__name__)
_FAR = 10.0  # m: distances beyond this do not matter


class World:
    """Compiled MuJoCo model, and the pairs of solids that must stay apart.

    Attributes:
        reach: (n,) m: turning joint j by an angle moves no solid by more than ``reach[j]`` times the angle.
    """

    def __init__(self, model: mujoco.MjModel, parts: dict[int, ContactSolid], pairs: list[tuple[int, int]]) -> None:
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


def _lever_arms(model: mujoco.MjModel, parts: dict[int, ContactSolid]) -> FloatArray:
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
    parts = solids_of(model, payload, scene)
    for part in parts:
        _add_solid(spec, frames[part.joint + 1], part)
    pairs, static = watched_pairs(model, scene, parts)
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


def _add_solid(spec: mujoco.MjSpec, frame: mujoco.MjsBody, solid: ContactSolid) -> None:
    """A geom without mass that touches nothing but in the pairs that are named."""
    shape: dict[str, object] = {"type": _GEOMS[solid.kind], "size": (*solid.size, 0.0, 0.0)[:3]}
    if solid.kind == "capsule":
        shape["fromto"] = np.concatenate(solid.points)
    elif solid.kind == "hull":
        shape = {"type": _GEOMS["hull"], "meshname": solid.name}
        spec.add_mesh(name=solid.name).uservert = solid.points.ravel()
    else:
        shape |= {"pos": solid.points[0], "quat": quaternion_wxyz(solid.rotation)}
    frame.add_geom(name=solid.name, contype=0, conaffinity=0, mass=0.0, **shape)


def _check_static(world: World, pairs: list[tuple[int, int]]) -> None:
    """Raise if what is bolted down stands inside the scene."""
    data = mujoco.MjData(world.model)
    mujoco.mj_kinematics(world.model, data)
    for one, two in pairs:
        distance = mujoco.mj_geomDistance(world.model, data, one, two, _FAR, None)
        if distance < 0.0:
            a, b = world.names(one, two)
            raise ModelError(f"{a} overlaps {b} of the scene by {-distance:.4f} m: expected clear or an allowed pair")
