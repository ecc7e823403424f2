r"""Friction drift between a tare and a later run: at most the declared amount, and constant during the run.

``theta_tare = theta + f``, f zero but for Fc, Fv and beta, ``|f| <= drift``. So a row of the tare, true of theta_tare,
is one over ``(theta, f)`` with the same coefficients for both. f is the same in every row: as unknowns of the joint set
it costs little, while slack enlarged row by row lets every row have another f.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array

__all__ = ["checked_drift", "drift_of", "drifting", "enlarged"]


def drift_of(model: RobotModel, errors: MeasurementErrors) -> FloatArray:
    """Declared drift (3 n,) of Fc (N m), Fv (N m s/rad) and beta (N m); of a further term all that its prior leaves.

    A torque sensor's constant bias is constant within a run only: it may have gone from one end to the other.
    """
    settings, layout = model.settings.tare.drift, model.layout
    big = np.maximum(np.abs(model.arm_prior.lower), np.abs(model.arm_prior.upper))
    drift = np.concatenate(
        [
            settings.coulomb * big[layout.coulomb],
            settings.viscous * big[layout.viscous],
            settings.offset + 2.0 * errors.torque_bias,
            *(2.0 * model.arm_prior.rad[part] for part, term in layout.further if term.drifts),
        ]
    )
    return drift * (1.0 + 1e-12)


def checked_drift(drift: ArrayLike | None, layout: ParameterLayout) -> FloatArray:
    """(3 n,) read-only drift; zeros for None. ``drift``: of ``layout.drifting``; ``layout``: of the arm's parameters.

    Raises:
        ParameterError: a shape, or a number that is negative or not finite.
    """
    count = len(layout.drifting)
    out = frozen_array(np.zeros(count) if drift is None else drift, (count,), "tare_drift")
    if np.any(out < 0.0):
        raise ParameterError(f"tare_drift = {out.tolist()}: expected numbers >= 0")
    return out


def drifting(drift: FloatArray, layout: ParameterLayout) -> tuple[IntArray, FloatArray]:
    """Columns (D,) that may drift at all, and by how much (D,): the others are no unknowns.

    ``drift``: (3 n,) of ``layout.drifting``; ``layout``: of the arm's parameters.
    """
    moves = drift > 0.0
    return layout.drifting[moves], drift[moves]


def enlarged(rows: MomentumRows, drift: FloatArray) -> MomentumRows:
    """Rows of a tare whose slack also covers the drift: ``|A theta - T| <= |A theta_tare - T| + |A| drift``.

    ``rows``: (M, 14 n) matrix; ``drift``: (3 n,) of ``rows.layout.drifting``.
    """
    if not np.any(drift):
        return rows
    more = (np.abs(rows.matrix[:, rows.layout.drifting]) @ drift) * (1.0 + 1e-12)
    parts = rows.parts.copy()
    parts[:, ERROR_CAUSES.index("friction")] += more
    return replace(rows, slack=(rows.slack + more) * (1.0 + 1e-15), sigma=rows.sigma + more, parts=parts)
