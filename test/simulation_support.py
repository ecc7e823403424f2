"""Random arms for the simulator's tests: unaligned axes, unequal uncertainties, 1 to 9 joints."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from safe_sysid.robot.model import Body, JointLimits, Kinematics, RobotModel
from safe_sysid.robot.parameters import ParameterBox, pseudo_inertia_to_theta


def random_arm(
    seed: int,
    n: int,
    coulomb: float = 0.5,
    rotor: float = 1.0,
    transition: float = 0.01,
    bodies: tuple[Body, ...] | None = None,
    allowed: frozenset[frozenset[str]] | None = None,
    relative: float = 0.05,
) -> RobotModel:
    """An arm whose every frame, axis, inertia and friction is random; capsules along its links."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=(n, 3))
    axis /= np.linalg.norm(axis, axis=1)[:, None]
    kinematics = Kinematics.turning(
        Rotation.random(n, random_state=rng).as_matrix(),
        rng.uniform(-0.3, 0.3, (n, 3)),
        axis,
        np.array([0.7, -0.4, -9.7]),
    )
    theta = np.zeros(14 * n)
    for j in range(n):
        root = rng.normal(size=(4, 4)) * 0.2
        root[3] *= 3.0
        theta[10 * j : 10 * j + 10] = pseudo_inertia_to_theta(root @ root.T + 1e-2 * np.eye(4))
    theta[10 * n : 11 * n] = coulomb * rng.uniform(0.2, 1.0, n)
    theta[11 * n : 12 * n] = rng.uniform(0.0, 5.0, n)
    theta[12 * n : 13 * n] = rotor * rng.uniform(0.2, 1.0, n)
    theta[13 * n :] = rng.normal(size=n)
    floor = {"mass": 1e-3, "first_moment": 2e-3, "inertia": 3e-3}
    radius = relative * np.abs(theta) * rng.uniform(0.5, 1.0, 14 * n) + 1e-3
    last = slice(10 * (n - 1), 10 * n)
    radius[last] = relative * np.abs(theta[last]) + 2.0  # room for a payload
    lower, upper = theta - radius, theta + radius
    lower[10 * n : 13 * n] = np.maximum(lower[10 * n : 13 * n], 0.0)
    flange = (Rotation.random(random_state=rng).as_matrix(), rng.uniform(-0.1, 0.1, 3))
    if bodies is None:
        bodies = tuple(
            Body(f"link_{j}", j, np.array([[0.0, 0.0, 0.0], rng.uniform(-0.2, 0.2, 3)]), 0.03) for j in range(n)
        )
    if allowed is None:
        allowed = frozenset(frozenset((f"link_{j}", f"link_{j + 1}")) for j in range(n - 1))
    return RobotModel(
        name="random",
        joint_names=tuple(f"j{j}" for j in range(n)),
        kinematics=kinematics,
        limits=JointLimits(np.full(n, -3.0), np.full(n, 3.0), np.full(n, 3.0), np.full(n, 200.0)),
        continuous=np.zeros(n, bool),
        theta_nominal=theta,
        arm_prior=ParameterBox(lower, upper),
        friction_transition_velocity=transition,
        flange=flange,
        bodies=bodies,
        allowed_pairs=allowed,
        settings=SimpleNamespace(
            drives="declared", joints={}, uncertainty=SimpleNamespace(relative=relative, floor=SimpleNamespace(**floor))
        ),
    )


def pinocchio_arm(model: RobotModel, theta: np.ndarray) -> pin.Model:
    """The same arm in Pinocchio: an oracle that shares nothing with our regressors or with MuJoCo."""
    arm, kin, n = pin.Model(), model.kinematics, model.n
    arm.gravity.linear = np.array(kin.gravity)
    parent = 0
    for j in range(n):
        placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        parent = arm.addJoint(parent, pin.JointModelRevoluteUnaligned(*kin.axis[j]), placement, f"j{j}")
        inertia = pin.Inertia.FromDynamicParameters(np.array(theta[10 * j : 10 * j + 10]))
        arm.appendBodyToJoint(parent, inertia, pin.SE3.Identity())
    arm.armature = np.array(theta[12 * n : 13 * n])
    return arm


def holds(noisy: np.ndarray, true: np.ndarray, absolute: np.ndarray | float, relative: np.ndarray | float) -> bool:
    """The declared inequality of every measurement, in exact rational arithmetic."""
    numbers = zip(*(x.ravel().tolist() for x in np.broadcast_arrays(noisy, true, absolute, relative)), strict=True)
    return all(abs(m - v) <= a + b * abs(v) for m, v, a, b in (map(Fraction, row) for row in numbers))
