"""The rigid part of an arm's torques: consistent links, and joint terms as wanted, by a semidefinite program."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import linalg

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.base_parameters import BaseParameters, base_parameters_of_factor
from safe_sysid.identification.arm.estimates.consistent import Fit, fit_consistent
from safe_sysid.robot.model import RobotModel

__all__ = ["TERMS", "fit_rigid_part"]

#: Joint terms that are identified besides the links, by name. [Hybrid]: RBD has none, RBD+Sign Coulomb friction.
TERMS: dict[str, tuple[int, ...]] = {"links": (), "coulomb": (COULOMB,), "all": (COULOMB, VISCOUS, ROTOR, OFFSET)}
_BLOCK = 20_000


def fit_rigid_part(
    model: RobotModel,
    motions: Iterable[tuple[FloatArray, FloatArray, FloatArray, FloatArray]],
    terms: str,
    start: FloatArray,
    scale: FloatArray | None = None,
    transition: float | None = None,
) -> tuple[FloatArray, BaseParameters]:
    """The consistent parameters that fit best, in the sense of least squares.

    Returns (14 n,) parameters, and the base parameters that the data tell.

    Raises ParameterError: an unknown name, no data, or data that no real arm fits.

    Args:
        model: of the arm.
        motions: q, qd, qdd, torque, (N, n) each.
        terms: one of :data:`TERMS`.
        start: (14 n,) what joint terms that are not identified are, and links where the data tell nothing.
        scale: (n,) what a joint's torque error is divided by; None: the largest torques of the data.
        transition: of Coulomb friction, rad/s; None: the model's.
    """
    if terms not in TERMS:
        raise ParameterError(f"terms = {terms!r}: expected one of {', '.join(TERMS)}")
    n, layout, dynamics = model.n, ParameterLayout(model.n), dynamics_of(model.kinematics)
    slow = model.friction_transition_velocity if transition is None else transition
    blocks = [np.arange(n) + term * n for term in TERMS[terms]]
    free = np.concatenate([np.arange(PER_LINK * n), *blocks]).astype(np.int64)
    known = np.ones(layout.size, bool)
    known[free] = False
    fixed = np.where(known, start, 0.0)
    parts = [tuple(np.ascontiguousarray(x, float) for x in motion) for motion in motions]
    if not parts:
        raise ParameterError("identification: no data")
    if scale is None:
        scale = np.max([np.abs(tau).max(axis=0) for *_, tau in parts], axis=0)
    factor = np.zeros((0, len(free) + 1))
    for q, qd, qdd, tau in parts:
        for k in range(0, len(q), _BLOCK):
            at = slice(k, k + _BLOCK)
            rows = dynamics.torque_regressor(q[at], qd[at], qdd[at], slow)
            rest = tau[at] - rows @ fixed if np.any(fixed) else tau[at]
            both = np.concatenate([rows[:, :, free], rest[:, :, None]], axis=2) / scale[:, None]
            stacked = np.concatenate([factor, both.reshape(-1, len(free) + 1)])
            factor = linalg.qr(stacked, mode="r")[0][: len(free) + 1]
    triangle, target = factor[:, :-1], factor[:, -1]
    base = base_parameters_of_factor(triangle)
    columns = triangle[:, base.independent]
    values = np.asarray(np.linalg.lstsq(columns, target, rcond=None)[0], np.float64)
    matrix = np.zeros((len(base), layout.size))
    matrix[:, free] = base.matrix
    positive = np.r_[layout.block(COULOMB), layout.block(VISCOUS), layout.block(ROTOR)].astype(np.int64)
    fit = Fit(linalg.qr(columns, mode="r")[0][: len(base)], matrix, values)
    return fit_consistent(fit, layout, start, known, positive[~known[positive]]), base
