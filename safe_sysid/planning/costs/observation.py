r"""The observation matrices whose condition numbers PSO reports, of a motion that was driven or is planned.

Columns are those of theta_e, unscaled as in the paper (kg, kg m, kg m^2), or scaled by a box's radii.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import PlanError
from safe_sysid.planning.costs.excitation import payload_regressor
from safe_sysid.robot.model import Kinematics

__all__ = ["MomentumObservation", "Rule", "condition_number", "torque_observation"]

#: How W_c is integrated: the paper's forward Euler (left rectangles), or by trapezoids.
Rule = Literal["euler", "trapezoid"]
_CHUNK = 1000  # samples: all columns of a long motion at once would be some hundred megabytes


def torque_observation(kin: Kinematics, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
    """PSO's W (eq. 30): theta_e's columns of the torque regressor (N n, 10) at states (N, n)."""
    q, qd, qdd = (np.ascontiguousarray(x, dtype=np.float64) for x in (q, qd, qdd))
    return payload_regressor(kin, q, qd, qdd).reshape(-1, 10)


class MomentumObservation:
    """PSO's Y (eq. 21 to 23) of one motion, for any forward integration horizon."""

    def __init__(self, kin: Kinematics, times: FloatArray, q: FloatArray, qd: FloatArray) -> None:
        """Evaluate the regressors once.

        Args:
            times: (N,) s, increasing, N >= 2.
            q: (N, n) rad.
            qd: (N, n) rad/s.

        Raises:
            PlanError: shapes that disagree, or fewer than two samples.
        """
        count, n = np.shape(q)
        if count < 2 or np.shape(qd) != (count, n) or np.shape(times) != (count,):
            raise PlanError(
                f"motion: times {np.shape(times)}, q {np.shape(q)}, qd {np.shape(qd)}: "
                "expected (N,), (N, n), (N, n) with N of at least 2"
            )
        e = ParameterLayout(n).payload
        self._momentum, rate = np.empty((2, count, n, 10))
        for first in range(0, count, _CHUNK):
            some = slice(first, first + _CHUNK)
            states = (np.ascontiguousarray(q[some], float), np.ascontiguousarray(qd[some], float))
            self._momentum[some] = dynamics_of(kin).momentum_regressor(*states)[:, :, e]
            rate[some] = dynamics_of(kin).momentum_rate_regressor(*states)[:, :, e]
        step = np.diff(times)[:, None, None]
        zero = np.zeros((1, n, 10))
        self._integral: dict[str, FloatArray] = {
            "euler": np.concatenate([zero, np.cumsum(step * rate[:-1], axis=0)]),
            "trapezoid": np.concatenate([zero, np.cumsum(0.5 * step * (rate[:-1] + rate[1:]), axis=0)]),
        }

    def rows(self, horizon: int, rule: Rule = "euler") -> FloatArray:
        """Momentum equations over ``horizon`` samples each, one after the other, N m s per unit of theta_e.

        ``horizon``: h, samples; what is left at the end is dropped, as in the paper.
        Returns (floor((N - 1) / h) n, 10).

        Raises:
            PlanError: an unknown rule, h is not positive, or fewer samples than one window.
        """
        if rule not in self._integral:
            raise PlanError(f"rule = {rule!r}: expected {' or '.join(self._integral)}")
        steps = len(self._momentum) - 1
        if not 1 <= horizon <= steps:
            raise PlanError(f"horizon = {horizon!r} samples of {steps + 1}: expected 1 to {steps}")
        ends = (self._momentum - self._integral[rule])[:: int(horizon)]
        return np.asarray(np.diff(ends, axis=0).reshape(-1, 10), dtype=np.float64)


def condition_number(rows: FloatArray, scale: FloatArray | None = None) -> float:
    """2-norm condition number of rows (M, 10), with columns times ``scale`` (10,) if given; infinite if singular."""
    values = np.linalg.svd(rows if scale is None else rows * scale, compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0.0 else np.inf
