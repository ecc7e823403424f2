r"""Friction may change between a tare and a later run: by at most the declared drift, and then by a constant.

``theta_tare = theta + f``, f zero but for Fc, Fv and beta, ``|f| <= drift``. So a row of the tare, true of theta_tare,
is one over ``(theta, f)`` with the same coefficients for both. f is the same in every row: as unknowns of the joint set
it costs little, while slack enlarged row by row lets every row have another f.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array

__all__ = ["checked_drift", "drift_of", "drifting", "enlarged", "friction_columns"]

FloatArray = NDArray[np.float64]


def friction_columns(n: int) -> NDArray[np.int64]:
    """Columns (3 n,) of a row's matrix whose parameters may drift: Fc, Fv, beta.

    Args:
        n: number of joints.
    """
    return np.r_[10 * n : 12 * n, 13 * n : 14 * n]


def drift_of(model: RobotModel, errors: MeasurementErrors) -> FloatArray:
    """Declared drift (3 n,) of Fc (N m), Fv (N m s/rad) and beta (N m).

    A torque sensor's constant bias is constant within a run only: it may have gone from one end to the other.

    Args:
        model: the arm.
        errors: declared for tare and run.
    """
    settings, n = model.settings.tare.drift, model.n
    big = np.maximum(np.abs(model.arm_prior.lower), np.abs(model.arm_prior.upper))
    drift = np.concatenate(
        [
            settings.coulomb * big[10 * n : 11 * n],
            settings.viscous * big[11 * n : 12 * n],
            settings.offset + 2.0 * errors.torque_bias,
        ]
    )
    return drift * (1.0 + 1e-12)


def checked_drift(drift: ArrayLike | None, n: int) -> FloatArray:
    """(3 n,) read-only drift; zeros for None.

    Args:
        drift: of :func:`friction_columns`.
        n: number of joints.

    Raises:
        ParameterError: a shape, or a number that is negative or not finite.
    """
    out = frozen_array(np.zeros(3 * n) if drift is None else drift, (3 * n,), "tare_drift")
    if np.any(out < 0.0):
        raise ParameterError(f"tare_drift = {out.tolist()}: expected numbers >= 0")
    return out


def drifting(drift: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """Columns (D,) that may drift at all, and by how much (D,): the others are no unknowns.

    Args:
        drift: (3 n,).
    """
    moves = drift > 0.0
    return friction_columns(len(drift) // 3)[moves], drift[moves]


def enlarged(rows: MomentumRows, drift: FloatArray) -> MomentumRows:
    """Rows of a tare whose slack also covers the drift: ``|A theta - T| <= |A theta_tare - T| + |A| drift``.

    Args:
        rows: (M, 14 n) matrix.
        drift: (3 n,) of :func:`friction_columns`.
    """
    if not np.any(drift):
        return rows
    n = rows.matrix.shape[1] // 14
    more = (np.abs(rows.matrix[:, friction_columns(n)]) @ drift) * (1.0 + 1e-12)
    parts = rows.parts.copy()
    parts[:, ERROR_CAUSES.index("friction")] += more
    return replace(rows, slack=(rows.slack + more) * (1.0 + 1e-15), sigma=rows.sigma + more, parts=parts)
