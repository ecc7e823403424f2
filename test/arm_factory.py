"""Random serial arms as pairs of (our Kinematics, Pinocchio model): the independent oracle of the tests."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from safe_sysid.robot.model import Kinematics


def random_arm(
    n: int, rng: np.random.Generator, slides: float = 0.0
) -> tuple[Kinematics, pin.Model, np.ndarray]:
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
            pin.Quaternion(quaternion / np.linalg.norm(quaternion)).toRotationMatrix(),
            rng.uniform(-0.4, 0.4, 3),
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
    kin = Kinematics(np.array(rotation), np.array(translation), np.array(axes), gravity, travel)
    friction = [
        rng.uniform(0.1, 1.0, n),
        rng.uniform(1.0, 9.0, n),
        rng.uniform(2.0, 9.0, n),
        rng.uniform(-1, 1, n),
    ]
    return kin, model, np.concatenate([*theta, *friction])


def positions(kin: Kinematics, rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, n) anywhere, prismatic joints in their travel."""
    low = np.where(kin.sliding, kin.travel[:, 0], -3.0)
    return rng.uniform(low, np.where(kin.sliding, kin.travel[:, 1], 3.0), (count, len(kin.axis)))


def mass_matrix(model: pin.Model, q: np.ndarray) -> np.ndarray:
    """Symmetric inertia matrix without rotors."""
    data = model.createData()
    upper = np.triu(pin.crba(model, data, q))
    return upper + np.triu(upper, 1).T
