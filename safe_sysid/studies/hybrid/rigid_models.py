"""Rigid models of the experiments: what a drawing says, and what a semidefinite program finds in data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from safe_sysid.apps.learn.rigid_part import fit_rigid_part
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.arm.base_parameters import BaseParameters
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.experiments.constrained.truth import perturbed
from safe_sysid.whole_files import replacing

__all__ = ["drawing", "identified", "rigid_torque", "write_rigid"]

_DRAWING_SEED = 7


def drawing(model: RobotModel) -> FloatArray:
    """Parameters (14 n,) of the arm as its maker's drawing might have them: each 5 to 30 % off.

    ``model``: whose nominal parameters are the truth.
    """
    rng = np.random.default_rng(_DRAWING_SEED)
    return perturbed(np.array(model.theta_nominal), ParameterLayout(model.n), True, rng)


def identified(
    model: RobotModel,
    motions: Iterable[tuple[FloatArray, FloatArray, FloatArray, FloatArray]],
    terms: str,
    scale: FloatArray | None = None,
) -> tuple[FloatArray, BaseParameters]:
    """What data say of the arm, terms that are not identified left out; see :func:`fit_rigid_part`.

    Raises ParameterError: an unknown name, no data, or data that no real arm fits.

    Args:
        model: of the arm; its transition velocity is that of friction.
        motions: q, qd, qdd, torque, (N, n) each.
        terms: one of :data:`~safe_sysid.apps.learn.rigid_part.TERMS`.
        scale: (n,) what a joint's torque error is divided by; None: the largest torques of the data.
    """
    start = np.zeros(model.layout.size)
    start[model.layout.links] = drawing(model)[model.layout.links]
    return fit_rigid_part(model, motions, terms, start, scale)


def write_rigid(path: Path, theta: FloatArray) -> None:
    """Write the file of a rigid model, whole or not at all. ``theta``: (14 n,)."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, theta=theta)


def rigid_torque(model: RobotModel, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
    """Torque (N, n) or (n,) of a rigid model, friction of [Hybrid eq. 13] included where theta has it.

    Args:
        model: of the arm.
        theta: (14 n,).
        q: (N, n) or (n,) rad.
        qd: the same, rad/s.
        qdd: the same, rad/s^2.
    """
    return dynamics_of(model.kinematics).inverse_dynamics(theta, q, qd, qdd, model.friction_transition_velocity)
