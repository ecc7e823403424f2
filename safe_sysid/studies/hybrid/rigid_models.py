"""Rigid models of the experiments: what a drawing says, and what a semidefinite program finds in data."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.base_parameters import BaseParameters, base_parameters_of_factor
from safe_sysid.identification.arm.consistent import Fit, fit_consistent
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.experiments.constrained.truth import perturbed

__all__ = ["TERMS", "drawing", "identified", "rigid_torque"]

FloatArray = NDArray[np.float64]
#: Joint terms that a model has besides its links, by name. [Hybrid]: RBD has none, RBD+Sign Coulomb friction.
TERMS: dict[str, tuple[int, ...]] = {
    "links": (),
    "coulomb": (COULOMB,),
    "all": (COULOMB, VISCOUS, ROTOR, OFFSET),
}
_DRAWING_SEED = 7
_BLOCK = 20_000


def drawing(model: RobotModel) -> FloatArray:
    """Parameters (14 n,) of the arm as its maker's drawing might have them: each 5 to 30 % off.

    Args:
        model: whose nominal parameters are the truth.
    """
    rng = np.random.default_rng(_DRAWING_SEED)
    return perturbed(np.array(model.theta_nominal), ParameterLayout(model.n), True, rng)


def identified(
    model: RobotModel,
    motions: Iterable[tuple[FloatArray, FloatArray, FloatArray, FloatArray]],
    terms: str,
    scale: FloatArray | None = None,
) -> tuple[FloatArray, BaseParameters]:
    """The consistent parameters that fit best, in the sense of least squares.

    Args:
        model: of the arm; its transition velocity is that of friction.
        motions: q, qd, qdd, torque, (N, n) each.
        terms: one of :data:`TERMS`; others are zero.
        scale: (n,) what a joint's torque error is divided by; None: the largest torques of the data.

    Returns:
        (14 n,) parameters, and the base parameters that the data tell.

    Raises:
        ParameterError: an unknown name, no data, or data that no real arm fits.
    """
    if terms not in TERMS:
        raise ParameterError(f"terms = {terms!r}: expected one of {', '.join(TERMS)}")
    n, layout, dynamics = model.n, ParameterLayout(model.n), dynamics_of(model.kinematics)
    blocks = [np.arange(n) + term * n for term in TERMS[terms]]
    free = np.concatenate([np.arange(PER_LINK * n), *blocks]).astype(np.int64)
    parts = [tuple(np.ascontiguousarray(x, float) for x in motion) for motion in motions]
    if not parts:
        raise ParameterError("identification: no data")
    if scale is None:
        scale = np.max([np.abs(tau).max(axis=0) for *_, tau in parts], axis=0)
    factor = np.zeros((0, len(free) + 1))
    for q, qd, qdd, tau in parts:
        for k in range(0, len(q), _BLOCK):
            at = slice(k, k + _BLOCK)
            rows = dynamics.torque_regressor(q[at], qd[at], qdd[at], model.friction_transition_velocity)
            both = np.concatenate([rows[:, :, free], tau[at, :, None]], axis=2) / scale[:, None]
            stacked = np.concatenate([factor, both.reshape(-1, len(free) + 1)])
            factor = linalg.qr(stacked, mode="r")[0][: len(free) + 1]
    triangle, target = factor[:, :-1], factor[:, -1]
    base = base_parameters_of_factor(triangle)
    columns = triangle[:, base.independent]
    values = np.asarray(np.linalg.lstsq(columns, target, rcond=None)[0], np.float64)
    matrix = np.zeros((len(base), layout.size))
    matrix[:, free] = base.matrix
    known = np.ones(layout.size, bool)
    known[free] = False
    start = np.array(model.theta_nominal)
    start[: PER_LINK * n] = drawing(model)[: PER_LINK * n]
    start[known] = 0.0
    positive = np.r_[layout.block(COULOMB), layout.block(VISCOUS), layout.block(ROTOR)].astype(np.int64)
    fit = Fit(linalg.qr(columns, mode="r")[0][: len(base)], matrix, values)
    theta = fit_consistent(fit, layout, start, known, positive[~known[positive]])
    return theta, base


def rigid_torque(
    model: RobotModel, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray
) -> FloatArray:
    """Torque (N, n) or (n,) of a rigid model, friction of [Hybrid eq. 13] included where theta has it.

    Args:
        model: of the arm.
        theta: (14 n,).
        q: (N, n) or (n,) rad.
        qd: the same, rad/s.
        qdd: the same, rad/s^2.
    """
    return dynamics_of(model.kinematics).inverse_dynamics(
        theta, q, qd, qdd, model.friction_transition_velocity
    )
