r"""DART, Gazebo's default engine, as the engine of a simulated arm: somebody else's dynamics, contacts and distances.

A step of h: accelerations of the articulated body under the torques that are held, with viscous friction at the
velocity that they lead to (implicit); then, as impulses, Coulomb friction (at most ``h Fc``, towards rest) and
contacts; then positions with the new velocity. Nothing here is written by us but the arm's tree: no rotors, for DART's
joints have none.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.arms import is_simulable
from safe_sysid.simulation.engines.solids import ContactSolid, solids_of, watched_pairs
from safe_sysid.simulation.payloads import Payload

try:
    import dartpy
except ImportError as error:
    raise ParameterError("engine dart: dartpy is not installed: expected pip install 'safe_sysid[dart]'") from error

__all__ = ["DartEngine"]

_FAR = 10.0  # m: distances beyond this do not matter
_POSES = 32  # that the lightest inertia is looked for in


class DartEngine:
    """See :class:`~safe_sysid.simulation.engines.Engine`. A step is a period, as in Gazebo's world, unless asked."""

    smooth_friction = False
    steps = 1

    def __init__(
        self,
        model: RobotModel,
        theta: FloatArray,
        payload: Payload,
        scene: Scene,
        coulomb_velocity: FloatArray,
        period: float,
        steps: int,
    ) -> None:
        """Build the world. ``coulomb_velocity`` is not used: friction is a constraint.

        Raises:
            ModelError: a rotor, parameters of no solid body, a hull, or a fixed part of the arm inside the scene.
        """
        model.layout.require_compiled("the simulator", theta, theta)
        rotors = theta[model.layout.rotor_inertia]
        if np.any(rotors):
            j = int(np.argmax(np.abs(rotors)))
            raise ModelError(
                f"robot {model.name}: rotor inertia {rotors[j]:g} of {model.joint_names[j]}: DART's joints have none: "
                "expected a robot file with rotor_inertia 0, as kinova_gen3_gazebo"
            )
        self._world = world = dartpy.simulation.World()
        world.setTimeStep(period / steps)
        world.setGravity(np.array(model.kinematics.gravity))
        self._arm, frames = _tree(model, theta)
        fixed = dartpy.dynamics.Skeleton("fixed")
        frames[-1] = fixed.createWeldJointAndBodyNodePair()[1]
        fixed.setMobile(False)
        self._axes = np.array(model.kinematics.axis)
        self._bodies, self._sliding = [frames[j] for j in range(model.n)], np.array(model.kinematics.sliding)
        solids = solids_of(model, payload, scene)
        nodes = {solid.name: _shape_node(frames[solid.joint], solid, model.name) for solid in solids}
        pairs, static = watched_pairs(model, scene, solids)
        self._detector = dartpy.collision.DARTCollisionDetector()
        world.setCollisionDetector(self._detector)
        self._pairs = [self._pair(nodes, one, two) for one, two in pairs]
        # Balls around the solids: bodies that carry them (the world last), places in there, sums of radii.
        self._ends = np.array([(one.joint, two.joint) for one, two in pairs], dtype=int).reshape(-1, 2).T
        self._places = np.array([(_centre(one), _centre(two)) for one, two in pairs]).reshape(-1, 2, 3)
        self._bound = np.array([_radius(one) + _radius(two) for one, two in pairs])
        for one, two in static:
            group = self._pair(nodes, one, two)[2]
            if (depth := -group.distance(self._deep())) > 0.0:
                raise ModelError(
                    f"{one.label} overlaps {two.label} of the scene by {depth:.4f} m: expected clear or an allowed pair"
                )
        self._arm.enableSelfCollisionCheck()
        self._arm.enableAdjacentBodyCheck()
        allow = world.getConstraintSolver().getCollisionOption().collisionFilter
        # Contact forces act between bodies: not where some of their solids may overlap.
        watched = {frozenset((one.name, two.name)) for one, two in pairs}
        on = {joint: [solid.name for solid in solids if solid.joint == joint] for joint in range(-1, model.n)}
        for j, k in itertools.combinations(range(-1, model.n), 2):
            if not all(frozenset(names) in watched for names in itertools.product(on[j], on[k])):
                allow.addBodyNodePairToBlackList(frames[j], frames[k])
        world.addSkeleton(fixed)
        world.addSkeleton(self._arm)
        self._reach = np.array([_reach(model, one, two) for one, two in pairs]).reshape(-1, model.n)
        self._distances, self._looked_at = np.full(len(pairs), -np.inf), np.zeros((len(pairs), model.n))
        self.q, self.qd, self._felt = np.zeros(model.n), np.zeros(model.n), np.zeros(model.n)
        self._kind: Any = None

    @staticmethod
    def integration_error(model: RobotModel) -> FloatArray:
        """(n,) N m: half a step of what turns gravity, at most the largest torque limit at the plans' largest velocity.

        Velocities are integrated with what is true at a step's beginning. Measured: a third and less along plans
        (docs/use/launch.md, benchmarks/dart.py). Before the friction, where efforts are measured there, viscous
        friction is that of a velocity ``h Fc / H`` beside the one that positions move with.
        """
        h, prior, layout = model.settings.timing.period_s, model.arm_prior, model.layout
        fastest = float(np.max(per_joint(model.settings.controller.velocity, model.n)))
        out = np.full(model.n, 0.5 * h * fastest * float(np.max(model.limits.torque)))
        coulomb, viscous = prior.upper[layout.coulomb], prior.upper[layout.viscous]
        if model.settings.measurement.torque_source == "link" or not np.any(coulomb * viscous):
            return out
        dynamics, rng = dynamics_of(model.kinematics), np.random.default_rng(0)
        bare = np.array(model.theta_nominal)  # of the empty hand: nothing that it holds makes a joint lighter
        masses = [dynamics.mass_matrix(bare, q) for q in rng.uniform(-np.pi, np.pi, (_POSES, model.n))]
        lightest = 1.5 * np.max([np.diag(np.linalg.inv(mass)) for mass in masses], axis=0)
        return out + h * viscous * coulomb * lightest

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the solids that must stay apart."""
        return [(one, two) for one, two, _ in self._pairs]

    @property
    def link_torque(self) -> FloatArray:
        """(n,) mean torque that the links felt in the last advance, N m."""
        return self._felt

    @property
    def touching(self) -> list[tuple[str, str, float]]:
        """Solids that overlap now, by name, with the depth, m.

        A pair's distance is asked for again when it may have come down to zero since it was asked last.
        """
        turned = np.abs(self.q - self._looked_at)
        for k in np.flatnonzero(self._distances <= np.einsum("pj,pj->p", turned, self._reach)):
            self._distances[k], self._looked_at[k] = self._pairs[k][2].distance(self._deep()), self.q
        return [(*self._pairs[k][:2], -float(self._distances[k])) for k in np.flatnonzero(self._distances < 0.0)]

    def place(self, q: FloatArray, qd: FloatArray) -> None:
        """Go to a state: ``q`` (n,) rad, ``qd`` (n,) rad/s."""
        self._arm.setPositions(q)
        self._arm.setVelocities(qd)
        self.q[:], self.qd[:] = q, qd

    def advance(self, torque: FloatArray, steps: int) -> None:
        """Integrate over so many of DART's steps under a torque (n,) that is held, N m."""
        self._run(dartpy.dynamics.ActuatorType.FORCE, torque, steps)

    def follow(self, velocity: FloatArray, most: FloatArray, steps: int) -> None:
        """The same under DART's servos, which reach a velocity (n,) within a step by at most ``most`` (n,), N m."""
        self._arm.setForceLowerLimits(-most)
        self._arm.setForceUpperLimits(most)
        self._run(dartpy.dynamics.ActuatorType.SERVO, velocity, steps)

    def _run(self, kind: Any, command: FloatArray, steps: int) -> None:
        arm, felt = self._arm, np.zeros_like(self.q)
        if kind is not self._kind:
            self._kind = kind
            for joint in arm.getJoints():
                joint.setActuatorType(kind)
        for _ in range(steps):
            arm.setCommands(command)
            self._world.step()
            felt += self._transmitted()
        self.q[:], self.qd[:] = arm.getPositions(), arm.getVelocities()
        self._felt = felt / steps

    def clearance(self, q: FloatArray) -> tuple[float, tuple[str, str] | None]:
        """Smallest distance (m, negative: depth) over all watched pairs at position ``q`` (n,), and the pair."""
        self._arm.setPositions(q)
        try:
            best, where = _FAR, None
            poses = np.array([*(body.getTransform().matrix() for body in self._bodies), np.eye(4)])
            one, two = (
                np.einsum("pij,pj->pi", poses[end, :3, :3], place) + poses[end, :3, 3]
                for end, place in zip(self._ends, self._places.transpose(1, 0, 2), strict=True)
            )
            bound = np.linalg.norm(one - two, axis=1) - self._bound
            for k in np.argsort(bound):  # spheres around the solids first: the nearest few pairs decide
                if bound[k] >= best:
                    break
                distance = self._pairs[k][2].distance(self._deep())
                if distance < best:
                    best, where = distance, self._pairs[k][:2]
            return float(best), where
        finally:
            self._arm.setPositions(self.q)

    def _transmitted(self) -> FloatArray:
        """What gz_ros2_control reports: the wrench from parent to child, about the joint, along its axis."""
        forces = np.array([body.getBodyForce() for body in self._bodies])
        part = np.where(self._sliding[:, None], forces[:, 3:], forces[:, :3])
        return np.einsum("jk,jk->j", part, self._axes)

    def _pair(self, nodes: dict[str, Any], one: ContactSolid, two: ContactSolid) -> tuple[str, str, Any]:
        group = self._detector.createCollisionGroup()
        group.addShapeFrame(nodes[one.name])
        group.addShapeFrame(nodes[two.name])
        return one.label, two.label, group

    @staticmethod
    def _deep() -> Any:
        return dartpy.collision.DistanceOption(False, -_FAR)


def _isometry(rotation: FloatArray, translation: FloatArray) -> Any:
    out = dartpy.math.Isometry3()
    out.set_rotation(np.array(rotation))
    out.set_translation(np.array(translation))
    return out


def _tree(model: RobotModel, theta: FloatArray) -> tuple[Any, dict[int, Any]]:
    """The arm as DART's skeleton, and the body of each joint."""
    kin, layout = model.kinematics, model.layout
    arm = dartpy.dynamics.Skeleton(model.name)
    frames: dict[int, Any] = {}
    for j, name in enumerate(model.joint_names):
        link = theta[layout.link(j)]
        if not is_simulable(link):
            raise ModelError(f"link moved by {name}: parameters {link.tolist()}: expected those of a solid body")
        make = arm.createPrismaticJointAndBodyNodePair if kin.sliding[j] else arm.createRevoluteJointAndBodyNodePair
        joint, body = make(frames[j - 1]) if j else make()
        joint.setName(name)
        joint.setTransformFromParentBodyNode(_isometry(kin.rotation[j], kin.translation[j]))
        joint.setAxis(np.array(kin.axis[j]))
        joint.setDampingCoefficient(0, float(theta[layout.viscous][j]))
        joint.setCoulombFriction(0, float(theta[layout.coulomb][j]))
        body.setInertia(dartpy.dynamics.Inertia(*com_and_inertia(link)))
        frames[j] = body
    return arm, frames


def _shape_node(body: Any, solid: ContactSolid, robot: str) -> Any:
    """A collision shape of DART's own, fixed to a body."""
    make, rotation = dartpy.dynamics, solid.rotation
    if solid.kind == "capsule":
        along = solid.points[1] - solid.points[0]
        length = float(np.linalg.norm(along))
        shape, rotation = make.CapsuleShape(solid.size[0], length), _turned(along / length)
    elif solid.kind == "sphere":
        shape = make.SphereShape(solid.size[0])
    elif solid.kind == "box":
        shape = make.BoxShape(2.0 * np.array(solid.size))
    elif solid.kind == "cylinder":
        shape = make.CylinderShape(solid.size[0], 2.0 * solid.size[1])
    else:
        raise ModelError(
            f"robot {robot}: {solid.label} is a hull, which DART measures no distances of: expected capsules, balls, "
            "boxes and cylinders (`geometry` of the robot file can put them in its place)"
        )
    node = body.createShapeNode(shape)
    node.createCollisionAspect()
    node.createDynamicsAspect()
    node.setRelativeTransform(_isometry(rotation, _centre(solid)))
    return node


def _turned(z: FloatArray) -> FloatArray:
    """A rotation (3, 3) that takes the third axis to the unit vector ``z``."""
    x = np.cross(z, np.eye(3)[int(np.argmin(np.abs(z)))])
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])


def _centre(solid: ContactSolid) -> FloatArray:
    return np.asarray(solid.points.mean(axis=0))


def _radius(solid: ContactSolid) -> float:
    """Of a ball about the centre that holds the solid, m."""
    if solid.kind == "capsule":
        return solid.size[0] + 0.5 * float(np.linalg.norm(solid.points[1] - solid.points[0]))
    return float(np.linalg.norm(solid.size))


def _reach(model: RobotModel, one: ContactSolid, two: ContactSolid) -> FloatArray:
    """(n,) m: turning joint j by an angle changes the distance of two solids by no more than this times the angle."""
    kin, reach = model.kinematics, np.zeros(model.n)
    outer, inner = (one, two) if one.joint > two.joint else (two, one)
    far = float(np.linalg.norm(_centre(outer))) + _radius(outer)
    for j in range(outer.joint, inner.joint, -1):
        reach[j] = 1.0 if kin.sliding[j] else far
        far += float(np.linalg.norm(kin.translation[j]))
        if kin.sliding[j]:
            far += min(float(np.abs([model.limits.position_lower[j], model.limits.position_upper[j]]).max()), _FAR)
    return reach
