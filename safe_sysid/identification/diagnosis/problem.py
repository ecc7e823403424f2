"""Equations of run and tare as one scaled linear problem. Proves nothing."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.identification.bounds.drift import drift_of, drifting
from safe_sysid.identification.bounds.joint_rows import unscaled_rows
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["scaled_problem"]


def scaled_problem(
    model: RobotModel, errors: MeasurementErrors, rows: MomentumRows, box: ParameterBox
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scaled matrix (M, 14 n + 10 + D) and target (M,), and the radii (14 n + 10,) that scale theta and theta_h.

    The last D unknowns, zero without a tare, are the drift of friction since then.

    ``model``: gives the hand's prior and the drift; ``rows``: of the run, and of a tare where ``log`` is 1.
    """
    lower, upper = model.hand_prior
    middle = np.concatenate([box.mid, 0.5 * (lower + upper)])
    radius = np.concatenate([box.rad, 0.5 * (upper - lower)])
    columns, drift = drifting(drift_of(model, errors) * np.any(rows.log == 1), box.layout)
    x, matrix = UnknownsLayout(box.layout, len(columns)), unscaled_rows(rows, columns)
    moved = matrix[:, x.drift] * drift
    matrix = matrix[:, : x.hand.stop]
    target = (rows.target - matrix @ middle) / rows.slack
    return np.concatenate([matrix * radius, moved], axis=1) / rows.slack[:, None], target, radius
