"""Random serial arms as pairs of (our Kinematics, Pinocchio model): the independent oracle of the tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from safe_sysid.dynamics import Dynamics
from safe_sysid.robot.model import Kinematics, Motors


def random_arm(n: int, rng: np.random.Generator, slides: float = 0.0) -> tuple[Kinematics, pin.Model, np.ndarray]:
    """A chain with random axes, placements and links, rotor inertia and friction; theta is (14 n,).

    ``slides``: chance of a joint to be prismatic, with a travel of up to half a metre.
    """
    model = pin.Model()
    rotation, translation, axes, theta = [], [], [], []
    travel = np.tile([-np.inf, np.inf], (n, 1))
    for j in range(n):
        prismatic = slides > 0.0 and rng.random() < slides
        if prismatic:
            travel[j] = rng.uniform(-0.5, 0.3) + np.array([0.0, rng.uniform(0.05, 0.5)])
        axis = rng.normal(size=3)
        axis /= np.linalg.norm(axis)
        quaternion = rng.normal(size=4)
        placement = pin.SE3(
            pin.Quaternion(quaternion / np.linalg.norm(quaternion)).toRotationMatrix(), rng.uniform(-0.4, 0.4, 3)
        )
        kind = pin.JointModelPrismaticUnaligned if prismatic else pin.JointModelRevoluteUnaligned
        model.addJoint(j, kind(axis), placement, f"joint_{j}")
        points = rng.normal(scale=0.1, size=(6, 3)) + rng.uniform(-0.1, 0.1, 3)
        masses = rng.uniform(0.1, 1.0, 6)
        com = masses @ points / masses.sum()
        inertia = sum(
            m * ((p - com) @ (p - com) * np.eye(3) - np.outer(p - com, p - com))
            for m, p in zip(masses, points, strict=True)
        )
        link = pin.Inertia(float(masses.sum()), com, inertia)
        model.appendBodyToJoint(j + 1, link, pin.SE3.Identity())
        rotation.append(placement.rotation.copy())
        translation.append(placement.translation.copy())
        axes.append(axis)
        theta.append(link.toDynamicParameters())
    gravity = np.array([0.0, 0.0, -9.81])
    kin = Kinematics.chain(np.array(rotation), np.array(translation), np.array(axes), gravity, travel)
    friction = [rng.uniform(0.1, 1.0, n), rng.uniform(1.0, 9.0, n), rng.uniform(2.0, 9.0, n), rng.uniform(-1, 1, n)]
    return kin, model, np.concatenate([*theta, *friction])


def positions(kin: Kinematics, rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, n) anywhere, prismatic joints in their travel."""
    low = np.where(kin.sliding, kin.travel[:, 0], -3.0)
    return rng.uniform(low, np.where(kin.sliding, kin.travel[:, 1], 3.0), (count, len(kin.axis)))


def check_agreement(
    ours: Dynamics, theirs: Dynamics, kin: Kinematics, theta: np.ndarray, rng: np.random.Generator
) -> None:
    """Two backends say the same of four states, and of one of them alone."""
    q, (qd, qd_a, qdd) = positions(kin, rng, 4), rng.uniform(-2, 2, (3, 4, len(kin.axis)))
    for name, arguments in (
        ("inverse_dynamics", (theta, q, qd, qdd, 0.3)),
        ("inverse_dynamics", (theta, q, qd, qdd)),
        ("gravity", (theta, q)),
        ("mass_matrix", (theta, q)),
        ("torque_regressor", (q, qd, qdd, 0.3)),
        ("slotine_li_regressor", (q, qd, qd_a, qdd)),
        ("momentum_regressor", (q, qd)),
        ("momentum_rate_regressor", (q, qd, 0.3)),
    ):
        found, expected = (getattr(backend, name)(*arguments) for backend in (ours, theirs))
        scale = max(1.0, float(np.max(np.abs(expected))))
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-11 * scale, err_msg=name)
        one = [x[2] if np.ndim(x) == 2 else x for x in arguments]
        for backend, batch in ((ours, found), (theirs, expected)):
            np.testing.assert_allclose(getattr(backend, name)(*one), batch[2], rtol=1e-13, atol=1e-13 * scale)


def mass_matrix(model: pin.Model, q: np.ndarray) -> np.ndarray:
    """Symmetric inertia matrix without rotors."""
    data = model.createData()
    upper = np.triu(pin.crba(model, data, q))
    return upper + np.triu(upper, 1).T


@dataclass(frozen=True)
class RotorArm:
    """An arm with explicit rotors, and what the package needs to know of it.

    The oracle knows nothing of "Ia" or "kappa": every rotor is a rigid body with a joint of its own in Pinocchio's
    model, and a transmission ``position of all joints = turns @ q`` holds its angle to the driven joint's.

    Attributes:
        kin: with the motors.
        model: of Pinocchio, the arm's n joints and a joint per rotor.
        turns: (model.nv, n).
        theta: (14 n,); links hold their rotors as if these did not spin, without friction.
        at_rest: inertia of the first joint's rotor, whose carrier rests.
    """

    kin: Kinematics
    model: pin.Model
    turns: np.ndarray
    theta: np.ndarray
    at_rest: float = 0.5

    def torque(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        """(n,) N m, gravity included."""
        full = (self.turns @ x for x in (q, qd, qdd))
        torque = np.asarray(self.turns.T @ pin.rnea(self.model, self.model.createData(), *full))
        torque[0] += self.at_rest * qdd[0]
        return torque

    def inertia(self, q: np.ndarray) -> np.ndarray:
        """H (n, n), column by column: CRBA wants joints in another order."""
        still = np.zeros(len(q))
        rest = self.torque(q, still, still)
        return np.stack([self.torque(q, still, e) - rest for e in np.eye(len(q))], axis=1)

    def energy(self, q: np.ndarray, qd: np.ndarray) -> float:
        """Kinetic and potential, J."""
        data = self.model.createData()
        kinetic = pin.computeKineticEnergy(self.model, data, self.turns @ q, self.turns @ qd)
        kinetic += 0.5 * self.at_rest * qd[0] ** 2
        return float(kinetic + pin.computePotentialEnergy(self.model, data, self.turns @ q))


def rotor_arm(n: int, rng: np.random.Generator, slides: float = 0.0, ratios: float = 30.0) -> RotorArm:
    """A random arm with a rotor of a random ratio, of either sign, axis and place on any link before each joint."""
    kin, model, theta = random_arm(n, rng, slides)
    theta[10 * n :] = 0.0
    joints, carriers, gear, axes, turns = [], [], [], [], {}
    for j in range(1, n):
        carrier = int(rng.integers(0, j))
        ratio = float(rng.choice([-1.0, 1.0]) * rng.uniform(2.0, ratios))
        axis = rng.normal(size=3)
        axis /= np.linalg.norm(axis)
        spin = rng.uniform(0.2, 1.0) / ratio**2
        across = max(rng.uniform(0.01, 0.1), 0.6 * spin)  # less is no solid body
        mass, place = rng.uniform(0.1, 2.0), rng.uniform(-0.2, 0.2, 3)
        inertia = across * np.eye(3) + (spin - across) * np.outer(axis, axis)
        rotor = pin.Inertia(mass, np.zeros(3), inertia)
        at = pin.SE3(np.eye(3), place)
        added = model.addJoint(carrier + 1, pin.JointModelRevoluteUnaligned(axis), at, f"rotor_{j}")
        model.appendBodyToJoint(added, rotor, pin.SE3.Identity())
        theta[10 * carrier : 10 * carrier + 10] += at.act(rotor).toDynamicParameters()
        theta[12 * n + j] = spin * ratio**2
        joints.append(j)
        carriers.append(carrier)
        gear.append(1.0 / ratio)
        axes.append(axis)
        turns[f"rotor_{j}"] = (j, ratio)
    theta[12 * n] = RotorArm.at_rest
    jacobian = np.zeros((model.nv, n))
    for j in range(n):
        jacobian[model.joints[model.getJointId(f"joint_{j}")].idx_v, j] = 1.0
    for name, (j, ratio) in turns.items():
        jacobian[model.joints[model.getJointId(name)].idx_v, j] = ratio
    motors = Motors(
        np.array(joints, np.int64), np.array(carriers, np.int64), np.array(gear), np.array(axes).reshape(-1, 3)
    )
    return RotorArm(kin._replace(motors=motors).read_only, model, jacobian, theta)
